import type { DatabaseSync } from 'node:sqlite';

/** A life by one of its writes, and how far into the log that is. */
export interface WrittenLife {
  readonly keyId: number;
  readonly stream: string;
  readonly position: number;
  readonly head: number;
}

/** Every life that the log in a file has a body of after a position; once for each body. */
export function* livesIn(log: DatabaseSync, after = 0): Generator<WrittenLife> {
  const { head } = log.prepare('SELECT coalesce(max(position), 0) AS head FROM events').get() as { head: number };
  const words = new Map<number, string[]>();
  const word = log.prepare('SELECT text FROM words WHERE number = ?');
  const rows = log.prepare(
    'SELECT position, stream, shape, data FROM events WHERE position > ? AND body IS NOT NULL ORDER BY position',
  );
  for (const row of rows.iterate(after) as Iterable<{
    position: number;
    stream: string;
    shape: number;
    data: string;
  }>) {
    let names = words.get(row.shape);
    if (names === undefined) {
      names = JSON.parse((word.get(row.shape) as { text: string }).text) as string[];
      words.set(row.shape, names);
    }
    const keyId = (JSON.parse(row.data) as unknown[])[names.indexOf('key')];
    if (typeof keyId === 'number') yield { keyId, stream: row.stream, position: row.position, head };
  }
}
