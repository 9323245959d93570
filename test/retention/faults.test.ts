import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

/*
 * A fault comes between a change in the vault and its record, and nobody repeats the request. The store makes vault and log agree again by
 * itself.
 */

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const HOUR_MS = 3_600_000;
const withFeed = (minutes: number) => ({ ...DEFINITION, changeFeedPolicy: { retentionDuration: minutes } });
const hold = { scope: { kind: 'container' }, reason: 'case 7' } as const;

let store: Store;
let storage: SqliteStorage;
const container = (name = 'c') => store.container('db', name);

const place = () => store.placeHold(CALLER, container(), 'new', hold);
/** Each request with the call of the vault that is a part of it. */
const requests = {
  'placing a hold': ['placeHold', place],
  'releasing a hold': ['releaseHold', () => store.releaseHold(CALLER, container(), 'old', 'settled')],
  'raising a floor': ['setFloor', () => store.setRetentionFloor(CALLER, container(), 200, 'longer')],
  'lowering a floor': ['setFloor', () => store.setRetentionFloor(CALLER, container(), 50, 'shorter')],
  'making a feed longer': ['setFloor', () => store.replaceContainer(CALLER, 'db', 'c', withFeed(20), null)],
  'making a feed shorter': ['setFloor', () => store.replaceContainer(CALLER, 'db', 'c', withFeed(5), null)],
  'creating a feed': ['setFloor', () => store.createContainer(CALLER, 'db', 'other', withFeed(10), null)],
  'deleting a feed': ['setFloor', () => store.deleteContainer(CALLER, 'db', 'fed')],
  'deleting a feed with its database': ['setFloor', () => store.deleteDatabase(CALLER, 'fed')],
} as const;

const cases = Object.entries(requests).flatMap(([name, [step]]) =>
  ([step, 'append'] as const).flatMap((at) =>
    (['instead of', 'after'] as const).map((when) => [name, when, at] as const),
  ),
);

/** The holds and floors in the vault, and those on record. */
async function kept() {
  const holds = storage.vault.holds().map(({ holdId }) => holdId.split(' ')[1]);
  const floors = Object.fromEntries(storage.vault.floors());
  const onRecord: typeof floors = {};
  const standing: string[] = [];
  for (const database of store.listDatabases()) {
    for (const { rid, definition, retention } of store.listContainers(database.name)) {
      const feed = feedFloorSeconds(definition);
      const floor = retention.floorSeconds;
      onRecord[rid] = { ...(feed > 0 && { 'change-feed': feed }), ...(floor > 0 && { retention: floor }) };
      for (const { holdId, released } of await store.holds(store.containerByRid(rid)!, { after: 0 })) {
        if (released === undefined) standing.push(holdId);
      }
    }
  }
  const set = ([, floor]: [string, object]) => Object.keys(floor).length > 0;
  return {
    vault: { holds: holds.toSorted(), floors },
    record: { holds: standing.toSorted(), floors: Object.fromEntries(Object.entries(onRecord).filter(set)) },
  };
}

