import type { DatabaseSync } from 'node:sqlite';
import { parsedJson } from '@epitaph/core/parsed-json.ts';

/** A life, found by one of its writes; the position of the write, and the log's head. */
export interface WrittenLife {
  /** Undefined if the event is damaged. */
  readonly keyId: number | undefined;
  readonly stream: string;
  readonly position: number;
  readonly head: number;
}

/** A key in an event of the log: the event is a write of its life, or records that it was destroyed. */
interface LoggedKey extends WrittenLife {
  readonly isDestroyed: boolean;
}

/** Every life that has a body in the log after a position, once for each body. */
export function* livesIn(log: DatabaseSync, after = 0): Generator<WrittenLife> {
  for (const key of keysIn(log, { after })) if (!key.isDestroyed) yield key;
}

/** The keys in the last events of the log, which are at most the given number. */
export function lastKeysIn(log: DatabaseSync, events: number): Generator<LoggedKey> {
  return keysIn(log, { after: headOf(log) - events, type: numberOf(log, 'ItemPurged') });
}

/** @param type the number of the type of events that record the destruction of a key. By default only events with a body are read */
function* keysIn(
  log: DatabaseSync,
  { after, type = -1 }: { after: number; type?: number | undefined },
): Generator<LoggedKey> {
  const head = headOf(log);
  const words = new Map<number, unknown>();
  const word = log.prepare('SELECT text FROM words WHERE number = ?');
  const rows = log.prepare(
    `SELECT position, stream, shape, data, type = ? AS destroyed FROM events
     WHERE position > ? AND (body IS NOT NULL OR type = ?) ORDER BY position`,
  );
  for (const row of rows.iterate(type, after, type) as Iterable<{
    position: number;
    stream: string;
    shape: number;
    data: string;
    destroyed: number;
  }>) {
    if (!words.has(row.shape)) {
      const stored = word.get(row.shape) as { text: string } | undefined;
      words.set(row.shape, stored && parsedJson(stored.text));
    }
    const { stream, position, destroyed } = row;
    const [names, values] = [words.get(row.shape), parsedJson(row.data)];
    const keyId: unknown = Array.isArray(names) && Array.isArray(values) ? values[names.indexOf('key')] : undefined;
    // A damaged event is yielded too, without a key id. If it were skipped, its key would be taken for one that nobody uses.
    yield {
      keyId: typeof keyId === 'number' ? keyId : undefined,
      stream,
      position,
      head,
      isDestroyed: destroyed === 1,
    };
  }
}

const headOf = (log: DatabaseSync): number =>
  (log.prepare('SELECT coalesce(max(position), 0) AS head FROM events').get() as { head: number }).head;

const numberOf = (log: DatabaseSync, word: string): number | undefined =>
  (log.prepare('SELECT number FROM words WHERE text = ?').get(word) as { number: number } | undefined)?.number;
