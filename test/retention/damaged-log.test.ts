import { randomUUID } from 'node:crypto';
import { copyFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import { copyAsKilled, openEmbedded } from '../simulation/embedded.ts';
import { CALLER, DamagedFolder, PK } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const IDS = ['first', 'damaged', 'last'];
/** The containers. The first three are named for how their items end. */
const NAMES = ['overdue', 'deleted', 'left', 'next'];

const cutShort = (log: DatabaseSync, stream: string): unknown =>
  log.prepare('UPDATE events SET data = substr(data, 1, 20) WHERE stream = ? AND revision = 0').run(stream);

/** The streams of all items, in order of creation. */
const itemStreams = (log: DatabaseSync): string[] =>
  log
    .prepare("SELECT DISTINCT stream FROM events WHERE stream LIKE 'item-%' ORDER BY position")
    .all()
    .map(({ stream }) => stream as string);

/**
 * A store with the same three items in each of four containers. All items are due, except that those of one container have been deleted,
 * and those of another have been deleted with their partition key.
 *
 * @param damage changes the log's database; it is called with the stream of the middle item of a container
 * @param whenStopped damages only the container of this name, while the store is stopped, so that the store has nothing of it in memory
 */
async function damaged(damage: (log: DatabaseSync, stream: string) => void, whenStopped?: string) {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  for (const name of NAMES) {
    const { resource: container } = await store.createContainer(CALLER, 'd', name, DEFINITION, 100);
    for (const id of IDS) {
      const item = itemToWrite({ id, pk: 'p', ...(name === 'deleted' || name === 'left' ? { ttl: -1 } : {}) });
      await store.writeItem(CALLER, container, 'create', item);
    }
    if (name === 'left') await store.deletePartitionKey(CALLER, container, PK);
    if (name !== 'deleted') continue;
    for (const id of IDS) await store.deleteItem(CALLER, container, id, PK);
  }
  if (whenStopped !== undefined) await store.close();
  const log = new DatabaseSync(join(folder.path, 'log.db'));
  const streams = itemStreams(log);
  for (const [index, name] of NAMES.entries()) {
    const isToBe = whenStopped === undefined ? name !== 'next' : name === whenStopped;
    if (isToBe) damage(log, streams[index * IDS.length + 1]!);
  }
  if (whenStopped !== undefined) store = await folder.open();
  await store.advanceClock(200_000);
  const stateOf = async (name: string, id: string) => {
    const explained = await store.explain(store.container('d', name), id, PK).catch((error: Error) => error);
    return explained instanceof Error ? explained.name : explained.state;
  };
  const states = () => Promise.all(NAMES.map((name) => Promise.all(IDS.map((id) => stateOf(name, id)))));
  const close = async () => {
    log.close();
    await store.close();
  };
  return { store, states, close };
}

it.each([
  { what: 'is cut short', set: 'data = substr(data, 1, 20)', says: 'ItemUpserted at' },
  { what: 'was written by a newer version', set: 'version = 99', says: 'written by a newer Epitaph' },
])('a purge reports a life with an event that $what, and purges all others', async ({ set, says }) => {
  const { store, states, close } = await damaged((log, stream) =>
    log.prepare(`UPDATE events SET ${set} WHERE stream = ? AND revision = 0`).run(stream),
  );
  try {
    await expect(store.runPurge()).rejects.toThrow(says);
    expect(await states()).toEqual([
      ['purged', 'UnreadableEvent', 'purged'],
      ['purged', 'UnreadableEvent', 'purged'],
      ['purged', 'UnreadableEvent', 'purged'],
      ['purged', 'purged', 'purged'],
    ]);
    const { problems } = await store.fsck();
    expect(problems.map(({ code }) => code)).toEqual(Array.from({ length: 3 }, () => 'unreadable-event'));
    for (const { message } of problems) expect(message).toContain(says);
  } finally {
    await close();
  }
});

it.each([
  { what: 'overdue', says: 'has nothing', state: 'UnreadableEvent' },
  { what: 'deleted', says: 'has no writes', state: 'UnreadableEvent' },
  { what: 'left', says: 'has nothing', state: 'UnreadableEvent' },
])(
  'a purge reports a life ($what) whose writes the log has lost, purges all others, and does not begin run after run for it',
  async ({ what, says, state }) => {
    const loseFirst = (db: DatabaseSync, stream: string) =>
      db.prepare('DELETE FROM events WHERE stream = ? AND revision = 0').run(stream);
    const { store, states, close } = await damaged(loseFirst, what);
    try {
      for (let pass = 0; pass < 3; pass++) {
        await expect(store.runPurge()).rejects.toThrow(`the event log ${says} of item-`);
      }
      expect(await states()).toEqual(NAMES.map((name) => ['purged', name === what ? state : 'purged', 'purged']));
      expect((await store.purgeRuns(0, 10)).runs.length).toBe(1);
      const { problems } = await store.fsck();
      expect(new Set(problems.map(({ code }) => code))).toEqual(new Set(['writes-missing']));
    } finally {
      await close();
    }
  },
);

it('explain and fsck report an item of which the log has lost every event, instead of telling that it never existed; also after its erasure', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  for (const id of ['there', 'erased', 'kept']) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  }
  for (const id of ['erased', 'kept']) await store.deleteItem(CALLER, container, id, PK);
  await store.runPurge();
  await store.close();
  const [, erased] = folder.change('log.db', (log) => {
    const streams = itemStreams(log).slice(0, 2);
    for (const stream of streams) log.prepare('DELETE FROM events WHERE stream = ?').run(stream);
    return streams;
  });
  store = await folder.open();
  try {
    const isLost = /has no event left in the log|has lost the last event of item-/;
    for (const id of ['there', 'erased']) {
      for (const tell of [() => store.explain(container, id, PK), () => store.history(container, id, PK)]) {
        await expect(tell()).rejects.toThrow(isLost);
      }
    }
    for (const operation of [
      () => store.deleteItem(CALLER, container, 'there', PK),
      () => store.writeItem(CALLER, container, 'replace', itemToWrite({ id: 'there', pk: 'p' })),
      () => store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'there', pk: 'p' })),
      () => store.writeItem(CALLER, container, 'upsert', itemToWrite({ id: 'there', pk: 'p' })),
      () => store.batchItems(CALLER, container, [{ kind: 'delete', id: 'there', partitionKey: PK }]),
      () => store.history(container, 'there', PK),
      () => store.recoverItem(CALLER, container, 'there', PK, { reason: 'a test' }),
      () => store.eraseItem(CALLER, container, 'there', PK, { reason: 'a test', requestedBy: 'ann' }),
    ]) {
      await expect(operation()).rejects.toThrow(isLost);
    }
    // If the item could be created again, its container could no longer be read, nor the store be started.
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'other', pk: 'p' }));
    const { problems } = await store.fsck();
    expect(problems.map(({ code, subject }) => [code, subject])).toEqual([
      ['writes-missing', container.rid],
      ['writes-missing', erased],
    ]);
  } finally {
    await store.close();
  }
});

