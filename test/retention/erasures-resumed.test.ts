import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Embedded, InjectedFault, newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

let folder: string;
let embedded: Embedded;
const open = () =>
  openEmbedded({ folder, time: Date.UTC(2026, 10, 21, 10), newId: () => crypto.randomUUID(), policyGraceSeconds: 0 });
const container = () => embedded.store.container('db', 'c');
const write = async (n: number, id = 'a') => {
  const item = itemToWrite({ id, pk: 'p', n });
  await embedded.store.writeItem(CALLER, container(), 'upsert', item);
};
const states = async () =>
  Promise.all(
    [0, 1].map(async (life) => {
      const events = (await embedded.store.history(container(), 'a', PK)).filter((event) => event.life === life);
      return events.at(-1)?.type;
    }),
  );

beforeEach(async () => {
  folder = newFolder('resumed');
  embedded = await open();
  await embedded.store.createDatabase(CALLER, 'db');
  await embedded.store.createContainer(CALLER, 'db', 'c', DEFINITION, null);
  await write(1);
  // The request is recorded, the keys are destroyed, and nothing that should follow is done.
  embedded.log.failAt(1, 'before');
  const request = { reason: 'article 17', requestedBy: 'desk 3' };
  await expect(embedded.store.eraseItem(CALLER, container(), 'a', PK, request)).rejects.toThrow(InjectedFault);
});
afterEach(async () => {
  await embedded.store.close();
  removeFolder(folder);
});

const completed = async () =>
  (await embedded.store.containerHistory(container()))
    .filter(({ type }) => type === 'ErasureCompleted')
    .map(({ data }) => data['erasedLives']);

describe('an erasure interrupted by a fault', () => {
  it('is carried out when the fault is over, without another request', async () => {
    // The next attempt fails as well.
    embedded.log.failAt(0, 'before');
    await expect.poll(completed, { timeout: 5_000 }).toEqual([1]);
    expect(embedded.log.disarm()).toBe(false);
    expect(await states()).toEqual(['ItemPurged', undefined]);
    await write(2);
    expect(await states()).toEqual(['ItemPurged', 'ItemUpserted']);
  });

  it('leaves alone lives that begin after its request, also at the next start', async () => {
    await embedded.store.deleteItem(CALLER, container(), 'a', PK);
    await write(2);
    await embedded.store.close();
    embedded = await open();
    expect(await states()).toEqual(['ItemPurged', 'ItemUpserted']);
    expect((await embedded.store.readItem(container(), 'a', PK)).json).toBe('{"id":"a","pk":"p","n":2}');
    expect(await completed()).toEqual([1]);
    expect((await embedded.store.fsck()).problems).toEqual([]);
  });

  it('is completed, whatever floor or hold came too late for what it had destroyed', async () => {
    const reason = 'tax law';
    await embedded.store.setRetentionFloor(CALLER, container(), 3_600, reason);
    const scope = { kind: 'container' } as const;
    await embedded.store.placeHold(CALLER, container(), 'h', { reason, scope });
    await expect.poll(completed, { timeout: 5_000 }).toEqual([1]);
    const history = await embedded.store.containerHistory(container());
    expect(history.map(({ type }) => type)).not.toContain('ErasureRefused');
    expect(await states()).toEqual(['ItemPurged', undefined]);
  });
});

describe('an erasure that can’t be carried out', () => {
  const DAMAGES = [
    {
      where: 'as its key is lost',
      file: 'vault.db',
      damage: 'DELETE FROM keys WHERE id = (SELECT min(id) FROM keys)',
    },
    {
      where: 'as its write is cut short, while a restore has the purge paused',
      file: 'log.db',
      damage:
        "UPDATE events SET data = substr(data, 1, 20) WHERE position = (SELECT min(position) FROM events WHERE stream LIKE 'item-%')",
      pausedBy: 'system:restore',
    },
  ];
  it.each(DAMAGES)('$where, prevents neither the start of the store nor another erasure', async (given) => {
    const { file, damage, pausedBy } = given;
    // No erasure is recorded, not even the first, which is tried again by itself.
    const { log } = embedded;
    const append = log.append.bind(log);
    vi.spyOn(log, 'append').mockImplementation((appends, options) =>
      appends.some(({ events }) => events.some(({ type }) => type === 'ItemPurged'))
        ? Promise.reject(new InjectedFault('the log records no erasure'))
        : append(appends, options),
    );
    await write(1, 'b');
    const request = { reason: 'article 17', requestedBy: 'desk 4' };
    await expect(embedded.store.eraseItem(CALLER, container(), 'b', PK, request)).rejects.toThrow(InjectedFault);
    await write(1, 'c');
    if (pausedBy !== undefined) await embedded.store.pausePurge({ ...CALLER, actor: pausedBy });
    await embedded.store.close();
    const database = new DatabaseSync(join(folder, file));
    expect(database.prepare(damage).run().changes).toBe(1);
    database.close();
    embedded = await open();
    expect(await completed()).toEqual([1]);
    expect((await embedded.store.explain(container(), 'b', PK)).state).toBe('purged');
    expect((await embedded.store.fsck()).problems).not.toEqual([]);
  });
});
