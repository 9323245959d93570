import type { RecordedEvent } from '../log/recorded-event.ts';
import { retentionEventVersions } from '../retention/events.ts';
import { parseEvent, type Upcasters } from '../upcast.ts';
import { containerEventSchemas, type ContainerEvent } from './events.ts';

/** The version each event is written in today. */
export const containerEventVersions = {
  ContainerCreated: 2,
  ContainerReplaced: 1,
  ContainerTtlChanged: 1,
  ContainerTtlWithdrawn: 1,
  TtlBrakeChanged: 1,
  PolicyGraceChanged: 1,
  ThroughputChanged: 1,
  ...retentionEventVersions,
  PartitionKeyDeleted: 1,
  PartitionKeyDeleteCompleted: 1,
  ContainerDeleted: 1,
} as const;

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