it('if the log has lost the last event of an erased life, the item’s history and its erasure are refused', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const create = () => store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  for (let life = 0; life < 2; life++) {
    await create();
    await store.deleteItem(CALLER, container, 'a', PK);
    await store.runPurge();
  }
  await create();
  await store.close();
  folder.change('log.db', (log) =>
    log.prepare('DELETE FROM events WHERE stream = ? AND revision = 2').run(itemStreams(log)[0]!),
  );
  store = await folder.open();
  try {
    const lost = 'the event log has lost the last event of item-';
    expect((await store.explain(container, 'a', PK)).state).toBe('live');
    await expect(store.history(container, 'a', PK)).rejects.toThrow(lost);
    await expect(
      store.eraseItem(CALLER, container, 'a', PK, { reason: 'asked for', requestedBy: 'ann' }),
    ).rejects.toThrow(lost);
    expect(JSON.parse((await store.readItem(container, 'a', PK)).json)).toMatchObject({ id: 'a' });
  } finally {
    await store.close();
  }
});

describe.each([
  { what: 'as it is', definition: DEFINITION },
  { what: 'by pseudonyms', definition: { ...DEFINITION, epitaph: { pseudonymousIds: true } } },
])('an existing item (ids kept $what) is not taken for one that has left', ({ definition }) => {
  it.each([
    { lost: 2, says: /has no event left in the log|has lost the last event of .*\.2/ },
    { lost: 1, says: /^the event log has lost the last event of .*\.1/ },
    { lost: 0, says: /^the event log has (?:lost the last event|nothing) of .*\.0/ },
  ])('when the log has lost every event of its life $lost', async ({ lost, says }) => {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, null);
    let atMs = 0;
    for (let life = 0; life < 3; life += 1) {
      if (life > 0) await store.deleteItem(CALLER, container, 'there', PK);
      if (life === 2) atMs = store.nowMs();
      await store.advanceClock(1_000);
      await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'there', pk: 'p' }));
    }
    await store.writeItem(CALLER, container, 'upsert', itemToWrite({ id: 'other', pk: 'p' }));
    await store.close();
    folder.change('log.db', (log) => {
      const [{ stream: there }] = log.prepare("SELECT stream FROM events WHERE stream LIKE 'item-%.2'").all() as [
        { stream: string },
      ];
      log.prepare('DELETE FROM events WHERE stream = ?').run(there.replace(/2$/, String(lost)));
    });
    store = await folder.open();
    try {
      await expect(store.history(container, 'there', PK)).rejects.toThrow(says);
      await expect(
        store.eraseItem(CALLER, container, 'there', PK, { reason: 'a test', requestedBy: 'Ann' }),
      ).rejects.toThrow(says);
      const remove = { kind: 'delete', id: 'there', partitionKey: PK } as const;
      const batch = () =>
        store.batchItems(CALLER, container, [{ kind: 'read', id: 'other', partitionKey: PK }, remove]);
      if (lost === 2) {
        await expect(store.explain(container, 'there', PK)).rejects.toThrow(says);
        await expect(batch()).rejects.toThrow(says);
        await expect(store.deleteItem(CALLER, container, 'there', PK)).rejects.toThrow(says);
      } else {
        expect((await store.explain(container, 'there', PK)).state).toBe('live');
        await expect(store.explain(container, 'there', PK, atMs)).rejects.toThrow(says);
        if (lost === 1) expect(await batch()).toMatchObject({ kind: 'done' });
        else await expect(batch()).rejects.toThrow(says);
      }
    } finally {
      await store.close();
    }
  });
});

it('the erasure of an item that has left is refused if the log lacks one of its earlier lives', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  for (let life = 0; life < 3; life += 1) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await store.deleteItem(CALLER, container, 'a', PK);
  }
  await store.close();
  folder.change('log.db', (log) => log.exec("DELETE FROM events WHERE stream LIKE 'item-%.1'"));
  store = await folder.open();
  try {
    const erased = store.eraseItem(CALLER, container, 'a', PK, { reason: 'a test', requestedBy: 'Ann' });
    await expect(erased).rejects.toThrow(/^the event log has (?:lost the last event|nothing) of .*\.1/);
  } finally {
    await store.close();
  }
});

it.each([0, 1])(
  'an item whose life %i the log has lost can neither be erased in part nor be created again',
  async (lost) => {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    await store.setRecoveryWindow(CALLER, container, 1_000_000, 'a test');
    const create = (n: number) => store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p', n }));
    for (const n of [0, 1, 2]) {
      await create(n);
      if (n < 2) await store.deleteItem(CALLER, container, 'a', PK);
    }
    await store.close();
    folder.change('log.db', (log) => {
      for (const [table, column] of [
        ['events', 'stream'],
        ['streams', 'name'],
      ])
        log.exec(`DELETE FROM ${table} WHERE ${column} LIKE 'item-%.${lost}'`);
    });
    store = await folder.open();
    try {
      const erase = () => store.eraseItem(CALLER, container, 'a', PK, { reason: 'a test', requestedBy: 'ann' });
      const isLost = new RegExp(`^the event log has nothing of item-[^ ]+[.]${lost}, but has later lives`);
      await expect(erase()).rejects.toThrow(isLost);
      expect((await store.explain(container, 'a', PK)).state).toBe('live');
      const isRefused = lost === 0 ? isLost : /exists already/;
      await expect(create(3)).rejects.toThrow(isRefused);
      // The item is unchanged, and no record says otherwise.
      const { json } = await store.readItem(container, 'a', PK);
      expect(JSON.parse(json)).toMatchObject({ n: 2 });
      const onRecord = (await store.containerHistory(container)).map(({ type }) => type);
      expect(onRecord).not.toContain('ErasureCompleted');
      await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'other', pk: 'p' }));
      expect((await store.fsck()).problems.map(({ code }) => code)).toContain('gap-in-lives');
    } finally {
      await store.close();
    }
  },
);

function loseLives(log: DatabaseSync, lives: readonly number[]): void {
  for (const life of lives) {
    log.exec(`DELETE FROM events WHERE stream LIKE 'item-%.${life}'`);
    log.exec(`DELETE FROM streams WHERE name LIKE 'item-%.${life}'`);
  }
}

