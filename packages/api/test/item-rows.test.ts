import { describe, expect, it } from 'vitest';
import type { ItemRow, ReadModelChange, ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import { ItemRows } from '@epitaph/api/store/item-rows.ts';
import { hasExpired } from '@epitaph/api/store/items/scans.ts';

const CONTAINER = 2;
const row = (position: number, over: Partial<ItemRow> = {}): ItemRow => ({
  birth: 10,
  container: CONTAINER,
  partitionKey: '["p"]',
  id: 'a',
  life: 0,
  position,
  ts: position,
  ttl: null,
  key: 1,
  ...over,
});
const written = (position: number, revision: number): ReadModelChange => ({
  kind: 'item-written',
  container: CONTAINER,
  partitionKey: '["p"]',
  id: 'a',
  life: 0,
  revision,
  position,
  ts: position,
  ttl: null,
  key: 1,
  unreadableTtl: false,
});

/** A read model with one row, which counts its reads. */
function world(first: ItemRow | undefined) {
  const model = { row: first, asked: 0 };
  const store = {
    findItem: () => {
      model.asked += 1;
      return model.row;
    },
  } as unknown as ReadModelStore;
  const rows = new ItemRows(() => store, { shared: false });
  const find = () => rows.find(CONTAINER, '["p"]', 'a');
  return { model, rows, find };
}

describe('cached rows', () => {
  it('are read once, until a change to them begins', () => {
    const { model, find } = world(row(10));
    expect([find(), find(), model.asked]).toEqual([row(10), row(10), 1]);
  });

  it('are read from the read model while they change, whatever it has then, and are right afterwards', () => {
    const { model, rows, find } = world(row(10));
    void find();
    rows.applying([written(11, 1)]);
    expect([find(), model.asked]).toEqual([row(10), 2]);
    model.row = row(11);
    expect([find(), model.asked]).toEqual([row(11), 3]);
    rows.applied([written(11, 1)]);
    expect([find(), model.asked]).toEqual([row(11), 3]);
  });

  it('of a new life are known from the change alone', () => {
    const { model, rows, find } = world(undefined);
    rows.applying([written(10, 0)]);
    rows.applied([written(10, 0)]);
    expect([find(), model.asked]).toEqual([row(10), 0]);
  });

  it('can change twice in one batch, or in two overlapping ones', () => {
    const { model, rows, find } = world(row(10));
    void find();
    rows.applying([written(11, 1), written(12, 2)]);
    rows.applied([written(11, 1), written(12, 2)]);
    expect(find()).toEqual(row(12));
    rows.applying([written(13, 3)]);
    rows.applying([written(14, 4)]);
    rows.applied([written(13, 3)]);
    rows.applied([written(14, 4)]);
    expect([find(), model.asked]).toEqual([row(14), 1]);
  });

  it('are dropped with their life, with their partition key, and with a change that failed', () => {
    const ended: ReadModelChange = {
      kind: 'item-purged',
      container: CONTAINER,
      partitionKey: '["p"]',
      id: 'a',
      life: 0,
      purgedAtMs: 1,
      disappearance: {} as never,
    };
    const swept: ReadModelChange = {
      kind: 'partition-key-deleted',
      container: CONTAINER,
      partitionKey: '["p"]',
      atMs: 1,
      actor: 'key:primary',
      marks: { defaultMs: 0, itemMs: 0 },
    };
    for (const change of [ended, swept]) {
      const { model, rows, find } = world(row(10));
      void find();
      rows.applying([change]);
      // This read may return the former row, which must not be cached.
      void find();
      model.row = undefined;
      rows.applied([change]);
      expect(find()).toBe(undefined);
    }
    const { model, rows, find } = world(row(10));
    void find();
    rows.applying([written(11, 1)]);
    rows.failed();
    model.row = row(11);
    expect(find()).toEqual(row(11));
  });

  it('of a whole container are cached only if nothing changed while they were collected', () => {
    const { rows } = world(row(10));
    const before = rows.changesOf(CONTAINER);
    rows.keep(CONTAINER, [row(10)], before);
    expect(rows.scanned(CONTAINER)?.rows).toEqual([row(10)]);
    rows.applying([written(11, 1)]);
    expect(rows.scanned(CONTAINER)).toBe(undefined);
    // Collected during a change, so the read model may have given either state.
    rows.keep(CONTAINER, [row(10)], rows.changesOf(CONTAINER));
    expect(rows.scanned(CONTAINER)).toBe(undefined);
    rows.applied([written(11, 1)]);
    rows.keep(CONTAINER, [row(10)], before);
    expect(rows.scanned(CONTAINER)).toBe(undefined);
    rows.keep(CONTAINER, [row(11)], rows.changesOf(CONTAINER));
    expect(rows.scanned(CONTAINER)?.rows).toEqual([row(11)]);
  });

  it('of a whole container are not cached if some of them are from read models that were replaced meanwhile', () => {
    let store = {} as ReadModelStore;
    const rows = new ItemRows(() => store, { shared: false });
    const before = rows.changesOf(CONTAINER);
    expect(rows.beginCollecting(CONTAINER)).toBe(true);
    // A rebuild may have corrected them.
    store = {} as ReadModelStore;
    rows.keep(CONTAINER, [row(10)], before);
    expect(rows.scanned(CONTAINER)).toBe(undefined);
    rows.endCollecting(CONTAINER);
    rows.keep(CONTAINER, [row(10)], rows.changesOf(CONTAINER));
    expect(rows.scanned(CONTAINER)?.rows).toEqual([row(10)]);
  });

  it('of a whole container are collected by one scan at a time, and only for a few containers', () => {
    const { rows } = world(row(10));
    expect([CONTAINER, CONTAINER, 3, 4, 5, 6].map((container) => rows.beginCollecting(container))).toEqual([
      true,
      false,
      true,
      true,
      true,
      false,
    ]);
    rows.endCollecting(CONTAINER);
    expect([6, CONTAINER].map((container) => rows.beginCollecting(container))).toEqual([true, false]);
  });

  it('of a whole container have their documents with them until a change, an erasure, or too many others', () => {
    const { rows } = world(row(10));
    const keep = (container: number, characters: number) => {
      rows.keep(container, [row(10)], rows.changesOf(container));
      rows.keepDocuments(container, rows.scanned(container)!, { documents: [{ id: 'a' }], characters });
    };
    const kept = () => [CONTAINER, 3, 4].map((container) => rows.documents(container) !== undefined);
    keep(CONTAINER, 16 * 1024 * 1024);
    keep(3, 16 * 1024 * 1024);
    expect(kept()).toEqual([true, true, false]);
    keep(4, 1);
    expect(kept()).toEqual([false, true, true]);
    keep(CONTAINER, 33 * 1024 * 1024);
    expect(kept()).toEqual([false, true, true]);
    const scan = rows.scanned(CONTAINER)!;
    rows.applying([written(11, 1)]);
    rows.keepDocuments(CONTAINER, scan, { documents: [{ id: 'a' }], characters: 1 });
    rows.applied([written(11, 1)]);
    expect([kept(), rows.scanned(3)?.rows.length]).toEqual([[false, true, true], 1]);
    rows.erased();
    expect([kept(), rows.scanned(3)?.rows.length]).toEqual([[false, false, false], 1]);
  });

  it('of a whole container are known to be unexpired from the first two deadlines', () => {
    const { rows } = world(row(10));
    const scanned = [row(20), row(10), row(30, { ttl: 5 }), row(31, { ttl: 3 }), row(1, { ttl: -1 })];
    rows.keep(CONTAINER, scanned, rows.changesOf(CONTAINER));
    const expired = (defaultMs: number, itemMs: number) => hasExpired(rows.scanned(CONTAINER)!, { defaultMs, itemMs });
    expect([expired(9_999, 33_999), expired(10_000, 0), expired(0, 34_000)]).toEqual([false, true, true]);
  });

  it('are not cached if other processes write', () => {
    const model = { asked: 0 };
    const store = { findItem: () => (model.asked++, row(10)) } as unknown as ReadModelStore;
    const rows = new ItemRows(() => store, { shared: true });
    rows.applying([written(10, 0)]);
    rows.applied([written(10, 0)]);
    for (let time = 0; time < 2; time++) void rows.find(CONTAINER, '["p"]', 'a');
    rows.keep(CONTAINER, [row(10)], rows.changesOf(CONTAINER));
    expect([model.asked, rows.scanned(CONTAINER)]).toEqual([2, undefined]);
  });
});
