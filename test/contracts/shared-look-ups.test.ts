import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NewEvent } from '@epitaph/core/log/recorded-event.ts';
import { turn } from '@epitaph/core/turn.ts';
import { openForReading, UnreadableFile } from '@epitaph/storage/sqlite/database.ts';
import type { GroupListener } from '@epitaph/storage/sqlite/writer.ts';
import { zeroTable } from '../support/damage.ts';
import { TestFolder } from './sqlite-folder.ts';

let folder: TestFolder;
beforeEach(() => {
  folder = new TestFolder();
});
afterEach(() => folder.dispose());

function event(at: number): NewEvent {
  const correlationId = crypto.randomUUID();
  return {
    id: crypto.randomUUID(),
    type: 'Tested',
    version: 1,
    data: { at },
    occurredAtMs: 1_700_000_000_000 + at,
    actor: 'test',
    correlationId,
    causationId: correlationId,
  };
}

describe('the transaction shared by the look-ups of one turn', () => {
  let announce: GroupListener;
  let database: DatabaseSync;
  let lookUp: () => unknown;
  beforeEach(() => {
    const file = folder.file('any.db');
    const made = new DatabaseSync(file);
    made.exec('PRAGMA journal_mode = WAL; CREATE TABLE numbers (number INTEGER PRIMARY KEY)');
    made.close();
    database = openForReading(file, { writer: { onGroup: (listener) => (announce = listener) } });
    const statement = database.prepare('SELECT number FROM numbers WHERE number = ?');
    lookUp = () => statement.get(1);
  });
  afterEach(() => {
    if (database.isOpen) database.close();
  });

  it('begins with the second look-up and ends with the turn', async () => {
    lookUp();
    expect(database.isTransaction).toBe(false);
    lookUp();
    expect(database.isTransaction).toBe(true);
    await turn();
    await turn();
    expect(database.isTransaction).toBe(false);
    lookUp();
    expect(database.isTransaction).toBe(false);
  });

  it('ends before the writer begins, and before anybody is told the result of the write', () => {
    for (const needsReadersGone of [false, true, false]) {
      lookUp();
      lookUp();
      announce(needsReadersGone);
      expect(database.isTransaction).toBe(false);
    }
  });

  it('does not begin while the writer waits for readers to finish', () => {
    announce(true);
    for (let count = 0; count < 100; count++) lookUp();
    expect(database.isTransaction).toBe(false);
    announce(false);
    lookUp();
    lookUp();
    expect(database.isTransaction).toBe(true);
  });

  it('does not last as long as a turn that never ends', () => {
    const states = Array.from({ length: 1_000 }, () => {
      lookUp();
      return database.isTransaction;
    });
    let longest = 0;
    for (let run = 0, index = 0; index < states.length; index++)
      longest = Math.max(longest, (run = states[index] ? run + 1 : 0));
    expect(longest).toBeGreaterThan(1);
    expect(longest).toBeLessThanOrEqual(64);
  });

  it('ends if a look-up meets damage, and only that look-up fails', async () => {
    const file = folder.file('damaged.db');
    const made = new DatabaseSync(file);
    made.exec('PRAGMA journal_mode = WAL; CREATE TABLE sound (number); CREATE TABLE damaged (number)');
    made.close();
    zeroTable(file, 'damaged');
    database.close();
    database = openForReading(file, { writer: { onGroup: (listener) => (announce = listener) } });
    const [sound, damaged] = ['sound', 'damaged'].map((table) => database.prepare(`SELECT number FROM ${table}`));
    for (const isAnnounced of [true, false]) {
      sound!.get();
      expect(() => damaged!.get()).toThrow(UnreadableFile);
      if (isAnnounced) announce(false);
      await turn();
      await turn();
      expect(database.isTransaction).toBe(false);
    }
    sound!.get();
    sound!.get();
    expect(database.isTransaction).toBe(true);
  });

  it('is ended by closing, after which the end of the turn does nothing', async () => {
    lookUp();
    lookUp();
    database.close();
    await turn();
    await turn();
  });
});

describe('an acknowledged write', () => {
  it('of an event is read in a turn that had made look-ups before', async () => {
    const { log } = await folder.open();
    const append = (stream: string) =>
      log.append([{ stream, expectedRevision: 'no-stream', events: [event(1)] }]).then((result) => {
        if (result.kind !== 'appended') throw new Error(result.kind);
        return result.position;
      });
    await append('first');
    // Before the writer's immediate, in the same round.
    setImmediate(() => [log.readAt(1), log.readAt(1), log.readBefore({ stream: 'first', revision: 0, position: 1 })]);
    const position = await append('second');
    expect(log.readAt(position)).toMatchObject({ stream: 'second' });
  });

  it('of a key’s destruction is seen in a turn that had made look-ups before', async () => {
    const storage = await folder.open();
    const { vault } = storage;
    const [one, two] = ['item-rid.one.0', 'item-rid.two.0'] as const;
    const keyIds = await Promise.all(
      [one, two].map(async (stream) => {
        const { key, stored } = vault.createKey(stream);
        await storage.log.append([{ stream, expectedRevision: 'no-stream', events: [event(1)] }], { after: [stored] });
        return key.keyId;
      }),
    );
    const lookUps = () => {
      storage.vault.forgetUnwrapped();
      return [vault.findKey(keyIds[0]!, one), vault.findKey(keyIds[1]!, two), vault.findKey(keyIds[0]!, one)];
    };
    // The job for the writer comes some steps after the request.
    const looking = setInterval(lookUps, 0);
    setImmediate(lookUps);
    const [outcome] = await vault.destroyKeys([
      {
        keyId: keyIds[0]!,
        stream: one,
        lastWriteTs: 1_700_000_000,
        lastEventAtMs: 1_700_000_000_000,
        nowMs: 1_700_000_000_000,
      },
    ]);
    expect(outcome).toMatchObject({ kind: 'destroyed' });
    clearInterval(looking);
    expect(lookUps()).toMatchObject([{ status: 'destroyed' }, { status: 'there' }, { status: 'destroyed' }]);
  });
});