/** A store with an ended item. Some of its lives have been removed from the log completely. */
async function leftWithout(
  lost: readonly number[],
  { lives, isPurged = false }: { lives: number; isPurged?: boolean },
) {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const firstLeftMs = store.nowMs() + 1_500;
  for (let life = 0; life < lives; life += 1) {
    await store.advanceClock(1_000);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await store.deleteItem(CALLER, container, 'a', PK);
  }
  if (isPurged) await store.runPurge();
  await store.createDatabase(CALLER, 'last');
  await store.close();
  folder.change('log.db', (log) => loseLives(log, lost));
  store = await folder.open();
  const reopened = async () => {
    await store.close();
    return folder.open();
  };
  return { store, container, folder, firstLeftMs, reopened };
}

it.each([
  { lives: 1, lost: [0] },
  { lives: 2, lost: [0] },
  { lives: 3, lost: [1] },
  { lives: 3, lost: [0, 1] },
])(
  'an ended item with $lives lives, of which the log has lost $lost, cannot be created again, and other items can be written',
  async ({ lives, lost }) => {
    const { store, container, firstLeftMs, reopened } = await leftWithout(lost, { lives });
    const remove = () => store.deleteItem(CALLER, container, 'a', PK);
    const write = (id: string, operation: 'create' | 'upsert') =>
      store.writeItem(CALLER, container, operation, itemToWrite({ id, pk: 'p' }));
    const isLost = /^the event log has nothing of item-|^item-.* has no event left in the log/;
    const reason = 'a test';
    for (const operation of [
      () => write('a', 'create'),
      () => write('a', 'upsert'),
      remove,
      () => store.recoverItem(CALLER, container, 'a', PK, { reason }),
      () => store.heldContent(CALLER, container, 'a', PK, { reason }),
      () => store.explain(container, 'a', PK, firstLeftMs),
    ]) {
      await expect(operation()).rejects.toThrow(isLost);
    }
    if (lives === 1) await expect(store.explain(container, 'a', PK)).rejects.toThrow(isLost);
    await write('other', 'create');
    const again = await reopened();
    try {
      expect(JSON.parse((await again.readItem(container, 'other', PK)).json)).toMatchObject({ id: 'other' });
    } finally {
      await again.close();
    }
  },
);

it('an item that was created again in place of a life that the log has lost never has two lives at once', async () => {
  const { store, container, reopened } = await leftWithout([1], { lives: 3, isPurged: true });
  const create = () => store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await expect(store.explain(container, 'a', PK)).rejects.toThrow(/^the event log has nothing of item-[^ ]+[.]1/);
  // After the purge only the log knows that there was a third life.
  await create();
  const isLost = /^the event log has no end of item-[^ ]+[.]1, but has later lives/;
  for (const operation of [create, () => store.deleteItem(CALLER, container, 'a', PK)]) {
    await expect(operation()).rejects.toThrow(isLost);
  }
  await expect(store.history(container, 'a', PK)).rejects.toThrow(isLost);
  const again = await reopened();
  await again.close();
});

it('an interrupted erasure is not completed if the log has lost all of the item since', async () => {
  const { store, container, folder } = await leftWithout([1], { lives: 3 });
  const erased = store.eraseItem(CALLER, container, 'a', PK, { reason: 'a test', requestedBy: 'ann' });
  await expect(erased).rejects.toThrow('but has later lives of the item');
  await store.close();
  folder.change('log.db', (log) => loseLives(log, [0, 2]));
  const faults: unknown[] = [];
  const again = await openEmbeddedStore({
    folder: folder.path,
    clock: 'manual',
    durable: false,
    automaticPurge: false,
    onFault: (error) => faults.push(error),
  });
  try {
    await vi.waitFor(() => expect(String(faults[0])).toContain('the event log has nothing of item-'));
    expect((await again.containerHistory(container)).map(({ type }) => type)).not.toContain('ErasureCompleted');
  } finally {
    await again.close();
  }
});

it.each([
  { what: 'lost how an erased life ended', damage: "DELETE FROM events WHERE stream LIKE 'item-%.0' AND revision = 2" },
  {
    what: 'cut its last write short',
    damage: "UPDATE events SET data = substr(data, 1, 9) WHERE stream LIKE 'item-%.1'",
  },
  { what: 'lost its last write', damage: "DELETE FROM events WHERE stream LIKE 'item-%.1'" },
  { what: 'lost what its last write held', damage: "UPDATE events SET body = NULL WHERE stream LIKE 'item-%.1'" },
])('a hold can be placed on an item of which the log has $what, and keeps it', async ({ damage }) => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const create = () => store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await create();
  await store.deleteItem(CALLER, container, 'a', PK);
  await store.runPurge();
  await create();
  await store.createDatabase(CALLER, 'last');
  await store.close();
  folder.change('log.db', (log) => log.exec(damage));
  store = await folder.open();
  try {
    const items = { kind: 'items', items: [{ id: 'a', partitionKey: PK }] } as const;
    const query = { kind: 'query', sql: 'SELECT * FROM c', parameters: [] } as const;
    for (const scope of [items, query]) {
      const placed = await store.placeHold(CALLER, container, scope.kind, { scope, reason: 'case 7' });
      expect(placed).toMatchObject({ placed: true });
    }
  } finally {
    await store.close();
  }
  expect(folder.change('vault.db', (vault) => vault.prepare('SELECT * FROM holds').all())).toHaveLength(2);
});

it.each([0, 2])(
  'explaining an item at a past instant fails, instead of searching for ever, if the log has lost its write of revision %i',
  async (lost) => {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    const write = () => store.writeItem(CALLER, container, 'upsert', itemToWrite({ id: 'a', pk: 'p' }));
    for (let n = 0; n < 3; n++) await write();
    await store.advanceClock(1_000);
    const atMs = store.nowMs();
    await store.advanceClock(1_000);
    for (let n = 0; n < 3; n++) await write();
    await store.close();
    folder.change('log.db', (log) => log.exec(`DELETE FROM events WHERE stream LIKE 'item-%' AND revision = ${lost}`));
    store = await folder.open();
    try {
      const lacks = /^the event log lacks events of item-/;
      await expect(store.explain(container, 'a', PK, atMs)).rejects.toThrow(lacks);
      const content = store.contentAt(container, 'a', PK, { atMs });
      // The write in effect at that instant is the one of revision 2.
      if (lost === 2) await expect(content).rejects.toThrow(lacks);
      else await expect(content).resolves.toMatchObject({ revision: 2 });
      expect((await store.explain(container, 'a', PK)).state).toBe('live');
      const { problems } = await store.fsck();
      expect(problems.map(({ code }) => code)).toContain('writes-missing');
    } finally {
      await store.close();
    }
  },
);

