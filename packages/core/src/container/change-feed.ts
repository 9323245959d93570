import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ContainerDefinition } from './definition.ts';
import { readContainerEvent } from './upcast.ts';

/** How far, in seconds, the order of two events in the log may differ from the order of their times. A generous bound. */
export const LOG_TIME_SLACK_SECONDS = 60;

/**
 * For how many seconds a container keeps all versions and deletes for its change feed; 0 if it does not keep them.
 * `changeFeedPolicy.retentionDuration` is in minutes. A value that is not a positive whole number counts as absent.
 */
export function feedRetentionSeconds(definition: ContainerDefinition): number {
  const policy = definition['changeFeedPolicy'];
  if (typeof policy !== 'object' || policy === null) return 0;
  const minutes = (policy as { readonly retentionDuration?: unknown }).retentionDuration;
  return typeof minutes === 'number' && Number.isSafeInteger(minutes) && minutes > 0 ? minutes * 60 : 0;
}

/**
 * For how many seconds after a life's last event its content must stay: the feed's retention, and the slack by which a
 * reader may take an event for younger than it is. 0 without a feed.
 */
export function feedFloorSeconds(definition: ContainerDefinition): number {
  const retention = feedRetentionSeconds(definition);
  return retention === 0 ? 0 : retention + LOG_TIME_SLACK_SECONDS;
}

/** From which point on the container has all versions and deletes. */
export interface KeptVersions {
  readonly retentionSeconds: number;
  /** The policy has been in force without a break since this log position. */
  readonly sincePosition: number;
  /** Events with a time before this, in milliseconds, were kept for a shorter time. */
  readonly sinceMs: number;
}

/** What the container's events say of its feed. Undefined if it keeps no versions now. */
export function keptVersions(events: readonly RecordedEvent[]): KeptVersions | undefined {
  let kept: KeptVersions | undefined;
  for (const recorded of events) {
    const event = readContainerEvent(recorded);
    if (event.type !== 'ContainerCreated' && event.type !== 'ContainerReplaced') continue;
    const retentionSeconds = feedRetentionSeconds(event.data.definition);
    if (retentionSeconds === 0) kept = undefined;
    else if (kept === undefined) {
      kept = { retentionSeconds, sincePosition: recorded.position, sinceMs: recorded.occurredAtMs };
    } else {
      // A longer retention doesn't bring back what the shorter one had already let go.
      const keptFromMs = recorded.occurredAtMs - kept.retentionSeconds * 1000;
      const sinceMs = retentionSeconds > kept.retentionSeconds ? Math.max(kept.sinceMs, keptFromMs) : kept.sinceMs;
      kept = { ...kept, retentionSeconds, sinceMs };
    }
  }
  return kept;
}
