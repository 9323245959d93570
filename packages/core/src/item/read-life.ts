import type { EventLog } from '../log/event-log.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import { Pace } from '../turn.ts';
import { lastBy } from '../log/last-by.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '../upcast.ts';
import { isItemWrite } from './events.ts';
import { itemStream } from './stream-name.ts';

/** Events of a life that are read at once. */
const PAGE_EVENTS = 256;
/** More events than are left of a life whose writes are truncated. */
const FACTS_LEFT = 8;

/**
 * Goes through all events of a life that there are, oldest first and without their bodies, a page at a time: it may have
 * been written a million times.
 *
 * Of a life of which the log has lost events it goes through what is left.
 *
 * @param begin makes what takes the pages; called anew where the life is truncated in the middle of it
 * @returns what took all of them; undefined for a life that never was
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
    // What has come to nothing yet, and no purge has come since, is no truncation: more will never be there.
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
      // Of a short life that was truncated the first page is all that is left; of any other it is gone in the middle of it.
      if (!goesOn && (fromRevision > 0 || revision >= PAGE_EVENTS)) return fromRevision > revision;
      await take(reading, events);
      if (events.length < PAGE_EVENTS) return (events.at(-1)?.revision ?? -1) >= revision;
      await pace.step();
    }
  }
}

/** The write of a revision, without its body; undefined where that is no write, or is not there. */
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
 * @returns undefined where all of them came later; 'truncated' where the life was, in the middle of it
 */
export const writeBy = (
  log: Pick<EventLog, 'readStream'>,
  stream: string,
  upToRevision: number,
  atMs: number,
): Promise<RecordedEvent | 'truncated' | undefined> =>
  lastBy(log, stream, upToRevision, ({ occurredAtMs }) => occurredAtMs <= atMs);

/**
 * The end of a life's stream as it is by now: the last write, if that is left, and whatever is on record after it;
 * oldest first and without bodies. Empty for a life that never was.
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
    // A life without a write and without a purge was truncated while it was read, and ends with its purge now.
    if (last === undefined || last.type === 'ItemPurged' || last.position === known) return tail.reverse();
    known = last.position;
  }
}

/** What is to be told of a life that is not erased, and whose writes the log has lost. */
export const writesLost = ({ stream, type, position }: RecordedEvent): UnreadableEvent =>
  new UnreadableEvent(
    `the event log has nothing of ${stream} before ${type} at ${position}: it is damaged, for a life begins with a write. ${WHEN_DAMAGED}`,
  );

/** What is to be told of a life that is not erased, and of which the log has lost some events. */
export const eventsLost = ({ stream, type, position }: RecordedEvent): UnreadableEvent =>
  new UnreadableEvent(
    `the event log lacks events of ${stream} before ${type} at ${position}: it is damaged. ${WHEN_DAMAGED}`,
  );

/** What is to be told of a stream that was written, and of which the log finds nothing because its last event is lost. */
export const endLost = (stream: string): UnreadableEvent =>
  new UnreadableEvent(`the event log has lost the last event of ${stream}: it is damaged. ${WHEN_DAMAGED}`);

/** @throws {UnreadableEvent} for such a stream */
export async function assertEndNotLost(log: Pick<EventLog, 'hasLostEnd'>, stream: string): Promise<void> {
  if ((await log.hasLostEnd?.(stream)) === true) throw endLost(stream);
}

type LifeEnds = Pick<EventLog, 'readLast' | 'hasLostEnd'>;

export async function isWritten(log: LifeEnds, prefix: string, life: number): Promise<boolean> {
  const stream = itemStream(prefix, life);
  return (await log.readLast(stream)) !== undefined || (await log.hasLostEnd?.(stream)) === true;
}

/**
 * The number of an item's last life. Lives are without gaps, so doubling steps from a life that is known to have been
 * written find it in O(log lives) looks.
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