it('a continued run goes on past a life that is within a recovery window and has an event that is cut short', async () => {
  const { store, states, close } = await damaged(cutShort);
  try {
    await store.setRecoveryWindow(CALLER, store.container('d', 'deleted'), 1_000_000, 'a test');
    for (let pass = 0; pass < 3; pass++) await expect(store.runPurge()).rejects.toThrow('ItemUpserted at');
    const later = store.container('d', 'next');
    await store.writeItem(CALLER, later, 'create', itemToWrite({ id: 'later', pk: 'p' }));
    await store.advanceClock(200_000);
    await expect(store.runPurge()).rejects.toThrow('ItemUpserted at');
    expect((await store.explain(later, 'later', PK)).state).toBe('purged');
    expect((await states())[1]).toEqual(['deleted', 'UnreadableEvent', 'deleted']);
  } finally {
    await close();
  }
});

it.each([
  {
    what: 'can no more be read',
    damage: 'UPDATE events SET data = substr(data, 1, 20) WHERE revision = 0 AND stream = ?',
  },
  { what: 'is lost', damage: 'DELETE FROM events WHERE revision = 0 AND stream = ?' },
  {
    what: 'at the end is lost',
    damage: 'DELETE FROM events WHERE revision = 1 AND stream = ?',
    fault: 'between the read models and the event log',
  },
])(
  'a purge carries out a delete by partition key in a container of which an event $what, or reports it, and purges all other containers',
  async ({ damage, fault }) => {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const make = (id: string) => itemToWrite({ id, pk: 'p' });
    const [damagedOne, next] = [
      (await store.createContainer(CALLER, 'd', 'damaged', DEFINITION, 100)).resource,
      (await store.createContainer(CALLER, 'd', 'next', DEFINITION, 100)).resource,
    ];
    for (const container of [damagedOne, next]) await store.writeItem(CALLER, container, 'create', make('a'));
    await store.deletePartitionKey(CALLER, damagedOne, PK);
    await store.createDatabase(CALLER, 'last');
    await store.close();
    const stream = `container-${damagedOne.rid}`;
    expect(folder.change('log.db', (log) => log.prepare(damage).run(stream)).changes).toBe(1);
    store = await folder.open();
    try {
      for (const id of ['later', 'after it']) {
        await store.advanceClock(200_000);
        for (let pass = 0; pass < 2; pass++) {
          if (fault === undefined) await store.runPurge();
          else await expect(store.runPurge()).rejects.toThrow(fault);
        }
        if (fault !== undefined) expect((await store.purgeRuns(0, 10)).runs.length).toBe(1);
        await store.writeItem(CALLER, next, 'create', make(id));
      }
      if (fault === undefined) expect((await store.explain(damagedOne, 'a', PK)).state).toBe('purged');
      const states = ['a', 'later', 'after it'].map(async (id) => (await store.explain(next, id, PK)).state);
      expect(await Promise.all(states)).toEqual(['purged', 'purged', 'live']);
    } finally {
      await store.close();
    }
  },
);

/**
 * A container whose items were written one after the other. While the store was stopped, the first ones were made unreadable in the log.
 */
async function damagedFirst(total: number, damagedOnes: number, ttl: number) {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  await store.createContainer(CALLER, 'd', 'c', DEFINITION, ttl);
  const container = () => store.container('d', 'c');
  const write = (id: string) => store.writeItem(CALLER, container(), 'create', itemToWrite({ id, pk: 'p' }));
  await Promise.all(Array.from({ length: damagedOnes }, (_, index) => write(`damaged-${index}`)));
  await store.advanceClock(2_000);
  for (let index = damagedOnes; index < total; index++) await write(`whole-${index}`);
  await store.close();
  folder.change('log.db', (log) => {
    for (const stream of itemStreams(log).slice(0, damagedOnes)) cutShort(log, stream);
  });
  store = await folder.open();
  const stateOf = async (id: string) => (await store.explain(container(), id, PK)).state;
  return { store, container, stateOf };
}

it('more unreadable items than a batch has room for do not delay the expiry of later ones', async () => {
  const { store, stateOf } = await damagedFirst(302, 300, 100);
  try {
    await store.advanceClock(200_000);
    await expect(store.runPurge()).rejects.toThrow('ItemUpserted at');
    expect([await stateOf('whole-300'), await stateOf('whole-301')]).toEqual(['purged', 'purged']);
  } finally {
    await store.close();
  }
});

it('unreadable items do not delay the purge of other items that were deleted with their container', async () => {
  const { store, container } = await damagedFirst(3, 1, 100);
  try {
    await store.advanceClock(99_000);
    const gone = container();
    await store.deleteContainer(CALLER, 'd', 'c');
    await expect(store.runPurge()).rejects.toThrow('ItemUpserted at');
    expect((await store.explain(gone, 'whole-2', PK)).state).toBe('purged');
  } finally {
    await store.close();
  }
});

it('recovering what a policy expired reports how many items are unreadable, and recovers the others', async () => {
  const { store, container, stateOf } = await damagedFirst(302, 300, -1);
  try {
    await store.advanceClock(100_000);
    await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 5, confirmed: true, reason: 'a test' });
    await expect(store.runPurge()).rejects.toThrow('ItemUpserted at');
    const recover = () => store.recoverPolicy(CALLER, container(), 2, { reason: 'mistyped' });
    expect(await recover()).toEqual({ recovered: 2, writtenSince: 0, uniqueKeyTaken: 0, erased: 0, unreadable: 300 });
    await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: -1, confirmed: true, reason: 'a test' });
    expect(await stateOf('whole-301')).toBe('live');
  } finally {
    await store.close();
  }
});

it('explaining an erased item fails if the log has lost events of the container that may say who had it erased', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await store.eraseItem(CALLER, container, 'a', PK, { reason: 'asked', requestedBy: 'a' });
  await store.close();
  const lose = (log: DatabaseSync) =>
    log.prepare("DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 1").run().changes;
  expect(folder.change('log.db', lose)).toBe(1);
  store = await folder.open();
  try {
    await expect(store.explain(container, 'a', PK)).rejects.toThrow(/^the event log lacks events of container-/);
  } finally {
    await store.close();
  }
});

