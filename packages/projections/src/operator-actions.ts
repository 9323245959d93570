import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { PURGE_CONTROL_STREAM } from './purge/events.ts';
import { SCAVENGES_STREAM } from './purge/scavenges.ts';
import { BACKUPS_STREAM } from './purge/vault-copies.ts';

const STREAM = 'operator-actions';
const VERSION = 1;

/** What an operator asked of the store as a whole. Only recorded to be read: nothing is decided by it. */
export type OperatorAction =
  | { readonly type: 'PurgeRunRequested'; readonly data: Record<string, never> }
  | {
      readonly type: 'RebuildRequested';
      readonly data: { readonly projection: string; readonly eventsPerSecond: number | null };
    }
  | { readonly type: 'RebuildCancelRequested'; readonly data: { readonly projection: string } }
  | { readonly type: 'ClockAdvanced'; readonly data: { readonly milliseconds: number } }
  | {
      readonly type: 'ClockConfirmed';
      /** The time that was expected when the clock jumped, and the system time that was accepted; in milliseconds. */
      readonly data: { readonly expectedMs: number; readonly wallMs: number };
    };

/** Records an action. */
export async function recordAction(log: EventLog, context: CommandContext, action: OperatorAction): Promise<void> {
  const event = newEvent(context, action, VERSION);
  await appendNext(log, STREAM, () => event);
}

/** What operators have done to the store as a whole, oldest first: purge, backups, scavenges, rebuilds, clock. */
export async function actionsOnStore(log: EventLog): Promise<RecordedEvent[]> {
  const events: RecordedEvent[] = [];
  for (const stream of [STREAM, PURGE_CONTROL_STREAM, SCAVENGES_STREAM, BACKUPS_STREAM]) {
    events.push(...(await log.readStream(stream)));
  }
  return events.toSorted((left, right) => left.position - right.position);
}
