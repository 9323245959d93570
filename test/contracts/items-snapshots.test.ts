import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
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
    const snapshots = new SqliteItemsSnapshots(folder.file('items.db'), nothing, { afterMs: 0, maxWaitMs: 10_000 });
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
    await next.close();
    expect(isEmptied()).toBe(true);
    snapshots.close();
  });

  it('are opened without a gap if the others are not closed in time, or have not overlapped for long', async () => {
    for (const gaps of [
      { afterMs: 0, maxWaitMs: 10 },
      { afterMs: 60_000, maxWaitMs: 60_000 },
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
    const failing = snapshots.whileErasing(() => Promise.reject(new Error('the disk is full')));
    await expect(failing).rejects.toThrow('full');
    await (await snapshots.open()).close();
    snapshots.close();
  });
});