it('an erasure is explained by its own request although the log has lost events of the container, and never by a later request', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  let atMs = 0;
  for (const requestedBy of ['Ann', 'Bob']) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await store.eraseItem(CALLER, container, 'a', PK, { reason: 'asked', requestedBy });
    if (requestedBy === 'Ann') atMs = store.nowMs();
    await store.advanceClock(1_000);
  }
  await store.close();
  // The lost event says that the first request was carried out.
  const lose = (log: DatabaseSync) =>
    log.prepare("DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 2").run().changes;
  expect(folder.change('log.db', lose)).toBe(1);
  store = await folder.open();
  try {
    expect((await store.explain(container, 'a', PK)).sentence).toContain('requested by "Bob"');
    const lacks = /^the event log lacks events of container-/;
    await expect(store.explain(container, 'a', PK, atMs)).rejects.toThrow(lacks);
  } finally {
    await store.close();
  }
});

it('an unreadable item is counted once, however long the recovery of a policy takes', async () => {
  const folder = new DamagedFolder('damaged-log');
  const before = await folder.open();
  await before.createDatabase(CALLER, 'd');
  const { resource: container } = await before.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (const id of ['damaged', 'whole']) {
    await before.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  }
  await before.close();
  folder.change('log.db', (log) => cutShort(log, itemStreams(log)[0]!));
  const { store, log, clock } = await openEmbedded({ folder: folder.path, time: 0, newId: randomUUID });
  try {
    await store.advanceClock(100_000);
    await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 5, confirmed: true, reason: 'a test' });
    const append = log.append.bind(log);
    log.append = async (...args) => {
      const appended = await append(...args);
      if (!args[0].some(({ stream }) => stream.startsWith('item-')) || !(clock instanceof ManualClock)) return appended;
      // Longer than unreadable items are left out of further attempts.
      clock.advance(61_000);
      log.append = append;
      return appended;
    };
    const recovered = await store.recoverPolicy(CALLER, container, 2, { reason: 'mistyped' });
    expect(recovered).toMatchObject({ recovered: 1, unreadable: 1 });
  } finally {
    await store.close();
  }
});

it('damaged lives are not counted as erased when a policy is recovered, but as unreadable', async () => {
  const damages = {
    'without its writes': 'DELETE FROM events WHERE stream = ? AND revision = 0',
    lost: 'DELETE FROM events WHERE stream = ?',
    'without its body': 'UPDATE events SET body = zeroblob(length(body)) WHERE stream = ? AND revision = 0',
    'without its key': undefined,
    // The key of the next item.
    'with the write of another': 'UPDATE events SET previous = 8 WHERE stream = ? AND revision = 1',
    whole: undefined,
    'erased, and lost': 'DELETE FROM events WHERE stream = ?',
    'erased, and cut short': 'UPDATE events SET data = substr(data, 1, 20) WHERE stream = ?',
    erased: undefined,
  };
  const ids = Object.keys(damages);
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (const id of ids) await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  await store.advanceClock(100_000);
  await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 5, confirmed: true, reason: 'a test' });
  await store.runPurge();
  for (const id of ids.filter((one) => one.startsWith('erased'))) {
    await store.eraseItem(CALLER, container, id, PK, { reason: 'a test', requestedBy: 'desk 3' });
  }
  await store.createDatabase(CALLER, 'last');
  await store.close();
  const streams = folder.change('log.db', itemStreams);
  folder.change('log.db', (log) => {
    for (const [index, sql] of Object.values(damages).entries()) {
      if (sql !== undefined) expect(log.prepare(sql).run(streams[index]!).changes).toBeGreaterThan(0);
    }
  });
  folder.change('vault.db', (vault) => vault.exec('DELETE FROM keys WHERE id = 4'));
  store = await folder.open();
  try {
    const reason = 'mistyped';
    const lost = 'a life begins with a write';
    await expect(store.recoverItem(CALLER, container, ids[0]!, PK, { reason })).rejects.toThrow(lost);
    await expect(store.heldContent(CALLER, container, ids[0]!, PK, { reason })).rejects.toThrow(lost);
    const missing = (await store.fsck()).problems.filter(({ code }) => code === 'writes-missing');
    expect(missing.map(({ subject }) => subject)).toContain(streams[ids.indexOf('lost')]);
    const summary = await store.recoverPolicy(CALLER, store.container('d', 'c'), 2, { reason });
    expect(summary).toEqual({ recovered: 1, writtenSince: 0, uniqueKeyTaken: 0, erased: 1, unreadable: 7 });
  } finally {
    await store.close();
  }
});

describe.each([
  { where: 'in the middle of', isLast: false },
  { where: 'at the end of', isLast: true },
])('if an event is lost $where what the log has of a container,', ({ isLast }) => {
  /** A container whose items expired after a minute, until an event that the log has lost turned that off. */
  async function withoutChange() {
    const folder = new DamagedFolder('damaged-log');
    const store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
    await store.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
    if (!isLast) await store.setRecoveryWindow(CALLER, container, 60, 'a test');
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
    await store.advanceClock(1_000_000);
    await store.createDatabase(CALLER, 'last');
    await store.close();
    folder.change('log.db', (log) => log.exec("DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 1"));
    return { folder, container };
  }

  it('a rebuild is refused, so nothing disappears, and fsck reports only the lost event', async () => {
    const { folder, container } = await withoutChange();
    const store = await folder.open();
    try {
      store.startRebuild('items');
      const lost = isLast ? 'has lost the last event of container-' : 'lacks events of container-';
      await vi.waitFor(() =>
        expect(store.rebuildStatus('items')).toMatchObject({
          state: 'failed',
          error: expect.stringContaining(`the event log ${lost}`),
        }),
      );
      await store.runPurge();
      expect((await store.explain(container, 'a', PK)).state).toBe('live');
      const { problems } = await store.fsck();
      expect(new Set(problems.map(({ code }) => code))).toEqual(new Set(['unreadable-event']));
    } finally {
      await store.close();
    }
  });

  it('read models made afterwards lead to no record and no erasure', async () => {
    const { folder, container } = await withoutChange();
    folder.remove('items.v1.db');
    const store = await folder.open();
    try {
      await expect(store.runPurge()).rejects.toThrow(
        isLast ? 'between the read models and the event log' : 'had lost events of container-',
      );
      const create = store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
      await expect(create).rejects.toThrow('no expiry is recorded and nothing is erased in it');
      expect((await store.history(container, 'a', PK)).map(({ type }) => type)).toEqual(['ItemUpserted']);
    } finally {
      await store.close();
    }
  });
});

