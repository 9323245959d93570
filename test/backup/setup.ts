import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type EmbeddedStoreOptions, openEmbeddedStore } from '@epitaph/api/compose.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { command } from '../../packages/api/test/cli/process.ts';
import { scratch } from '../contracts/sqlite-folder.ts';

export const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000000' };
export const START_MS = Date.UTC(2026, 10, 21, 10);

/** A place of its own for the folders of one test, with a store in one of them. */
export class Place {
  readonly path = mkdtempSync(join(scratch, 'epitaph-backup-'));
  #store: Store | undefined;

  file(...names: string[]): string {
    return join(this.path, ...names);
  }

  async open(options: Partial<EmbeddedStoreOptions> = {}): Promise<Store> {
    this.#store = await openEmbeddedStore({
      folder: this.file('data'),
      clock: 'manual',
      startMs: START_MS,
      durable: false,
      automaticPurge: false,
      policyGraceSeconds: 0,
      backupsInto: 'anywhere',
      ...options,
    });
    return this.#store;
  }

  async close(): Promise<void> {
    await this.#store?.close();
    this.#store = undefined;
  }

  async dispose(): Promise<void> {
    await this.close();
    rmSync(this.path, { recursive: true, force: true });
  }
}

export const itemOf = (id: string) => ({ id, partitionKey: '["p"]' });

export async function write(store: Store, container: string, id: string, more: object = {}): Promise<void> {
  const document = { id, pk: 'p', ...more };
  await store.writeItem(CALLER, store.container('db', container), 'upsert', {
    ...itemOf(id),
    document,
    json: JSON.stringify(document),
  });
}

export async function readable(store: Store, container: string, id: string): Promise<boolean> {
  try {
    await store.readItem(store.container('db', container), id, '["p"]');
    return true;
  } catch {
    return false;
  }
}

/** The wrapped life keys in a vault's file, by their numbers. */
export function wrappedKeys(folder: string): Map<number, Buffer> {
  const vault = new DatabaseSync(join(folder, 'vault.db'), { readOnly: true });
  try {
    const rows = vault.prepare('SELECT id, wrapped FROM keys').all() as { id: number; wrapped: Uint8Array }[];
    return new Map(rows.map(({ id, wrapped }) => [id, Buffer.from(wrapped)]));
  } finally {
    vault.close();
  }
}

export const isZero = (bytes: Buffer): boolean => bytes.every((byte) => byte === 0);

export function ledgerLines(file: string): Record<string, unknown>[] {
  return readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Runs a command line in this process. */
export async function epitaph(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const { code, stdout, stderr } = await command(args, environment);
  return { code, out: stdout, err: stderr };
}
