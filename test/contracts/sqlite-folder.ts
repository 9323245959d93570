import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  openSqliteStorage,
  type SqliteStorage,
  type SqliteStorageOptions,
} from '@epitaph/storage/sqlite/open-sqlite-storage.ts';

export type StorageOptions = Partial<Omit<SqliteStorageOptions, 'folder'>>;

/** Where tests put their folders: in memory if the machine has such a place, because the tests sync a lot. */
export const scratch = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

/** A data folder for one test. When it is disposed of, everything opened in it is closed, and the folder is removed. */
export class TestFolder {
  readonly path = mkdtempSync(join(scratch, 'epitaph-test-'));
  readonly #opened: SqliteStorage[] = [];

  file(name: string): string {
    return join(this.path, name);
  }

  async open(options: StorageOptions = {}): Promise<SqliteStorage> {
    const storage = await openSqliteStorage({ folder: this.path, clock: 'manual', writers: 'inline', ...options });
    this.#opened.push(storage);
    return storage;
  }

  async close(): Promise<void> {
    const last = this.#opened.pop();
    await last?.close();
  }

  /** Closes what is open. A test may have removed files on purpose, which is not a failure here. */
  async dispose(): Promise<void> {
    for (const storage of this.#opened.splice(0)) await storage.close().catch(() => {});
    rmSync(this.path, { recursive: true, force: true });
  }
}