describe.each([
  { what: 'is lost', damage: 'DELETE FROM events WHERE revision = 1' },
  { what: 'is lost at the end', damage: 'DELETE FROM events WHERE revision = 2' },
  { what: 'is lost at the beginning', damage: 'DELETE FROM events WHERE revision = 0' },
  { what: 'can not be read', damage: 'UPDATE events SET data = substr(data, 1, 20) WHERE revision = 1' },
])('in a container of which an event $what in the log, but which is whole in the read models,', ({ damage }) => {
  async function damagedContainer() {
    const folder = new DamagedFolder('damaged-log');
    const before = await folder.open();
    await before.createDatabase(CALLER, 'd');
    const { resource: container } = await before.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
    await before.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
    await before.setTtlBrake(CALLER, 'd', 'c', { maxItems: 1 });
    for (const id of ['a', 'b', 'held']) {
      await before.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: id === 'held' ? 'q' : 'p' }));
    }
    await before.close();
    const sql = `${damage} AND stream LIKE 'container-%'`;
    expect(folder.change('log.db', (log) => log.prepare(sql).run().changes)).toBe(1);
    return { folder, container };
  }

  it('holds are placed and released, items are erased on request, and the policy is changed, subject to its brake', async () => {
    const { folder, container } = await damagedContainer();
    let store = await folder.open();
    const held = { kind: 'partition-key', partitionKey: '["q"]' } as const;
    expect(await store.placeHold(CALLER, container, 'h', { scope: held, reason: 'case 7' })).toMatchObject({
      placed: true,
    });
    const request = { reason: 'asked', requestedBy: 'desk 3' };
    expect(await store.eraseItem(CALLER, container, 'a', PK, request)).toMatchObject({ erasedLives: 1 });
    await expect(store.eraseItem(CALLER, container, 'held', '["q"]', request)).rejects.toMatchObject({ code: 'held' });
    // Two items are left, and one of them would expire at once.
    await store.advanceClock(10_000);
    await expect(store.replaceContainer(CALLER, 'd', 'c', DEFINITION, 5)).rejects.toMatchObject({
      code: 'ttl-change-braked',
    });
    await store.close();
    store = await folder.open();
    try {
      await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 5, confirmed: true, reason: 'shorter' });
      // The first policy, before the replacement, was in force for less than a millisecond.
      expect(store.container('d', 'c').timeline.map(({ defaultTtl }) => defaultTtl)).toEqual([null, 5]);
      await store.setPolicyGrace(CALLER, 'd', 'c', 0);
      await store.runPurge();
      const stateOf = async (id: string, key = PK) => (await store.explain(container, id, key)).state;
      expect([await stateOf('b'), await stateOf('held', '["q"]')]).toEqual(['purged', 'expired']);
      await store.releaseHold(CALLER, container, 'h', 'case closed');
      await store.runPurge();
      expect(await stateOf('held', '["q"]')).toBe('purged');
      await store.deleteContainer(CALLER, 'd', 'c');
      expect(() => store.container('d', 'c')).toThrow('container');
      expect(new Set((await store.fsck()).problems.map(({ code }) => code))).toEqual(new Set(['unreadable-event']));
    } finally {
      await store.close();
    }
  });
});

describe('in a container whose read models were made after the log had lost one of its events', () => {
  /**
   * A container whose items expired after a minute, until an event that the log has lost turned that off. One item is hidden, one is young.
   */
  async function madeAnew() {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
    await store.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
    await store.setPolicyGrace(CALLER, 'd', 'c', 7_200);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'old', pk: 'p' }));
    await store.advanceClock(1_000_000);
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: 'young', pk: 'p' }));
    await store.close();
    folder.change('log.db', (log) => log.exec("DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 1"));
    const again = async () => {
      folder.remove('items.v1.db');
      store = await folder.open();
      return store;
    };
    const shown = async () => (await store.listItems(container, { maxItemCount: 10 })).items.map(({ id }) => id);
    const stateOf = async (id: string) => (await store.explain(container, id, PK)).state;
    return { container, again, shown, stateOf };
  }

  const change = { confirmed: true, reason: 'as it was before' };

  it('the policy in force is the one that somebody confirms, from then on, and no item is purged by what the log still has of earlier policies', async () => {
    const { container, again, shown, stateOf } = await madeAnew();
    let store = await again();
    expect(await shown()).toEqual(['young']);
    // Sending the container's definition again, as deployments do, does not count as a confirmation.
    await store.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
    await expect(store.runPurge()).rejects.toThrow('until you set the policy of c again: epitaph ttl … --confirm');
    expect(await shown()).toEqual(['young']);
    await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: null, ...change });
    const [policy, ...others] = store.container('d', 'c').timeline;
    expect(policy).toMatchObject({ defaultTtl: null, version: 3, setBy: CALLER.actor, reason: change.reason });
    expect(others).toEqual([]);
    for (let pass = 0; pass < 2; pass++) {
      await store.runPurge();
      expect(await shown()).toEqual(['old', 'young']);
      expect([await stateOf('old'), await stateOf('young')]).toEqual(['live', 'live']);
      expect((await store.history(container, 'old', PK)).map(({ type }) => type)).toEqual(['ItemUpserted']);
      await store.close();
      // The confirmation is on record, so read models made once more have it as well.
      store = await again();
    }
    await store.close();
  });

  it('a rebuild is refused until the policy is confirmed', async () => {
    const { again, shown } = await madeAnew();
    const store = await again();
    const rebuilt = async () => {
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/));
      return store.rebuildStatus('items');
    };
    try {
      expect(await rebuilt()).toMatchObject({ state: 'failed' });
      await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: null, ...change });
      expect(await rebuilt()).toMatchObject({ state: 'done', differences: 0 });
      expect(await shown()).toEqual(['old', 'young']);
    } finally {
      await store.close();
    }
  });

  it('items that expire by a confirmed policy are counted in the preview, expire when it takes effect, and are erased after the grace', async () => {
    const { container, again, shown, stateOf } = await madeAnew();
    const store = await again();
    try {
      expect((await store.previewTtl(container, { defaultTtl: 60 })).atOnce).toMatchObject({ items: 1 });
      await store.changeTtl(CALLER, 'd', 'c', { defaultTtl: 60, ...change });
      await store.runPurge();
      expect(await shown()).toEqual(['young']);
      const told = await store.explain(container, 'old', PK);
      expect(told).toMatchObject({ state: 'expired', policy: { version: 2, defaultTtl: 60 } });
      expect(told.sentence).toContain('which was already past when the policy took effect');
      await store.advanceClock(7_201_000);
      await store.runPurge();
      expect(await stateOf('old')).toBe('purged');
      expect(new Set((await store.fsck()).problems.map(({ code }) => code))).toEqual(new Set(['unreadable-event']));
    } finally {
      await store.close();
    }
  });

  it.each(['container', 'database'])('all items leave with their %s, and in no other way', async (what) => {
    const { container, again, stateOf } = await madeAnew();
    const store = await again();
    try {
      if (what === 'container') await store.deleteContainer(CALLER, 'd', 'c');
      else {
        await expect(store.deleteDatabase(CALLER, 'd', { ifMatch: '"another"' })).rejects.toMatchObject({
          code: 'precondition-failed',
        });
        expect(store.container('d', 'c').rid).toBe(container.rid);
        await store.deleteDatabase(CALLER, 'd');
      }
      await store.runPurge();
      expect([await stateOf('old'), await stateOf('young')]).toEqual(['purged', 'purged']);
      expect((await store.explain(container, 'old', PK)).sentence).toContain('left with its container');
    } finally {
      await store.close();
    }
  });
});

