import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import { openForReading } from '@epitaph/storage/sqlite/database.ts';
import { NameFilter } from '@epitaph/storage/sqlite/name-filter.ts';
import { ReadModelWriterCore } from '@epitaph/storage/sqlite/read-model-writer-core.ts';
import { SqliteReadModelStore } from '@epitaph/storage/sqlite/sqlite-read-model-store.ts';
import { InlineWriter, type Writer } from '@epitaph/storage/sqlite/writer.ts';
import { ended, written } from './item-changes.ts';
import { TestFolder } from './sqlite-folder.ts';

/** Rows with a filter over them, as a store has them. */
class Rows {
  readonly births: string[] = [];
  readonly names = new Set<string>();
  readonly filter: NameFilter;
  /** How often a read of all rows was begun. */
  begun = 0;
  #fault: Error | undefined;

  constructor(leastRoom?: number) {
    this.filter = new NameFilter(() => {
      this.begun++;
      return this.#read();
    }, leastRoom);
  }

  add(name: string): void {
    this.filter.add(name);
    this.births.push(name);
    this.names.add(name);
  }

  fail(): void {
    this.#fault = new Error('database disk image is malformed');
  }

  /** How many of some new names the filter reports as new. */
  told(prefix: string, of: number): number {
    let told = 0;
    for (let number = 0; number < of; number++) if (this.filter.isNew(`${prefix}${number}`)) told++;
    return told;
  }

  *#read(): Generator<string[], void> {
    for (let at = 0; ;) {
      const piece: string[] = [];
      for (; piece.length < 3 && at < this.births.length; at++) {
        if (this.names.has(this.births[at]!)) piece.push(this.births[at]!);
      }
      if (this.#fault !== undefined) throw this.#fault;
      yield piece;
      if (piece.length < 3) return;
    }
  }
}

describe('a filter of names', () => {
  it('reports no existing name as new, whatever is added and removed while it is read', () => {
    const name = fc.integer({ min: 0, max: 40 }).map((number) => `name-${number}`);
    const step = fc.record({ kind: fc.constantFrom('add', 'add', 'remove', 'ask'), name });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 150 }), fc.constantFrom(2, 8, 64), (steps, leastRoom) => {
        const rows = new Rows(leastRoom);
        for (const { kind, name: named } of steps) {
          if (kind === 'add') rows.add(named);
          else if (kind === 'remove') rows.names.delete(named);
          else if (rows.filter.isNew(named)) expect(rows.names).not.toContain(named);
        }
        for (const known of rows.names) expect(rows.filter.isNew(known)).toBe(false);
      }),
      { numRuns: 200 },
    );
  });

  it('reads nothing before the first question, and then reports almost all new names as new', () => {
    const rows = new Rows();
    for (let number = 0; number < 300; number++) rows.add(`here-${number}`);
    expect(rows.begun).toBe(0);
    // 300 names, 3 for each question. The question after the last one finds none.
    expect(rows.told('early-', 101)).toBe(0);
    expect(rows.told('new-', 1_000)).toBe(1_000);
    expect(rows.begun).toBe(1);
  });

  it('makes room for all names', () => {
    const rows = new Rows(8);
    for (let number = 0; number < 1_000; number++) rows.add(`here-${number}`);
    rows.told('early-', 500);
    expect(rows.told('new-', 1_000)).toBeGreaterThan(980);
    // 8, 32, 128, 512, 2,048: it began again each time it was half full.
    expect(rows.begun).toBe(5);
  });

  it('forgets removed names', () => {
    const rows = new Rows(512);
    let told = 0;
    for (let number = 0; number < 20_000; number++) {
      if (rows.filter.isNew(`name-${number}`)) told++;
      rows.add(`name-${number}`);
      rows.names.delete(`name-${number - 100}`);
    }
    expect(told).toBeGreaterThan(19_800);
    // It begins again whenever 256 have been added to the existing ones.
    expect(rows.begun).toBeLessThan(20_000 / 256);
    expect([...rows.names].filter((name) => rows.filter.isNew(name))).toEqual([]);
  });

  it('is not read again for names that were added before', () => {
    const rows = new Rows(8);
    for (let round = 0; round < 100; round++) {
      rows.add('here');
      expect(rows.filter.isNew('here')).toBe(false);
    }
    expect(rows.begun).toBe(1);
  });

  it('reports nothing as new if names can’t be read', () => {
    const rows = new Rows();
    for (let number = 0; number < 10; number++) rows.add(`here-${number}`);
    expect(rows.filter.isNew('new')).toBe(false);
    rows.fail();
    expect(rows.told('new-', 20)).toBe(0);
    rows.add('another');
    expect(rows.begun).toBe(1);
  });
});

describe('the last life of an item in SQLite', () => {
  let folder: TestFolder;
  let writer: Writer;

  beforeEach(() => {
    folder = new TestFolder();
    writer = new InlineWriter(new ReadModelWriterCore({ file: folder.file('items.db'), synchronous: 'OFF' }));
  });
  afterEach(async () => {
    await writer.close();
    await folder.dispose();
  });

  const open = () => {
    const database = openForReading(folder.file('items.db'));
    return { database, store: new SqliteReadModelStore(writer, database) };
  };

  it('is known of earlier and later rows without asking the database about others', async () => {
    const { store } = open();
    const changes: ReadModelChange[] = [];
    for (let at = 0; at < 100; at++) {
      const position = 3 * at + 1;
      changes.push(written(`live-${at}`, position, 0, 0));
      changes.push(written(`ended-${at}`, position + 1), ended(`ended-${at}`, position + 2));
    }
    await store.apply(changes, 300);

    const reopened = open();
    const lastLife = (id: string) => reopened.store.lastLife(1, '["p"]', id);
    for (let at = 0; at < 100; at++) {
      expect([lastLife(`live-${at}`), lastLife(`ended-${at}`), lastLife(`new-${at}`)]).toEqual([0, 1, undefined]);
      await reopened.store.apply([written(`new-${at}`, 301 + at, 0, 2)], 301 + at);
      expect(lastLife(`new-${at}`)).toBe(2);
    }
    // The log may have lost the writes before an end.
    await reopened.store.apply([ended('end-alone', 401, 3)], 401);
    expect(lastLife('end-alone')).toBe(3);

    reopened.database.close();
    expect(lastLife('another')).toBeUndefined();
    expect(() => lastLife('new-99')).toThrow('finalized');
    expect(() => lastLife('ended-99')).toThrow('finalized');
  });

  it('is told without the database also if each question is followed by a row', async () => {
    const { database, store } = open();
    for (let at = 0; at < 10; at++) {
      await store.apply([written(`new-${at}`, at + 1)], at + 1);
      expect(store.lastLife(1, '["p"]', `new-${at + 1}`)).toBeUndefined();
    }
    database.close();
    expect(store.lastLife(1, '["p"]', 'another')).toBeUndefined();
  });
});
