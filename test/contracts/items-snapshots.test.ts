import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClocks } from '@epitaph/core/clock.ts';
import { ReadModelWriterCore } from '@epitaph/storage/sqlite/read-model-writer-core.ts';
import { SqliteItemsSnapshots } from '@epitaph/storage/sqlite/sqlite-items-snapshots.ts';
import { TestFolder } from './sqlite-folder.ts';

const nothing = async () => {};

describe('snapshots of the items in SQLite', () => {
  let folder: TestFolder;
  let writer: DatabaseSync;

  beforeEach(() => {
    folder = new TestFolder();
    const core = new ReadModelWriterCore({ file: folder.file('items.db'), synchronous: 'OFF' });
    core.close();
    writer = new DatabaseSync(folder.file('items.db'), { timeout: 0 });
  });
  afterEach(async () => {
    writer.close();
    await folder.dispose();
  });

  /** Writes, then tries to empty the journal (the WAL), which works only while no snapshot is open. */
  const isEmptied = (): boolean => {
    writer.exec('UPDATE checkpoint SET position = position + 1');
    return (writer.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { busy: number }).busy === 0;
  };

  it('that have overlapped for a long time leave a gap in which the journal can be emptied', async () => {
    const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), nothing, { afterMs: 0, maxWaitMs: 600_000 });
    const [one, another] = [await snapshots.open(), snapshots.open()];
    let isOpen = false;
    void another.then(() => (isOpen = true));
    expect(isEmptied()).toBe(false);
    await one.close();
    expect([isEmptied(), isOpen]).toEqual([true, false]);
    await (await another).close();
    // A snapshot that has overlapped with no other leaves no gap: the next one opens at once.
    const next = await snapshots.open();
    expect(isEmptied()).toBe(false);
    // Those that overlap later leave another gap.
    const last = snapshots.open();
    await next.close();
    expect(isEmptied()).toBe(true);
    await (await last).close();
    snapshots.close();
  });

  it('are opened without a gap if the others are not closed in time, or have not overlapped for long', async () => {
    for (const gaps of [
      { afterMs: 0, maxWaitMs: 10 },
      // Longer than they have overlapped, but not longer than the process has been running.
      { afterMs: systemClocks.monotonicMs(), maxWaitMs: 600_000 },
    ]) {
      const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), nothing, gaps);
      const open = [await snapshots.open(), await snapshots.open(), await snapshots.open()];
      snapshots.close();
      // Closing the source leaves the open snapshots usable.
      for (const snapshot of open) expect(await snapshot.allItems(1, 0, 10)).toEqual([]);
      for (const snapshot of open) await snapshot.close();
      expect(isEmptied()).toBe(true);
    }
  });

  it('are not opened while the writer erases, and if some were open then, the journal is emptied once none is', async () => {
    let emptied = 0;
    const empty = async () => {
      if (isEmptied()) emptied++;
    };
    const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), empty);
    const open = await snapshots.open();
    let erased: () => void;
    const erasing = snapshots.whileErasing(() => new Promise((resolve) => (erased = resolve)));
    let isOpen = false;
    const next = snapshots.open().then((opened) => {
      isOpen = true;
      return opened;
    });
    await sleep(20);
    expect([isOpen, isEmptied()]).toEqual([false, false]);
    erased!();
    await erasing;
    await open.close();
    expect([isOpen, emptied]).toEqual([true, 0]);
    await (await next).close();
    expect(emptied).toBe(1);
    await (await snapshots.open()).close();
    expect(emptied).toBe(1);
    const failing = snapshots.whileErasing(async () => {
      await sleep(5);
      throw new Error('the disk is full');
    });
    const meanwhile = snapshots.open();
    await expect(failing).rejects.toThrow('full');
    await (await meanwhile).close();
    snapshots.close();
  });

  it('that are closed before the writer has said what it erased have the journal emptied, too', async () => {
    let emptied = 0;
    const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), async () => {
      emptied++;
      // The writer tries again with its next group.
      throw new Error('the disk is full');
    });
    const ends: (() => void)[] = [];
    const erase = () => snapshots.whileErasing(() => new Promise((resolve) => ends.push(resolve)));
    const open = await snapshots.open();
    const first = erase();
    await open.close();
    expect(emptied).toBe(1);
    ends[0]!();
    await first;
    await (await snapshots.open()).close();
    expect(emptied).toBe(1);
    // This one waits only for the erasure that has begun before it.
    const second = erase();
    const another = snapshots.open();
    await sleep(1);
    const third = erase();
    ends[1]!();
    await second;
    await (await another).close();
    expect(emptied).toBe(2);
    ends[2]!();
    await third;
    snapshots.close();
  });

  it('are not opened before the later of two erasures has ended', async () => {
    const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), nothing);
    const ends: (() => void)[] = [];
    const erase = () => snapshots.whileErasing(() => new Promise((resolve) => ends.push(resolve)));
    const [first, second] = [erase(), erase()];
    ends[0]!();
    await first;
    let isOpen = false;
    const next = snapshots.open().then((opened) => {
      isOpen = true;
      return opened;
    });
    await sleep(20);
    expect(isOpen).toBe(false);
    ends[1]!();
    await second;
    await (await next).close();
    snapshots.close();
  });
});