it('a rebuild is refused over a lost event of a container, even if the events before it have been applied already', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  const ids = Array.from({ length: 60 }, (_, index) => `item ${index}`);
  for (const id of ids) await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
  await store.replaceContainer(CALLER, 'd', 'c', DEFINITION, null);
  await store.setRecoveryWindow(CALLER, container, 60, 'a test');
  await store.close();
  folder.change('log.db', (log) => log.exec("DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 1"));
  store = await folder.open();
  try {
    // Fifty events are applied at a time.
    store.startRebuild('items', { eventsPerSecond: 50 });
    await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/), 10_000);
    expect(store.rebuildStatus('items')).toMatchObject({
      state: 'failed',
      error: expect.stringContaining('the event log lacks events of container-'),
    });
  } finally {
    await store.close();
  }
});

it('a rebuild is refused over a lost event of a user, because a withdrawn permission might be back', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  const { rid } = (await store.createDatabase(CALLER, 'd')).resource;
  const { resource: user } = await store.createUser(CALLER, rid, 'u', 'create');
  await store.renameUser(CALLER, rid, 'u', 'v');
  await store.renameUser(CALLER, rid, 'v', 'w');
  await store.close();
  const sql = `DELETE FROM events WHERE stream = 'user-${user.rid}' AND revision = 1`;
  expect(folder.change('log.db', (log) => log.prepare(sql).run()).changes).toBe(1);
  store = await folder.open();
  try {
    store.startRebuild('items');
    await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/));
    expect(store.rebuildStatus('items')).toMatchObject({
      state: 'failed',
      error: expect.stringContaining('the event log lacks events of user-'),
    });
  } finally {
    await store.close();
  }
});

describe('if the log has lost a delete by partition key', () => {
  const LOST = "DELETE FROM events WHERE stream LIKE 'container-%' AND revision = 1";
  const UNREADABLE = LOST.replace('DELETE FROM events', 'UPDATE events SET data = substr(data, 1, 5)');

  /** Three items were deleted with their partition key. One was created again, which has recorded the end of its first life. */
  async function withoutDelete(damage: string) {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    const write = (id: string, pk = 'p') => store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk }));
    for (const id of ['a', 'b', 'c']) await write(id);
    await write('other', 'q');
    await store.advanceClock(5_000);
    await store.deletePartitionKey(CALLER, container, PK);
    await store.advanceClock(5_000);
    await write('a');
    await store.setPolicyGrace(CALLER, 'd', 'c', 7_200);
    await store.createDatabase(CALLER, 'last');
    await store.close();
    expect(folder.change('log.db', (log) => log.prepare(damage).run().changes)).toBeGreaterThan(0);
    const open = async () => {
      store = await folder.open();
      return store;
    };
    const shown = async () => (await store.listItems(container, { maxItemCount: 10 })).items.map(({ id }) => id);
    return { folder, container, open, shown };
  }

  it.each([
    { what: 'lost', damage: LOST },
    { what: 'unreadable', damage: UNREADABLE },
  ])(
    'fsck tells what would be visible again without the read models ($what), until the purge has recorded it',
    async ({ damage }) => {
      const { open } = await withoutDelete(damage);
      const store = await open();
      const found = async () => (await store.fsck()).problems.map(({ code, message }) => `${code}: ${message}`);
      const would = expect.stringMatching(
        /^unreadable-event: only the read models record that key:primary deleted the partition key \["p"\] at 2026-11-21T10:00:05.000Z\. After a rebuild, 2 of its items/,
      );
      const before = await found();
      expect(before).toContainEqual(would);
      // The items were deleted for a reason, so the advice to rebuild would be wrong.
      expect(before.filter((problem) => !problem.startsWith('unreadable-event'))).toEqual([]);
      await store.runPurge();
      expect(await found()).not.toContainEqual(would);
      await store.close();
    },
  );

  it.each([
    { where: 'in the middle', isLast: false },
    { where: 'at the end, and something has come after it', isLast: true },
  ])(
    'without the read models, deleted items stay gone once the purge has recorded their end: lost $where',
    async ({ isLast }) => {
      const { folder, open, shown } = await withoutDelete(isLast ? LOST.replace('=', '>=') : LOST);
      let store = await open();
      if (isLast) {
        await expect(store.runPurge()).rejects.toThrow('between the read models and the event log');
        await store.setPolicyGrace(CALLER, 'd', 'c', 3_000);
      }
      await store.runPurge();
      await store.close();
      folder.remove('items.v1.db');
      store = await open();
      expect((await shown()).toSorted()).toEqual(['a', 'other']);
      await store.close();
    },
  );

  it('fsck tells when the event was lost and what is visible again, and another delete by partition key removes that', async () => {
    const { folder, container, open, shown } = await withoutDelete(LOST);
    folder.remove('items.v1.db');
    let store = await open();
    const found = async () => (await store.fsck()).problems.map(({ code, message }) => `${code}: ${message}`);
    expect((await shown()).toSorted()).toEqual(['a', 'b', 'c', 'other']);
    const before = await found();
    expect(before).toContainEqual(
      expect.stringContaining(
        'revision 1 any more, recorded from 2026-11-21T10:00:00.000Z to 2026-11-21T10:00:10.001Z',
      ),
    );
    const again =
      'written before its partition key was deleted, although the log has this deletion only for other items of the key';
    expect(before.filter((problem) => problem.endsWith(again))).toHaveLength(2);
    await store.deletePartitionKey(CALLER, container, PK);
    await store.close();
    folder.remove('items.v1.db');
    store = await open();
    try {
      expect(await shown()).toEqual(['other']);
      expect(await found()).not.toContainEqual(expect.stringContaining(again));
    } finally {
      await store.close();
    }
  });
});

