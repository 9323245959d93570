import type { KeyObject } from 'node:crypto';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import { unwrapKey, wrapKey } from '../crypto/key-wrapping.ts';
import {
  AccessRefused,
  openDatabase,
  placeOf,
  type PostgresDatabase,
  type Statements,
  UnusableServer,
} from './database.ts';
import { eraseFormerRoots, FormerRootsKept, obstaclesToErasing } from './former-roots.ts';
import { LOCK_SPACE, locks, migrate } from './migrations.ts';
import { ROOT } from './stored-key-tree.ts';
import { vaultSchema } from './vault-schema.ts';
import { aloneInVault } from './vault-lock.ts';

/** Work that needs the vault alone was interrupted: the server, or the connection whose lock keeps nodes away, was lost. */
export class WorkCutShort extends StorageUnavailable {
  override readonly name = 'WorkCutShort';
  override readonly isForOperator = true;
}

export interface PostgresRotation {
  readonly url: string;
  readonly current: KeyObject;
  readonly next: KeyObject;
}

/**
 * Rewraps the vault's root and the secrets with another master key, and erases the old wrappings from the server's files if the server
 * allows it. The time does not depend on the number of keys. After an interruption, another call continues.
 *
 * @returns how many keys and secrets were rewrapped; 0 if an earlier call had done that already
 * @throws {UnusableServer} for a wrong key, or while nodes are running; then nothing was changed. Also if the server turns out to keep
 *   its old files; then the new key is in use, and the message says so
 * @throws {WorkCutShort} with a message for the operator
 */
export async function rotatePostgresMasterKey({ url, current, next }: PostgresRotation): Promise<number> {
  return withoutNodes(url, [current, next], async (database) => {
    const { rewrapped, generation } = await aloneInVault(database, (sql) => rewrap(sql, current, next));
    // This also erases what an interrupted earlier call has left.
    if ((await obstaclesToErasing(database)).length === 0) {
      await eraseFormerRoots(database).catch((error: unknown) => {
        if (!(error instanceof FormerRootsKept)) throw error;
        throw new UnusableServer(
          `The new master key is in force, but the keys that the old one opens are not erased yet. ${error.message} Run this command again when nothing keeps them any more.`,
        );
      });
      // Not higher than the generation read above: a node that has just started may have replaced the root since.
      await database.query('UPDATE epitaph_vault.erased SET generation = greatest(generation, $1)', [generation]);
    }
    return rewrapped;
  });
}

/**
 * Checks that a master key opens the vault, and does not change the vault.
 *
 * @throws {UnusableServer} if it does not
 */
export async function checkPostgresMasterKey(url: string, master: KeyObject): Promise<void> {
  const database = await openDatabase(url);
  try {
    await assertThere(database, url);
    if ((await openRoot(database, master)) === undefined) {
      throw new UnusableServer(
        `This master key does not open the key vault at ${placeOf(url)}. Nothing in it can be read without the right one.`,
      );
    }
  } finally {
    await database.close();
  }
}

/**
 * Runs work that needs the vault alone, while no node is running and none can start. After an interruption at any point, it must be
 * possible to call the work again.
 *
 * @param masters one of these master keys must open the vault; otherwise the vault is not changed
 * @throws {UnusableServer} while nodes are running, or if none of the keys opens the vault
 * @throws {WorkCutShort} if the server, or the connection whose lock keeps nodes away, was lost
 */
