import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import { Pace } from '../turn.ts';
import { lastBy } from '../log/last-by.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '../upcast.ts';
import { isItemWrite } from './events.ts';
import { itemStream } from './stream-name.ts';

/** How many events of a life are read in one call. */
const PAGE_EVENTS = 256;
/** More than the number of events that are left of a life after its writes are truncated. */
const FACTS_LEFT = 8;

/**
 * Reads all events of a life that are in the log, oldest first, without their bodies, one page at a time: the life may
 * have been written a million times. If the log has lost events of the life, the remaining ones are read.
 *
 * @param begin makes the reading that `take` adds the pages to; called again if the life is truncated while it is read
 * @returns the reading after the last page; undefined for a life that was never written
 */
export async function readLife<Reading>(
  log: Pick<EventLog, 'readLast' | 'readStream'>,
  stream: string,
  begin: () => Reading,
  take: (reading: Reading, events: readonly RecordedEvent[]) => MaybePromise<void>,
): Promise<Reading | undefined> {
  const pace = new Pace();
  for (let known = -1; ;) {
    const last = await log.readLast(stream);
    if (last === undefined) return undefined;
    const reading = begin();
    // If the last event is the same as in the attempt before, no purge has truncated the life in between: what is
    // missing is lost, and this attempt reads what is there.
    if (await readThrough(last, reading, last.position === known)) return reading;
    known = last.position;
    await pace.step();
  }

  async function readThrough({ revision }: RecordedEvent, reading: Reading, isAllThereIs: boolean): Promise<boolean> {
    if (revision >= PAGE_EVENTS) {
      const fromRevision = revision - FACTS_LEFT;
      const tail = await log.readStream(stream, { fromRevision, withBodies: false });
      if (tail[0]?.revision !== fromRevision) {
        await take(reading, tail);
        return true;
      }
    }
    for (let fromRevision = 0; ; fromRevision += PAGE_EVENTS) {
      const part = { fromRevision, toRevision: fromRevision + PAGE_EVENTS - 1, withBodies: false };
      const events = await log.readStream(stream, part);
      if (isAllThereIs) {
        if (events.length > 0) await take(reading, events);
        if (part.toRevision >= revision) return true;
        await pace.step();
        continue;
      }
      const goesOn = events[0]?.revision === fromRevision;
      // All that is left of a short truncated life is in the first page. Otherwise a gap means that it was truncated
      // while it was read.
      if (!goesOn && (fromRevision > 0 || revision >= PAGE_EVENTS)) return fromRevision > revision;
      await take(reading, events);
      if (events.length < PAGE_EVENTS) return (events.at(-1)?.revision ?? -1) >= revision;
      await pace.step();
    }
  }
}

/** The write at a revision, without its body. Undefined if that event is no write, or is not in the log. */
export async function writeOf(
  log: Pick<EventLog, 'readStream'>,
  stream: string,
  revision: number,
): Promise<RecordedEvent | undefined> {
  const part = { fromRevision: revision, toRevision: revision, withBodies: false };
  return (await log.readStream(stream, part)).find(isItemWrite);
}

/**
 * The last of a life's writes at or before an instant, among those up to a revision.
 *
 * @returns undefined if all of them came later; 'truncated' if the search met a truncated event
 */
export const writeBy = (
  log: Pick<EventLog, 'readStream'>,
  stream: string,
  upToRevision: number,
  atMs: number,
): Promise<RecordedEvent | 'truncated' | undefined> =>
  lastBy(log, stream, upToRevision, ({ occurredAtMs }) => occurredAtMs <= atMs);

/**
 * The end of a life's stream at present: its last write, if that is still there, and the events after it. Oldest first
 * and without bodies. Empty for a life that was never written.
 */
export async function lifeTail(
  log: Pick<EventLog, 'readLast' | 'readBefore'>,
  stream: string,
): Promise<readonly RecordedEvent[]> {
  for (let known = -1; ;) {
    const tail: RecordedEvent[] = [];
    for (let event = await log.readLast(stream); event !== undefined; event = await log.readBefore(event)) {
      tail.push(event);
      if (isItemWrite(event)) return tail.reverse();
    }
    const last = tail[0];
    // Neither a write nor a purge: the life was truncated while it was read, so it is read again, to end with its purge.
    if (last === undefined || last.type === 'ItemPurged' || last.position === known) return tail.reverse();
    known = last.position;
  }
}

/** The error for a life that is not erased and whose writes the log has lost. */
export const writesLost = ({ stream, type, position }: RecordedEvent): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${stream} before ${type} at ${position}: it is damaged, because a life begins with a write. ${WHEN_DAMAGED}`,
  );

/** The error for a life that is not erased and of which the log has lost some events. */
export const eventsLost = ({ stream, type, position }: RecordedEvent): UnreadableEvent =>
  new UnreadableEvent(
    `the event log lacks events of ${stream} before ${type} at ${position}: it is damaged. ${WHEN_DAMAGED}`,
  );

/** The error for a stream that was written but that the log reads as empty, because its last event is lost. */
export const endLost = (stream: string): UnreadableEvent =>
  new UnreadableEvent(`the event log has lost the last event of ${stream}: it is damaged. ${WHEN_DAMAGED}`);

/** @throws {UnreadableEvent} if the log has lost the stream's last event */
export async function assertEndNotLost(log: Pick<EventLog, 'hasLostEnd'>, stream: string): Promise<void> {
  if ((await log.hasLostEnd?.(stream)) === true) throw endLost(stream);
}

type LifeEnds = Pick<EventLog, 'readLast' | 'hasLostEnd'>;

export async function isWritten(log: LifeEnds, prefix: string, life: number): Promise<boolean> {
  const stream = itemStream(prefix, life);
  return (await log.readLast(stream)) !== undefined || (await log.hasLostEnd?.(stream)) === true;
}

/**
 * The number of an item's last life. The numbers have no gaps, so a search in doubling steps, from a life that is known
 * to have been written, finds it in O(log lives) reads.
 */
export async function lastLife(log: LifeEnds, prefix: string, known: number): Promise<number> {
  let low = known;
  let step = 1;
  for (; await isWritten(log, prefix, low + step); step *= 2) low += step;
  let high = low + step;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await isWritten(log, prefix, middle)) low = middle;
    else high = middle;
  }
  return low;
}
