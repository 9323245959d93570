import { readContainerEvent } from '../container/upcast.ts';
import { invariant } from '../invariant.ts';
import type { EventLog } from '../log/event-log.ts';
import type { RecordedScope } from './events.ts';
import type { StandingHold } from './hold-register.ts';

/** The whole scope of a hold. The lives of a query's result are read from the log, where the hold was recorded. */
export async function scopeOfHold(
  log: Pick<EventLog, 'readAt'>,
  { scope, position }: Pick<StandingHold, 'scope' | 'position'>,
): Promise<RecordedScope> {
  if (scope.kind !== 'query') return scope;
  const recorded = await log.readAt(position);
  const event = recorded && readContainerEvent(recorded);
  invariant(event?.type === 'HoldPlaced', 'the record of a hold is never truncated');
  return event.data.scope;
}
