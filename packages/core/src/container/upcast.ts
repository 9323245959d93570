import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, type Upcasters, versionsOf } from '../upcast.ts';
import { containerEventSchemas, type ContainerEvent } from './events.ts';

export const containerEventVersions = versionsOf(containerEventSchemas, { ContainerCreated: 2 });

/** The policy grace of a container whose creation did not say: 24 hours, in seconds. */
export const DEFAULT_POLICY_GRACE_SECONDS = 86_400;

const upcasters: Upcasters = {
  // Version 1 knew no policy grace; its containers have the default one.
  ContainerCreated: [(data) => ({ ...data, policyGraceSeconds: DEFAULT_POLICY_GRACE_SECONDS })],
};

/** Reads a recorded event of a container's stream, of whatever version. */
export function readContainerEvent(event: RecordedEvent): ContainerEvent {
  return parseEvent(event, containerEventSchemas, containerEventVersions, upcasters);
}
