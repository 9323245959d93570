import { isItemWrite } from '@epitaph/core/item/events.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type ContainerFloors, floorUntil } from '@epitaph/core/vault/key-vault.ts';

/** One life with the events that are left of it, oldest first. */
export interface ItemLife {
  readonly life: number;
  readonly stream: string;
  readonly events: readonly RecordedEvent[];
}

/** All lives of an item, oldest first, from the log itself. */
export async function livesOfItem(
  log: EventLog,
  prefix: string,
  options: { readonly withBodies?: boolean } = {},
): Promise<ItemLife[]> {
  const lives: ItemLife[] = [];
  for (let life = 0; ; life++) {
    const stream = itemStream(prefix, life);
    const events = await log.readStream(stream, options);
    if (events.length === 0) return lives;
    lives.push({ life, stream, events });
  }
}

/** When the retention floor over a life will have passed, in milliseconds; null when none is in the way. */
export function retentionUntil(floors: ContainerFloors, life: ItemLife, nowMs: number): number | null {
  // On demand, as a change feed's floor stands against no erasure that was asked for.
  return floorUntil(floors, { ...timesOf(life), nowMs, onDemand: true });
}

/** The same of the change feed's floor, should the life have ended with its last event. */
export function feedFloorUntil(floors: ContainerFloors, life: ItemLife, nowMs: number): number | null {
  const { 'change-feed': seconds } = floors;
  return seconds === undefined ? null : floorUntil({ 'change-feed': seconds }, { ...timesOf(life), nowMs });
}

function timesOf({ events }: ItemLife): { readonly lastWriteTs: number; readonly lastEventAtMs: number } {
  return {
    lastWriteTs: Math.floor((events.findLast(isItemWrite)?.occurredAtMs ?? 0) / 1000),
    lastEventAtMs: events.at(-1)!.occurredAtMs,
  };
}
