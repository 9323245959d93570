import type { DatabaseSync } from 'node:sqlite';
import { parsedJson } from '@epitaph/core/parsed-json.ts';

/** A life by one of its writes, and how far into the log that is. */
export interface WrittenLife {
  /** Undefined where the event is damaged. */
  readonly keyId: number | undefined;
  readonly stream: string;
  readonly position: number;
  readonly head: number;
}

/** What an event of the log says of a key: that a life is written with it, or that it was destroyed. */
interface LoggedKey extends WrittenLife {
  readonly isDestroyed: boolean;
}

/** Every life that the log in a file has a body of after a position; once for each body. */
export function* livesIn(log: DatabaseSync, after = 0): Generator<WrittenLife> {
  for (const key of keysIn(log, { after })) if (!key.isDestroyed) yield key;
}

/** The keys of which the last events of the log in a file tell, so many at most. */
export function lastKeysIn(log: DatabaseSync, events: number): Generator<LoggedKey> {
  return keysIn(log, { after: headOf(log) - events, type: numberOf(log, 'ItemPurged') });
}

/** @param type the word for what says that a key was destroyed; by default only what has a body is looked at */
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
    // What a key is told by is left to those who look: one passed over in silence would be taken for one that nobody uses.
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