/** @param mayAppendLate whether the log is on a server, which may still record what it got before a fault */
async function begin(mayAppendLate: boolean): Promise<void> {
  ({ store, storage } = await openInlineStore('faults', ({ log }) => {
    if (mayAppendLate) Object.assign(log, { mayAppendLate });
  }));
  for (const database of ['db', 'fed']) await store.createDatabase(CALLER, database);
  await store.createContainer(CALLER, 'db', 'c', withFeed(10), null);
  await store.createContainer(CALLER, 'db', 'fed', withFeed(10), null);
  await store.createContainer(CALLER, 'fed', 'c', withFeed(10), null);
  await store.placeHold(CALLER, container(), 'old', hold);
  await store.setRetentionFloor(CALLER, container(), 100, 'a while');
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const fault = () => new StorageUnavailable('the disk is away');

async function meetFault([name, when, at]: (typeof cases)[number]): Promise<void> {
  const part: object = at === 'append' ? storage.log : storage.vault;
  const work = (part[at as never] as (...args: unknown[]) => Promise<unknown>).bind(part);
  const failing = vi.fn(async (...args: unknown[]) => {
    Object.assign(part, { [at]: work });
    if (when === 'after') await work(...args);
    throw fault();
  });
  Object.assign(part, { [at]: failing });
  const [, request] = requests[name as keyof typeof requests];
  await expect(request()).rejects.toThrow('the disk is away');
  expect(failing).toHaveBeenCalledOnce();
  const { vault, record } = await kept();
  expect(vault.holds).toEqual(expect.arrayContaining(record.holds));
}

it.each(cases)('%s leaves vault and log in agreement, although a fault comes %s its %s', async (...fault) => {
  await begin(true);
  await meetFault(fault);
  await vi.advanceTimersByTimeAsync(HOUR_MS + 1_000);
  await expect.poll(async () => (await kept()).vault).toEqual((await kept()).record);
});

it.each(cases)('%s does so at once with a log of its own, although a fault comes %s its %s', async (...fault) => {
  await begin(false);
  await meetFault(fault);
  await vi.advanceTimersByTimeAsync(1_000);
  await expect.poll(async () => (await kept()).vault).toEqual((await kept()).record);
});

describe('a request that is recorded long after its caller was told of a fault', () => {
  beforeEach(() => begin(true));

  /** Sends a request whose append is delayed until the returned function is called. */
  async function delayed(request: () => Promise<unknown>): Promise<() => Promise<unknown>> {
    const append = storage.log.append.bind(storage.log);
    const sent: Parameters<typeof append>[] = [];
    vi.spyOn(storage.log, 'append').mockImplementationOnce(async (...args) => {
      sent.push(args);
      throw fault();
    });
    await expect(request()).rejects.toThrow('the disk is away');
    return () => append(...sent[0]!);
  }

  it('keeps a hold', async () => {
    const comesThrough = await delayed(place);
    await vi.advanceTimersByTimeAsync(HOUR_MS / 2);
    expect((await kept()).vault.holds).toEqual(['new', 'old']);
    await comesThrough();
    await vi.advanceTimersByTimeAsync(HOUR_MS);
    const { vault, record } = await kept();
    expect(record.holds).toEqual(['new', 'old']);
    expect(vault).toEqual(record);
  });

  it('keeps a hold, although the same request fails again before anything is sent', async () => {
    const comesThrough = await delayed(place);
    const placing = vi.spyOn(storage.vault, 'placeHold').mockRejectedValueOnce(fault());
    await expect(place()).rejects.toThrow('the disk is away');
    placing.mockRestore();
    await vi.advanceTimersByTimeAsync(HOUR_MS / 2);
    await comesThrough();
    expect((await kept()).vault.holds).toEqual(['new', 'old']);
    await vi.advanceTimersByTimeAsync(HOUR_MS);
    const { vault, record } = await kept();
    expect(vault).toEqual(record);
    expect(record.holds).toEqual(['new', 'old']);
  });

  it('keeps a floor, although another change fails meanwhile', async () => {
    const comesThrough = await delayed(requests['raising a floor'][1]);
    await delayed(requests['lowering a floor'][1]);
    await vi.advanceTimersByTimeAsync(HOUR_MS / 2);
    expect(Object.values((await kept()).vault.floors)).toContainEqual(expect.objectContaining({ retention: 200 }));
    await comesThrough();
    await vi.advanceTimersByTimeAsync(HOUR_MS);
    const { vault, record } = await kept();
    expect(vault).toEqual(record);
    expect(Object.values(record.floors)).toContainEqual(expect.objectContaining({ retention: 200 }));
  });

  it('is over once a later change is recorded, so that change lowers the floor at once', async () => {
    await delayed(requests['raising a floor'][1]);
    await delayed(requests['making a feed longer'][1]);
    await requests['lowering a floor'][1]();
    await requests['making a feed shorter'][1]();
    const { vault, record } = await kept();
    expect(vault).toEqual(record);
  });
});

it('a purge after one with two faults at once has nothing more to report of them', async () => {
  await begin(false);
  for (const id of ['deleted', 'overdue']) {
    const item = itemToWrite({ id, pk: 'p', ttl: 1 });
    await store.createContainer(CALLER, 'db', id, DEFINITION, -1);
    await store.writeItem(CALLER, container(id), 'create', item);
  }
  await store.deleteItem(CALLER, container('deleted'), 'deleted', '["p"]');
  await store.advanceClock(2_000);
  const append = storage.log.append.bind(storage.log);
  vi.spyOn(storage.log, 'truncateStream').mockRejectedValueOnce(fault());
  let isFirst = true;
  const failing = vi.spyOn(storage.log, 'append').mockImplementation(async (appends, options) => {
    if (appends[0]!.events[0]!.type !== 'ItemPurged' || isFirst) {
      isFirst &&= appends[0]!.events[0]!.type !== 'ItemPurged';
      return append(appends, options);
    }
    throw fault();
  });
  await expect(store.runPurge()).rejects.toThrow('the disk is away');
  failing.mockRestore();
  expect(await store.runPurge()).toMatchObject({ purged: 1 });
  expect((await store.fsck()).problems).toEqual([]);
});
