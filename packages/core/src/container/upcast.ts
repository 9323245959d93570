import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseEvent, type Upcasters, versionsOf } from '../upcast.ts';
import { containerEventSchemas, type ContainerEvent } from './events.ts';

export const containerEventVersions = versionsOf(containerEventSchemas, { ContainerCreated: 2 });

/** The policy grace of a container whose creation did not set one: 24 hours, in seconds. */
export const DEFAULT_POLICY_GRACE_SECONDS = 86_400;

const upcasters: Upcasters = {
  // Version 1 had no policy grace. Its containers get the default.
  ContainerCreated: [(data) => ({ ...data, policyGraceSeconds: DEFAULT_POLICY_GRACE_SECONDS })],
};

/** Reads a recorded event of a container's stream, in any version. */
export function readContainerEvent(event: RecordedEvent): ContainerEvent {
  return parseEvent(event, containerEventSchemas, containerEventVersions, upcasters);
}
