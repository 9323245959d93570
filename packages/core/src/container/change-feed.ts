import type { RecordedEvent } from '../log/recorded-event.ts';
import type { ContainerDefinition } from './definition.ts';
import { readContainerEvent } from './upcast.ts';

/** How far two decisions may stand in the log the other way round than their times, in seconds; generously. */
export const LOG_TIME_SLACK_SECONDS = 60;

/**
 * Seconds for which a container keeps all versions and deletes for its change feed; 0 for a container that keeps none.
 * `changeFeedPolicy.retentionDuration` is in minutes; what is no number of them counts as absent.
 */
export function feedRetentionSeconds(definition: ContainerDefinition): number {
  const policy = definition['changeFeedPolicy'];
  if (typeof policy !== 'object' || policy === null) return 0;
  const minutes = (policy as { readonly retentionDuration?: unknown }).retentionDuration;
  return typeof minutes === 'number' && Number.isSafeInteger(minutes) && minutes > 0 ? minutes * 60 : 0;
}

/**
 * Seconds from a life's last event during which its content must stay: the feed's retention, and the slack by which
 * a reader may judge an event younger than it is. 0 without a feed.
 */
export function feedFloorSeconds(definition: ContainerDefinition): number {
  const retention = feedRetentionSeconds(definition);
  return retention === 0 ? 0 : retention + LOG_TIME_SLACK_SECONDS;
}

/** From where on a container's versions and deletes are complete. */
export interface KeptVersions {
  readonly retentionSeconds: number;
  /** The policy has stood without a break since this log position. */
  readonly sincePosition: number;
  /** What happened before this was kept for a shorter time, when it happened; milliseconds. */
  readonly sinceMs: number;
}

/** What the container's stream says of its feed, or undefined when it keeps no versions now. */
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
      // A longer retention doesn't bring back what a shorter one had let go by then.
      const keptFromMs = recorded.occurredAtMs - kept.retentionSeconds * 1000;
      const sinceMs = retentionSeconds > kept.retentionSeconds ? Math.max(kept.sinceMs, keptFromMs) : kept.sinceMs;
      kept = { ...kept, retentionSeconds, sinceMs };
    }
  }
  return kept;
}
