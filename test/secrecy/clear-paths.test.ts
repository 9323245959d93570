import { copyFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { type ClearValue, clearValue } from '@epitaph/projections/items/clear-values.ts';
import type { ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import { clearBytes } from '@epitaph/storage/clear-scan.ts';
import { copyAsKilled, newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { TestFolder } from '../contracts/sqlite-folder.ts';
import { Random } from '../simulation/random.ts';
import { formsOf, foundIn, search } from './search.ts';

/** Occurs in each value at a clear path. */
const CITY = 'Otterburn-6-Quimper';
/** Occurs in the rest of each body. */
const NAME = 'Kestrel-47-Brodowy';
const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const WITH_CLEAR_PATH = { ...DEFINITION, epitaph: { clearPaths: ['/address/city'] } };
const LIVES = 600;

const folder = newFolder('clear-paths-secrecy');
const copies = newFolder('clear-paths-copies');
const options = { clock: 'manual', automaticPurge: false, policyGraceSeconds: 0, durable: false } as const;
let store: Store;

/** Copies the folder while it is in use, including journals and shared memory. */
function copyNow(name: string): string {
  const to = join(copies, name);
  mkdirSync(to);
  for (const file of readdirSync(folder)) if (file !== 'lock') copyFileSync(join(folder, file), join(to, file));
  return to;
}

const container = (name: string) => store.container('db', name);
/** Values differ from their first character on, which makes the search for many of them fast. */
const cityOf = (index: number, round: number) =>
  `${(index * 3 + round).toString(36).padStart(3, '0')} ${CITY} ${'x'.repeat((index * 7) % 60)}`;
const nameOf = (index: number) => ({ id: `item ${index}`, partitionKey: `["p${index % 5}"]` });

async function write(to: string, index: number, round: number, ttl?: number): Promise<void> {
  const name = nameOf(index);
  const document = {
    id: name.id,
    pk: `p${index % 5}`,
    name: NAME,
    address: { city: cityOf(index, round) },
    ...(ttl === undefined ? {} : { ttl }),
  };
  await store.writeItem(CALLER, container(to), 'upsert', { ...name, document, json: JSON.stringify(document) });
}

/** The cities that occur anywhere in the files of a folder, in the form of the read model. */
function citiesIn(place: string, indexes: readonly number[], rounds: readonly number[]): number {
  const wanted = indexes.flatMap((index) =>
    rounds.map((round) => Buffer.from(cityOf(index, round), 'utf16le').swap16()),
  );
  return foundIn(place, wanted).size;
}

const all = Array.from({ length: LIVES }, (_, index) => index);
const kept = all.filter((index) => index % 4 === 0);
const gone = all.filter((index) => index % 4 !== 0);
const LAST = 2;

let inUse: string;
let held: string;
let purged: string;

beforeAll(async () => {
  store = await openEmbeddedStore({ folder, ...options });
  await store.createDatabase(CALLER, 'db');
  await store.createContainer(CALLER, 'db', 'one', WITH_CLEAR_PATH, -1);
  for (let round = 0; round <= LAST; round++) {
    // Items that expire, are deleted, are erased on request, and are kept.
    await Promise.all(all.map((index) => write('one', index, round, index % 4 === 1 ? 60 : undefined)));
  }
  await store.placeHold(CALLER, container('one'), 'hold', {
    scope: { kind: 'items', items: [nameOf(2)] },
    reason: 'a test',
  });
  inUse = copyNow('in use');
  await Promise.all(
    all
      .filter((index) => index % 4 === 2)
      .map((index) => store.deleteItem(CALLER, container('one'), nameOf(index).id, nameOf(index).partitionKey)),
  );
  await store.advanceClock(61_000);
  await store.runPurge();
  held = copyNow('a hold keeps one');
  const request = { reason: 'a test', requestedBy: 'somebody' };
  // One after the other, because each is recorded in the container's stream.
  for (const index of all.filter((one) => one % 4 === 3)) {
    await store.eraseItem(CALLER, container('one'), nameOf(index).id, nameOf(index).partitionKey, request);
  }
  purged = copyNow('purged');
}, 120_000);

afterAll(async () => {
  await store.close();
  removeFolder(folder);
  removeFolder(copies);
});

describe('a value at a clear path', () => {
  it('is in clear in the read model and nowhere else, and the rest of the document nowhere', () => {
    const files = new Set(search(inUse, formsOf(CITY)).map(({ file }) => file.replace(/-wal$/, '')));
    expect(files).toEqual(new Set(['items.v1.db']));
    expect(citiesIn(inUse, all, [LAST])).toBe(LIVES);
    expect(search(inUse, formsOf(NAME))).toEqual([]);
  });

  it('is in no file once its item is purged: expired, deleted or erased, overwritten before or not', () => {
    expect(citiesIn(purged, gone, [0, 1, LAST])).toBe(0);
    expect(citiesIn(purged, kept, [LAST])).toBe(kept.length);
    // Overwritten values went with the purges of the others.
    expect(citiesIn(purged, kept, [0, 1])).toBe(0);
  });

  it('is in no file once its item has ended, even if a hold keeps the content', async () => {
    expect(citiesIn(held, [2], [0, 1, LAST])).toBe(0);
    const { json } = await store.heldContent(CALLER, container('one'), 'item 2', '["p2"]', { reason: 'a test' });
    expect(json).toContain(cityOf(2, LAST));
  });

  it('is in no file that a killed process leaves, once the next process has purged its item', async () => {
    const killed = join(copies, 'killed');
    copyAsKilled(inUse, killed);
    const again = await openEmbeddedStore({ folder: killed, ...options });
    await again.advanceClock(61_000);
    await again.runPurge();
    const expired = all.filter((index) => index % 4 === 1);
    expect(citiesIn(killed, expired, [0, 1, LAST])).toBe(0);
    await again.close();
    expect(citiesIn(killed, expired, [0, 1, LAST])).toBe(0);
    expect(citiesIn(killed, kept, [LAST])).toBe(kept.length);
  });

  it('is in no file once its item is purged, even if an interrupted rebuild had projected its write', async () => {
    const place = join(copies, 'cut short');
    copyAsKilled(inUse, place);
    const first = await openEmbeddedStore({ folder: place, ...options });
    first.startRebuild('items', { eventsPerSecond: 1_000 });
    while (first.rebuildStatus('items')!.position < LIVES) await new Promise((resolve) => setTimeout(resolve, 5));
    await first.close();
    const building = readFileSync(join(place, 'items.v2.db'));
    const isThere = (index: number, round: number) =>
      building.includes(Buffer.from(cityOf(index, round), 'utf16le').swap16());
    const projected = all.filter((index) => [0, 1, LAST].some((round) => isThere(index, round)));
    expect(projected.length).toBeGreaterThan(LIVES / 10);
    const again = await openEmbeddedStore({ folder: place, ...options });
    await again.advanceClock(61_000);
    await again.runPurge();
    const expired = all.filter((index) => index % 4 === 1);
    expect(citiesIn(place, expired, [0, 1, LAST])).toBe(0);
    await again.close();
  });

  it('is in no file once its item is purged and no snapshot from before its end is open', async () => {
    const index = LIVES;
    await write('one', index, 0);
    const snapshot = await store.snapshotItems(container('one'));
    const { id, partitionKey } = nameOf(index);
    await store.deleteItem(CALLER, container('one'), id, partitionKey);
    await store.runPurge();
    // The snapshot still shows the row.
    expect(citiesIn(folder, [index], [0])).toBe(1);
    await snapshot.close();
    await vi.waitFor(() => expect(citiesIn(folder, [index], [0])).toBe(0));
  });

  it('is in no file once it is removed, wherever in the file SQLite had it before', async () => {
    // given
    const random = new Random(1);
    const place = new TestFolder();
    // The read model is given changes that no log has.
    const { readModels } = await place.open({ logMayBeOlder: true });
    const { store: readModel } = readModels.current;
    const lives = 1_500;
    const revisions = Array.from({ length: lives }, () => -1);
    const values: ClearValue[] = [];
    const past: ClearValue[] = [];
    let position = 0;
    const written = (index: number): ReadModelChange => {
      if (values[index] !== undefined) past.push(values[index]);
      const value = clearValue(
        `${random.int(0, 1e9).toString(36).padStart(6, '0')} ${'x'.repeat(random.int(0, 110))}`,
      )!;
      values[index] = value;
      revisions[index]! += 1;
      return {
        kind: 'item-written',
        container: 1,
        ...nameOf(index),
        life: 0,
        revision: revisions[index]!,
        position: ++position,
        ts: 0,
        ttl: null,
        key: index + 1,
        unreadableTtl: false,
        clear: [{ path: 0, value }],
      };
    };
    await readModel.apply(
      Array.from({ length: lives }, (_, index) => written(index)),
      position,
    );
    // when
    for (let batch = 0; batch < 300; batch++) {
      const changes = Array.from({ length: 50 }, () => written(random.int(1, lives - 1)));
      await readModel.apply(changes, position);
    }
    past.push(values.shift()!);
    const { id, partitionKey } = nameOf(0);
    const purge = { container: 1, partitionKey, id, life: 0, purgedAtMs: 1_000 };
    await readModel.apply(
      [
        {
          kind: 'item-purged',
          ...purge,
          disappearance: {
            ...purge,
            position: ++position,
            cause: 'erasure',
            atMs: 1_000,
            recordedAtMs: 1_000,
            actor: null,
            rule: null,
            ttl: null,
            policyVersion: null,
          },
        },
      ],
      position,
    );
    // then
    expect(foundIn(place.path, values.map(clearBytes)).size).toBe(lives - 1);
    const gone = past.splice(0).map(clearBytes);
    expect(foundIn(place.path, gone).size).toBe(0);
    // Later writes do not bring it back either.
    await readModel.apply(
      Array.from({ length: 500 }, () => written(random.int(1, lives - 1))),
      position,
    );
    expect(foundIn(place.path, gone).size).toBe(0);
    await place.dispose();
  });

  it('is removed with its container, and no rebuild brings it back', async () => {
    await store.createContainer(CALLER, 'db', 'two', WITH_CLEAR_PATH, -1);
    for (const index of all.slice(0, 50)) await write('two', index, 7 * LIVES);
    await store.deletePartitionKey(CALLER, container('two'), '["p1"]');
    await store.deleteContainer(CALLER, 'db', 'two');
    await store.runPurge();
    expect(citiesIn(folder, all.slice(0, 50), [7 * LIVES])).toBe(0);
    store.startRebuild('items');
    while (store.rebuildStatus('items')?.state !== 'done') await new Promise((resolve) => setTimeout(resolve, 5));
    expect(store.rebuildStatus('items')).toMatchObject({ differences: 0 });
    expect(citiesIn(folder, gone, [0, 1, LAST])).toBe(0);
    expect(citiesIn(folder, all.slice(0, 50), [7 * LIVES])).toBe(0);
    expect(citiesIn(folder, kept, [LAST])).toBe(kept.length);
  });
});