export async function withoutNodes<Result>(
  url: string,
  masters: readonly KeyObject[],
  work: (database: PostgresDatabase) => Promise<Result>,
): Promise<Result> {
  const database = await openDatabase(url);
  try {
    await assertThere(database, url);
    // This refuses a vault of a later version. It migrates one of an earlier version, which earlier programs can't open afterwards.
    await migrate(database, { ...vaultSchema, check: (sql) => assertOpens(sql, masters) });
    const { connection: guard } = await database.dedicated(async (sql) => {
      const [lock] = await sql.query<{ alone: boolean }>('SELECT pg_try_advisory_lock($1, $2) AS alone', [
        LOCK_SPACE,
        locks.nodes,
      ]);
      if (!lock!.alone) {
        throw new UnusableServer(`Nodes use the key vault at ${placeOf(url)}. Stop all of them first.`);
      }
    });
    // If the guard's connection is lost, nodes may start, and what the work has read may be outdated. So the work is abandoned.
    guard.onEnd(() => void database.abandon());
    try {
      const result = await work(database);
      if (guard.hasEnded) throw new StorageUnavailable('the connection that keeps nodes away was lost');
      return result;
    } catch (error) {
      if (!(error instanceof StorageUnavailable) || error instanceof AccessRefused) throw error;
      const what =
        error instanceof FormerRootsKept
          ? `the key vault at ${placeOf(url)} keeps a former key`
          : `the connection to the key vault at ${placeOf(url)} was lost in the middle`;
      throw new WorkCutShort(
        `This was interrupted, because ${what} (${error.message}). Before you start a node, run the same command again until it succeeds.`,
        { cause: error },
      );
    } finally {
      await guard.close();
    }
  } finally {
    await database.close();
  }
}

async function assertThere(database: PostgresDatabase, url: string): Promise<void> {
  const [there] = await database.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [vaultSchema.name]);
  if (there === undefined) throw new UnusableServer(`There is no key vault at ${placeOf(url)}.`);
}

async function assertOpens(sql: Statements, masters: readonly KeyObject[]): Promise<void> {
  for (const master of masters) {
    const root = await openRoot(sql, master);
    root?.key.fill(0);
    if (root !== undefined) return;
  }
  throw notInForce();
}

const notInForce = (): UnusableServer =>
  new UnusableServer('The master key is not the one in force for this key vault. Nothing was changed.');

interface OpenRoot {
  readonly generation: number;
  readonly key: Buffer;
}

async function openRoot(sql: Pick<Statements, 'query'>, master: KeyObject): Promise<OpenRoot | undefined> {
  const [row] = await sql.query<{ generation: number; wrapped: Buffer }>(
    'SELECT generation, wrapped FROM epitaph_vault.root',
  );
  const key = row === undefined ? undefined : unwrapKey(master, row.generation, ROOT, row.wrapped);
  return key === undefined ? undefined : { generation: row!.generation, key };
}

interface Rewrapped {
  readonly rewrapped: number;
  /** The generation of the new root. */
  readonly generation: number;
}

async function rewrap(sql: Statements, current: KeyObject, next: KeyObject): Promise<Rewrapped> {
  const root = await openRoot(sql, current);
  if (root === undefined) {
    const done = await openRoot(sql, next);
    done?.key.fill(0);
    if (done !== undefined) return { rewrapped: 0, generation: done.generation };
    throw notInForce();
  }
  const secrets = await sql.query<{ name: string; wrapped: Buffer }>('SELECT name, wrapped FROM epitaph_vault.secrets');
  const rewrapped = secrets.map(({ name, wrapped }) => {
    const place = Buffer.from(name);
    const secret = gcmOpen(current, place, wrapped);
    if (secret === undefined) {
      throw new UnusableServer(
        `The secret ${name} does not open with the master key: the vault is damaged. Nothing was changed.`,
      );
    }
    return gcmSeal(next, place, secret);
  });
  // TRUNCATE gives the tables new files. The former content disappears with the old files.
  await sql.query('TRUNCATE epitaph_vault.root, epitaph_vault.secrets');
  const generation = root.generation + 1;
  await sql.query('INSERT INTO epitaph_vault.root (generation, wrapped) VALUES ($1, $2)', [
    generation,
    wrapKey(next, generation, ROOT, root.key),
  ]);
  root.key.fill(0);
  await sql.query('INSERT INTO epitaph_vault.secrets (name, wrapped) SELECT * FROM unnest($1::text[], $2::bytea[])', [
    secrets.map(({ name }) => name),
    rewrapped,
  ]);
  return { rewrapped: rewrapped.length + 1, generation };
}
