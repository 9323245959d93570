import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { hash } from 'node:crypto';
import { join } from 'node:path';
import { ManualClock, GuardedClock, systemClocks } from '@epitaph/core/clock.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { Store } from '@epitaph/api/store/store.ts';
import type { Caller } from '@epitaph/api/store/api/common.ts';
import { openSqliteStorage, type SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DocumentMaker } from './documents.ts';
import { DATA_FOLDER } from './folders.ts';
import type { Contender, ContenderOptions } from './contender.ts';
import { concurrently } from './timing.ts';

/** The start time of the manual clock. Its value does not matter. */
const START_MS = 1_700_000_000_000;
const DATABASE = 'bench';
/** The default TTL of seeded folders. Nothing expires unless the clock is advanced by this time. */
export const SEEDED_TTL_SECONDS = 315_360_000;

const DEFINITION: ContainerDefinition = {
  partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 },
  indexingPolicy: { indexingMode: 'consistent' },
};

export interface OpenStore {
  readonly store: Store;
  /** The ports below the store: for caches to be emptied and read models to be asked directly. */
  readonly storage: SqliteStorage;
  readonly container: ContainerState;
}

/** All requests use the same caller. In production each has its own id, but the HTTP server makes it, not the store. */
export const caller: Caller = { actor: 'key:primary', correlationId: crypto.randomUUID() };

/** The embedded store as it is by default: threads, durable; composed here as in api/compose.ts, to have its ports too. */
export async function openStore(options: {
  readonly folder: string;
  readonly clock: 'system' | 'manual';
  readonly container?: string;
  readonly defaultTtl?: DefaultTtl;
  readonly automaticPurge?: boolean;
}): Promise<OpenStore> {
  const storage = await openSqliteStorage({ folder: options.folder, clock: options.clock });
  const mark = storage.highWaterMark;
  const store = await Store.open({
    ...storage,
    clock:
      options.clock === 'manual'
        ? new ManualClock(mark.initialMs > 0 ? mark.initialMs : START_MS, mark)
        : new GuardedClock({ sources: systemClocks, mark }),
    automaticPurge: options.automaticPurge ?? true,
    onFault: (error) => {
      throw error;
    },
    closePorts: () => storage.close(),
  });
  if (store.listDatabases().length === 0) await store.createDatabase(caller, DATABASE);
  const name = options.container ?? 'items';
  const container =
    store.listContainers(DATABASE).find((known) => known.name === name) ??
    (await addContainer(store, name, options.defaultTtl ?? null));
  return { store, storage, container };
}

export async function addContainer(store: Store, name: string, defaultTtl: DefaultTtl): Promise<ContainerState> {
  return (await store.createContainer(caller, DATABASE, name, DEFINITION, defaultTtl)).resource;
}

export async function changeTtl(store: Store, container: ContainerState, defaultTtl: DefaultTtl): Promise<void> {
  await store.replaceContainer(caller, DATABASE, container.name, DEFINITION, defaultTtl);
}

/** Writes the documents with the numbers of a range, many concurrently. */
export async function seed(
  store: Store,
  container: ContainerState,
  from: number,
  to: number,
  bytes = 1024,
): Promise<void> {
  const documents = new DocumentMaker({ bytes });
  await concurrently(to - from, 256, (index) =>
    store.writeItem(caller, container, 'upsert', documents.make(from + index)),
  );
}

/**
 * Copies a data folder with this many items of 1 KB in its container `items`, on the manual clock, with a default TTL of
 * {@link SEEDED_TTL_SECONDS}. The original is kept beside the peers: a million items take minutes to write.
 */
export async function seededFolder(to: string, items: number): Promise<string> {
  cpSync(await seededOriginal(items), to, { recursive: true });
  return to;
}

/** A contender that does nothing but write the folder that {@link seededFolder} copies, unless it is there. */
export async function seeder({ items }: ContenderOptions): Promise<Contender> {
  await seededOriginal(Number(items));
  return { works: {}, close: () => {} };
}

async function seededOriginal(items: number): Promise<string> {
  const original = join(DATA_FOLDER, `${items}-${SEEDED_TTL_SECONDS}-${formatDigest()}`);
  if (!existsSync(original)) {
    const building = `${original}.building`;
    rmSync(building, { recursive: true, force: true });
    mkdirSync(building, { recursive: true });
    const { store, container } = await openStore({
      folder: building,
      clock: 'manual',
      defaultTtl: SEEDED_TTL_SECONDS,
      automaticPurge: false,
    });
    await seed(store, container, 0, items);
    await store.close();
    renameSync(building, original);
  }
  return original;
}

/** A digest that changes with the storage format, so that no seeded folder of an older format is measured. */
function formatDigest(): string {
  const sources = [
    '@epitaph/storage/sqlite/schema.ts',
    '@epitaph/storage/sqlite/log-writer-core.ts',
    '@epitaph/storage/sqlite/log-writer-jobs.ts',
    '@epitaph/storage/sqlite/vault-tables.ts',
    '@epitaph/storage/crypto/gcm-body-sealer.ts',
    '@epitaph/storage/crypto/item-naming.ts',
    '@epitaph/core/item/events.ts',
    '@epitaph/core/container/events.ts',
  ];
  const text = sources.map((source) => readFileSync(new URL(import.meta.resolve(source)), 'utf8')).join('\n');
  return hash('sha256', text).slice(0, 12);
}

/** Rebuilds the read models and resolves when the new version is in use. */
export async function rebuildNow(store: Store): Promise<void> {
  store.startRebuild('items');
  for (;;) {
    const status = store.rebuildStatus('items')!;
    if (status.state === 'done') return;
    if (status.state === 'failed' || status.state === 'cancelled')
      throw new Error(`rebuild ${status.state}: ${status.error ?? ''}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