it('read models of a log with lost events come out the same, whether or not their making was interrupted by a kill', async () => {
  const folder = new DamagedFolder('damaged-log');
  const store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  const write = (id: string) => store.writeItem(CALLER, container, 'upsert', itemToWrite({ id, pk: 'p' }));
  const written: DamagedFolder[] = [];
  for (let round = 0; round < 3; round++) {
    // A kill would leave the read models as they are at this point.
    const soFar = new DamagedFolder('damaged-log-so-far');
    await store.countItems(container);
    copyAsKilled(folder.path, soFar.path);
    written.push(soFar);
    for (let n = 0; n < 3; n++) await write(`written ${round}`);
    await write(`ended ${round}`);
    await store.deleteItem(CALLER, container, `ended ${round}`, PK);
    await write(`ended ${round}`);
    await write(`whole ${round}`);
  }
  const whole = new DamagedFolder('damaged-log-whole');
  copyAsKilled(folder.path, whole.path);
  await store.close();
  const made = await Promise.all(
    [undefined, ...written].map(async (soFar) => {
      const killed = new DamagedFolder('damaged-log-killed');
      copyAsKilled(whole.path, killed.path);
      killed.remove('items.v1.db');
      for (const name of ['items.v1.db', 'items.v1.db-wal'])
        if (soFar !== undefined) copyFileSync(join(soFar.path, name), join(killed.path, name));
      const lost = killed.change('log.db', (log) => {
        const first = log.prepare("SELECT stream FROM events WHERE revision = 2 AND stream LIKE 'item-%'").all();
        for (const { stream } of first)
          log.prepare('DELETE FROM events WHERE stream = ? AND revision = 0').run(stream!);
        const ends =
          "DELETE FROM events WHERE revision = 1 AND stream IN (SELECT substr(stream, 1, length(stream) - 1) || '0' FROM events WHERE stream LIKE 'item-%.1')";
        return first.length + Number(log.prepare(ends).run().changes);
      });
      expect(lost).toBe(6);
      const opened = await killed.open();
      try {
        const { items } = await opened.listItems(container, { maxItemCount: 100 });
        return items.map(({ id }) => id).toSorted();
      } finally {
        await opened.close();
      }
    }),
  );
  const [anew, ...others] = made;
  expect(anew).toHaveLength(9);
  for (const other of others) expect(other).toEqual(anew);
});

it('an item whose deletion the log has lost is not visible again: a rebuild is refused, and read models made anew do not show it', async () => {
  const folder = new DamagedFolder('damaged-log');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  for (const id of ['gone', 'there']) {
    for (let n = 0; n < 2; n++) await store.writeItem(CALLER, container, 'upsert', itemToWrite({ id, pk: 'p' }));
  }
  await store.deleteItem(CALLER, container, 'gone', PK);
  await store.createDatabase(CALLER, 'last');
  await store.close();
  const lose = "DELETE FROM events WHERE revision = 2 AND stream LIKE 'item-%'";
  expect(folder.change('log.db', (log) => log.prepare(lose).run().changes)).toBe(1);
  const lost = 'the event log has lost the last event of item-';
  store = await folder.open();
  store.startRebuild('items');
  await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/));
  expect(store.rebuildStatus('items')).toMatchObject({ state: 'failed', error: expect.stringContaining(lost) });
  expect((await store.listItems(container, { maxItemCount: 10 })).items.map(({ id }) => id)).toEqual(['there']);
  await store.close();
  folder.remove('items.v1.db');
  store = await folder.open();
  try {
    await expect(store.readItem(container, 'gone', PK)).rejects.toMatchObject({
      message: expect.stringContaining('c.id != "gone"'),
      cause: { message: expect.stringContaining(lost) },
    });
    expect(JSON.parse((await store.readItem(container, 'there', PK)).json)).toMatchObject({ id: 'there' });
    const { problems } = await store.fsck();
    expect(new Set(problems.map(({ code }) => code))).toEqual(new Set(['writes-missing']));
  } finally {
    await store.close();
  }
});

it.each([
  { what: 'a database', stream: 'database-%', revision: 0 },
  { what: 'a client encryption key', stream: 'client-encryption-key-%', revision: 0 },
  { what: 'the last change of a client encryption key', stream: 'client-encryption-key-%', revision: 1 },
  { what: 'the deletion of a script', stream: 'script-%', revision: 1 },
])(
  '$what that the log has lost stays in the read models: a rebuild is refused, and a change tells why',
  async ({ stream, revision }) => {
    const folder = new DamagedFolder('damaged-log');
    let store = await folder.open();
    const { rid } = (await store.createDatabase(CALLER, 'd')).resource;
    const keyOf = (wrappedDataEncryptionKey: string) => ({
      encryptionAlgorithm: 'AEAD_AES_256_CBC_HMAC_SHA256',
      wrappedDataEncryptionKey,
      keyWrapMetadata: {},
    });
    await store.createClientEncryptionKey(CALLER, rid, 'k', keyOf('AAAA'));
    await store.rewrapClientEncryptionKey(CALLER, rid, 'k', keyOf('BBBB'));
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
    const content = { body: 'function () {}' };
    const script = { kind: 'stored-procedure', name: 's', content } as const;
    await store.deleteScript(CALLER, (await store.writeScript(CALLER, container, 'create', script)).resource);
    // A last event, so that the log does not end before the read models do.
    await store.pausePurge(CALLER);
    await store.close();
    const lose = 'DELETE FROM events WHERE revision >= ? AND stream LIKE ?';
    expect(folder.change('log.db', (log) => log.prepare(lose).run(revision, stream).changes)).toBeGreaterThan(0);
    store = await folder.open();
    try {
      const lost = 'the event log has lost the last event of ';
      store.startRebuild('items');
      await vi.waitFor(() => expect(store.rebuildStatus('items')?.state).toMatch(/done|failed/));
      expect(store.rebuildStatus('items')).toMatchObject({ state: 'failed', error: expect.stringContaining(lost) });
      expect(store.listDatabases().map(({ name }) => name)).toEqual(['d']);
      expect(store.listScripts(container, 'stored-procedure')).toEqual([]);
      const rewrap = store.rewrapClientEncryptionKey(CALLER, rid, 'k', keyOf('CCCC'));
      if (stream.startsWith('client')) await expect(rewrap).rejects.toThrow(lost);
      else await rewrap;
      expect(store.clientEncryptionKey(rid, 'k').wrappedKey).toEqual(
        keyOf(stream.startsWith('client') ? 'BBBB' : 'CCCC'),
      );
    } finally {
      await store.close();
    }
  },
);
