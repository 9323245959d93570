import { rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Store } from '@epitaph/api/store/store.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';

export const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
/** The partition key of {@link itemToWrite} for `pk: 'p'`. */
export const PK = '["p"]';

const START_MS = Date.UTC(2026, 10, 21, 10);

/** A folder for one test, whose files are damaged while no store is open in it. */
export class DamagedFolder {
  readonly path: string;

  constructor(purpose: string) {
    this.path = newFolder(purpose);
    onTestFinished(() => removeFolder(this.path));
  }

  /** A store that purges on demand only. The caller closes it. */
  async open(): Promise<Store> {
    return (await openEmbedded({ folder: this.path, time: START_MS, newId: () => crypto.randomUUID() })).store;
  }

  /** Removes a database, so that the next store builds it again. */
  remove(file: string): void {
    for (const name of [file, `${file}-wal`, `${file}-shm`]) rmSync(join(this.path, name), { force: true });
  }

  /** Changes a file, and returns the result of the change. */
  change<Result>(file: string, damage: (database: DatabaseSync) => Result): Result {
    const database = new DatabaseSync(join(this.path, file));
    try {
      return damage(database);
    } finally {
      database.close();
    }
  }
}
