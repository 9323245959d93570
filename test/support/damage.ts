import { closeSync, openSync, writeSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

/** Writes zeros over the first page of a table, in a file of a closed store. */
export function zeroTable(file: string, table: string): void {
  const database = new DatabaseSync(file);
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  const { rootpage } = database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(table) as {
    readonly rootpage: number;
  };
  const { page_size: size } = database.prepare('PRAGMA page_size').get() as { readonly page_size: number };
  database.close();
  const descriptor = openSync(file, 'r+');
  writeSync(descriptor, Buffer.alloc(size), 0, size, (rootpage - 1) * size);
  closeSync(descriptor);
}
