import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ItemRow, ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { ReadModelWriterCore } from '@epitaph/storage/sqlite/read-model-writer-core.ts';
import { openForReading } from '@epitaph/storage/sqlite/database.ts';
import { type Lag, WriteBehindReadModelStore } from '@epitaph/storage/sqlite/write-behind.ts';
import { InlineWriter } from '@epitaph/storage/sqlite/writer.ts';
import { ended, written } from './item-changes.ts';
import { TestFolder } from './sqlite-folder.ts';

/** The inner store, which can be made to fail, and the batches that reached it. */
class Behind {
  readonly told: string[][] = [];
  readonly checkpoints: number[] = [];
  fault: Error | undefined;
  /** The next batch waits for this before it is looked at. */
  until: Promise<void> | undefined;

  constructor(store: ReadModelStore) {
    const apply = store.apply.bind(store);
    store.apply = async (changes, checkpoint, ...more) => {
      await this.until;
      if (this.fault !== undefined) throw this.fault;
      this.told.push(
        changes.map((change) => (change.kind === 'item-written' ? `${change.id}@${change.position}` : change.kind)),
      );
      this.checkpoints.push(checkpoint);
      await apply(changes, checkpoint, ...more);
    };
  }
}

describe('read models that are written behind', () => {
  let folder: TestFolder;
  let opened: WriteBehindReadModelStore[];

  beforeEach(() => {
    folder = new TestFolder();
    opened = [];
  });
  afterEach(async () => {
    for (const store of opened) await store.close();
    await folder.dispose();
  });

  function open(lag: Lag): { store: WriteBehindReadModelStore; behind: Behind } {
    const file = folder.file('items.db');
    const writer = new InlineWriter(new ReadModelWriterCore({ file, synchronous: 'OFF' }));
    const sqlite = new SqliteReadModelStore(writer, openForReading(file));
    const behind = new Behind(sqlite);
    const store = new WriteBehindReadModelStore(sqlite, lag);
    opened.push(store);
    return { store, behind };
  }
  const onDemand: Lag = { changes: 100, forMs: undefined };
  const find = async (store: ReadModelStore, id: string): Promise<ItemRow | undefined> =>
    store.findItem(1, '["p"]', id);
  const all = async (store: ReadModelStore) =>
    (await store.allItems(1, 0, 100)).map(({ id, position }) => [id, position]);

  it('find an item that still waits, without writing it through', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    await store.apply([written('a', 2, 1), written('b', 3)], 3);
    expect(await find(store, 'a')).toMatchObject({ birth: 1, position: 2, ts: 2 });
    expect(await find(store, 'b')).toMatchObject({ birth: 3, position: 3 });
    expect(await store.lastLife(1, '["p"]', 'b')).toBe(1);
    expect(await find(store, 'c')).toBeUndefined();
    expect(await store.lastLife(1, '["p"]', 'c')).toBeUndefined();
    await store.apply([{ kind: 'log-mark', position: 3, atMs: 1_000 }], 3);
    await sleep(5);
    expect(behind.told).toEqual([]);
  });

  it('know the birth of an item that existed before from its row', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    expect(await store.checkpoint()).toBe(1);
    await store.apply([written('a', 5, 1)], 5);
    await store.apply([written('a', 6, 2)], 6);
    expect(await find(store, 'a')).toMatchObject({ birth: 1, position: 6 });
    expect(behind.told).toEqual([['a@1']]);
  });

  it('answer everything else once the waiting changes are written, in one batch', async () => {
    const { store, behind } = open(onDemand);
    for (let position = 1; position <= 3; position++) await store.apply([written(`i${position}`, position)], position);
    const [rows, count, checkpoint] = await Promise.all([all(store), store.countItems(1), store.checkpoint()]);
    expect(rows).toEqual([
      ['i1', 1],
      ['i2', 2],
      ['i3', 3],
    ]);
    expect([count, checkpoint]).toEqual([3, 3]);
    expect(behind.told).toEqual([['i1@1', 'i2@2', 'i3@3']]);
    expect(behind.checkpoints).toEqual([3]);
  });

  it('don’t write through for reads of another container', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1), { ...written('b', 2), container: 2 }], 2);
    expect(await store.countItems(3)).toBe(0);
    expect(behind.told).toEqual([]);
    expect(await store.countItems(2)).toBe(1);
    expect(behind.told).toEqual([['a@1', 'b@2']]);
  });

  it('write an end through at once, with the writes before it', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1), written('b', 2)], 2);
    await store.apply([ended('a', 1)], 3);
    expect(behind.told).toEqual([['a@1', 'b@2', 'item-ended']]);
    expect(await find(store, 'a')).toBeUndefined();
    await store.apply([{ ...written('a', 4), life: 2 }], 4);
    expect(await find(store, 'a')).toMatchObject({ birth: 4, life: 2 });
    expect(await all(store)).toEqual([
      ['b', 2],
      ['a', 4],
    ]);
  });

  it('let changes wait no longer than allowed, and no more of them', async () => {
    const { store, behind } = open({ changes: 3, forMs: 5 });
    await store.apply([written('a', 1), written('b', 2)], 2);
    expect(behind.told).toEqual([]);
    await store.apply([written('c', 3), written('d', 4)], 4);
    expect(behind.told).toEqual([['a@1', 'b@2', 'c@3', 'd@4']]);
    await store.apply([written('e', 5)], 5);
    while (behind.told.length < 2) await sleep(1);
    expect(behind.told[1]).toEqual(['e@5']);
  });

  it('find an item while it is being written through, and accept further changes to it', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    const { promise, resolve } = Promise.withResolvers<void>();
    behind.until = promise;
    const reading = all(store);
    await sleep(1);
    expect(await find(store, 'a')).toMatchObject({ birth: 1, position: 1 });
    await store.apply([written('a', 2, 1)], 2);
    expect(await find(store, 'a')).toMatchObject({ birth: 1, position: 2 });
    resolve();
    await reading;
    expect(await all(store)).toEqual([['a', 2]]);
    expect(behind.told).toEqual([['a@1'], ['a@2']]);
  });

  it.each([1, 2, 3])(
    'keep later writes while an attempt to write through fails, also for reads of container %i',
    async (read) => {
      const { store, behind } = open(onDemand);
      await store.apply([written('a', 1), { ...written('b', 2), container: 2 }], 2);
      const { promise, resolve } = Promise.withResolvers<void>();
      behind.until = promise;
      behind.fault = new Error('the disk is full');
      const reading = expect(all(store)).rejects.toThrow('the disk is full');
      await sleep(1);
      await store.apply([written('a', 3, 1), { ...written('c', 4), container: 3 }], 4);
      resolve();
      await reading;
      expect(await find(store, 'a')).toMatchObject({ birth: 1, position: 3 });
      behind.fault = undefined;
      expect(await store.countItems(read)).toBe(1);
      expect(behind.told).toEqual([['a@1', 'b@2', 'a@3', 'c@4']]);
      expect(behind.checkpoints).toEqual([4]);
    },
  );

  it('write through what had failed as soon as somebody reads and it is possible', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    behind.fault = new Error('the disk is full');
    await expect(all(store)).rejects.toThrow('the disk is full');
    behind.fault = undefined;
    expect(await store.checkpoint()).toBe(1);
    expect(behind.told).toEqual([['a@1']]);
  });

  it('keep an item whose beginning the log has lost together with its later writes, also after a fault', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1, 1)], 1, undefined, true);
    behind.fault = new Error('the disk is full');
    await expect(all(store)).rejects.toThrow('the disk is full');
    behind.fault = undefined;
    await store.apply([written('b', 2)], 2);
    expect(await all(store)).toEqual([
      ['a', 1],
      ['b', 2],
    ]);
    await expect(store.apply([written('c', 3, 1), ended('b', 3)], 3)).rejects.toThrow(
      'a later write at 3 finds its item',
    );
  });

  it('keep what could not be written through, report it to each caller that needs it, and go on when it is possible', async () => {
    const { store, behind } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    behind.fault = new Error('the disk is full');
    await expect(all(store)).rejects.toThrow('the disk is full');
    expect(await find(store, 'a')).toMatchObject({ position: 1 });
    // A refused batch is not kept, because it will be applied again.
    await expect(store.apply([written('b', 2)], 2)).rejects.toThrow('the disk is full');
    expect(await find(store, 'b')).toBeUndefined();
    behind.fault = undefined;
    await store.apply([written('b', 2)], 2);
    expect(behind.told).toEqual([['a@1', 'b@2']]);
    await store.apply([written('b', 3, 1)], 3);
    expect(behind.told).toHaveLength(1);
  });

  it('are completely written when they are closed, and nothing prevents that', async () => {
    const { store } = open(onDemand);
    await store.apply([written('a', 1)], 1);
    await store.close();
    opened.pop();
    const { store: again, behind } = open(onDemand);
    expect(await all(again)).toEqual([['a', 1]]);
    await again.apply([written('b', 2)], 2);
    behind.fault = new Error('the disk is full');
    await again.close();
    opened.pop();
    expect(await open(onDemand).store.checkpoint()).toBe(1);
  });
});
