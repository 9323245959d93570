import { afterEach, expect, it } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

let close = async () => {};
afterEach(() => close());

/** A store on whose log every page that is read goes through `onPage` first. */
async function open(onPage: (page: readonly RecordedEvent[]) => Promise<void> | void): Promise<Store> {
  const folder = newFolder('fsck-beside-work');
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  const log = new Proxy(storage.log, {
    get(target, name) {
      if (name === 'readAll') {
        return async (...args: Parameters<EventLog['readAll']>) => {
          const page = await target.readAll(...args);
          await onPage(page);
          return page;
        };
      }
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  const store = await Store.open({
    ...storage,
    log,
    clock: new ManualClock(START_MS, storage.highWaterMark),
    closePorts: () => storage.close(),
    policyGraceSeconds: 0,
    automaticPurge: false,
  });
  close = async () => {
    await store.close();
    removeFolder(folder);
  };
  return store;
}

it('holds no bodies but a few, however many events it reads at a time', async () => {
  const pages: (readonly RecordedEvent[])[] = [];
  const store = await open((page) => void pages.push(page));
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (let index = 0; index < 40; index++) {
    const document = { id: `${index}`, pk: 'p' };
    await store.writeItem(CALLER, container, 'upsert', {
      id: document.id,
      partitionKey: '["p"]',
      document,
      json: JSON.stringify(document),
    });
  }
  pages.length = 0;
  expect(await store.fsck()).toMatchObject({ events: 42, items: 40, problems: [] });
  expect(pages.flat().length).toBe(42);
  expect(pages.flat().filter(({ body }) => body !== undefined)).toEqual([]);
});

it('finds nothing in what is written, leaves and is erased while it is at work', async () => {
  let meanwhile: (() => Promise<void>) | undefined;
  const store = await open(async () => {
    const work = meanwhile;
    meanwhile = undefined;
    await work?.();
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const write = async (id: string, ttl = -1, pk = 'p') => {
    const document = { id, pk, ttl };
    const partitionKey = JSON.stringify([pk]);
    await store.writeItem(CALLER, container, 'upsert', { id, partitionKey, document, json: JSON.stringify(document) });
  };
  for (const id of ['stays', 'written', 'deleted', 'erased']) await write(id);
  await write('of its partition', -1, 'q');
  await write('expires', 10);
  await write('had expired', 1);
  await store.advanceClock(CALLER, 1_000);
  await store.pausePurge(CALLER);

  const problems = async (work: () => Promise<void>) => {
    meanwhile = work;
    const found = (await store.fsck()).problems;
    expect(meanwhile).toBeUndefined();
    return found;
  };
  const found = await problems(async () => {
    await write('written');
    await write('new');
    await store.deleteItem(CALLER, container, 'deleted', '["p"]');
    await store.eraseItem(CALLER, container, 'erased', '["p"]', { reason: 'a test', requestedBy: 'somebody' });
    await store.deletePartitionKey(CALLER, container, '["q"]');
    await store.advanceClock(CALLER, 10_000);
  });
  expect(found).toEqual([]);
  await store.resumePurge(CALLER);
  expect(
    await problems(async () => {
      expect(await store.runPurge(CALLER)).toMatchObject({ expired: 2, purged: 4 });
    }),
  ).toEqual([]);
  // What a run that has not ended has on record, and the next one erases and truncates.
  await write('short', 1);
  await store.advanceClock(CALLER, 1_000);
  await store.setRecoveryWindow(CALLER, container, 60, 'a test');
  await store.runPurge(CALLER);
  expect(
    await problems(async () => {
      await store.setRecoveryWindow(CALLER, container, 0, 'a test');
      expect(await store.runPurge(CALLER)).toMatchObject({ purged: 1 });
    }),
  ).toEqual([]);
});

it('goes on with the read models that a rebuild puts in the place of those it had begun with', async () => {
  let meanwhile: (() => Promise<void>) | undefined;
  const store = await open(async () => {
    const work = meanwhile;
    meanwhile = undefined;
    await work?.();
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const document = { id: 'a', pk: 'p' };
  await store.writeItem(CALLER, container, 'create', {
    id: 'a',
    partitionKey: '["p"]',
    document,
    json: JSON.stringify(document),
  });
  meanwhile = async () => {
    store.startRebuild(CALLER, 'items');
    while (['running', 'comparing'].includes(store.rebuildStatus('items')!.state)) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  expect(await store.fsck()).toMatchObject({ ok: true, items: 1, problems: [] });
  expect(store.rebuildStatus('items')).toMatchObject({ state: 'done' });
});
