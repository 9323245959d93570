import type { KeyObject } from 'node:crypto';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import {
  type ContainerFloors,
  type DestroyOutcome,
  type DestroyRequest,
  type FloorKind,
  type KeyLookup,
  type KeyVault,
  type NewLifeKey,
  type SetFloorOptions,
  UnreadableSecret,
  type VaultHold,
} from '@epitaph/core/vault/key-vault.ts';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import type { SecretLifeKey } from '../crypto/gcm-body-sealer.ts';
import { ownerOf } from '../crypto/key-wrapping.ts';
import { after } from '../patience.ts';
import type { CopiedSecrets, RestoredKey, RestoredKeys } from '../restored-keys.ts';
import {
  type DedicatedConnection,
  type PostgresDatabase,
  type Statements,
  UnusableServer,
  VaultNotWhole,
} from './database.ts';
import { assertErasable, eraseFormerRoots, obstaclesToErasing } from './former-roots.ts';
import { asKey, FANOUT, freshKey, HIGHEST_KEY_ID, nodeOf, placeName, slotOf } from './key-tree.ts';
import { LOCK_SPACE, locks, migrate, NODE_NAME } from './migrations.ts';
import { OwnLeaves } from './own-leaves.ts';
import { type OpenNode, pathOf, StoredKeyTree, WrongMasterKey } from './stored-key-tree.ts';
import { Together } from './together.ts';
import { aloneInVault } from './vault-lock.ts';
import { putFloor, putHold, readAllHolds, readFloors, readHolds, readVerdicts, removeHold } from './vault-retention.ts';
import { vaultSchema } from './vault-schema.ts';

/** Keys in memory, including the neighbours of keys that were read. A key that this process destroys is removed at once. */
const CACHE_SIZE = 50_000;
/** Container secrets in memory. */
const SECRETS = 10_000;
/** On this channel all nodes are told which keys were destroyed, so that none keeps them in memory. */
const CHANNEL = 'epitaph_vault';
/** PostgreSQL limits the text of a notification to 8,000 bytes. */
const KEYS_A_NOTE = 500;
/**
 * How long, in milliseconds, a node that holds the vault's lock may ask the log what is due. Holds, floors and new blocks of key
 * ids of all nodes wait for the lock, and the node may have lost its connection to the log.
 */
const ASKING_MS = 3_000;

export interface PostgresKeyVaultOptions {
  readonly database: PostgresDatabase;
  readonly master: KeyObject;
  /**
   * For how many seconds backups, WAL archives and replicas of the vault are kept. With the master key, a destroyed key could be
   * recovered from them. Undefined means that there are none; this is refused on a server whose settings keep old WAL.
   */
  readonly copiesKeptSeconds?: number | undefined;
  /**
   * Set while the vault is being restored: 'alone' for the process that holds the vault's locks, 'node' for the node that then
   * makes the vault match the log.
   */
  readonly restoring?: 'alone' | 'node' | undefined;
}

/** A restore, or a change of the master key, has locked the vault for now. */
class VaultTaken extends StorageUnavailable {}

const REPLACED = 'The server of the key vault was replaced, so holds and floors are checked first.';
const SESSIONS = 'SELECT pid, extract(epoch FROM backend_start)::text AS "startedAt" FROM pg_stat_activity';

const secretNameOf = (containerRid: string): string => `container ${containerRid}`;

/** The connection on which a node listens for notifications, and its session on the server, which identifies the server. */
interface Ear {
  readonly connection: DedicatedConnection;
  readonly pid: number;
  readonly startedAt: string;
}

type WantedKey = Pick<DestroyRequest, 'keyId' | 'stream'>;

interface CachedKey {
  readonly owner: Buffer;
  readonly secret: KeyObject;
}

/**
 * The key vault in PostgreSQL, shared by any number of processes. Each process reserves blocks of key ids for the keys that it
 * makes. Only one process at a time destroys keys.
 */
export class PostgresKeyVault implements KeyVault, RestoredKeys, CopiedSecrets {
  readonly #database: PostgresDatabase;
  readonly #master: KeyObject;
  readonly #tree: StoredKeyTree;
  readonly #leaves: OwnLeaves;
  readonly #copiesKeptSeconds: number | undefined;
  readonly #canErase: boolean;
  readonly #isAlone: boolean;
  readonly #cache = new GenerationCache<number, CachedKey>(CACHE_SIZE);
  #erasing: Promise<void> | undefined;
  /** Listens for the keys that other nodes destroy. While it is undefined, no key is kept in memory. */
  #ear: Ear | undefined;
  /** The ear of the server whose vault is known to have all holds and floors that the log records. */
  #settled: Ear | undefined;
  /** The ear of the server whose counter the ids of new keys come from. */
  #numbered: Ear | undefined;
  #settleKept: () => Promise<void> = () => Promise.resolve();
  /** Secrets as they were found or made. An older copy of the vault that replaces the server may lack them. */
  readonly #secrets = new GenerationCache<string, Uint8Array>(SECRETS);
  #assertNothingNamed: (containerRid: string) => Promise<void> = () => Promise.resolve();
  readonly #forgets: (() => void)[] = [];
  #opening: Promise<void> | undefined;
  /** Counts notifications and lost connections. Keys read while it has changed may be destroyed by now, and are not cached. */
  #heard = 0;
  readonly #looks = new Together((wanted: readonly WantedKey[]) => this.#look(wanted));
  #closed = false;

  private constructor(options: PostgresKeyVaultOptions, canErase: boolean) {
    this.#database = options.database;
    this.#master = options.master;
    this.#tree = new StoredKeyTree(options.master);
    this.#leaves = new OwnLeaves(options.database, this.#tree, (sql) => this.#isNumberedHere(sql));
    this.#copiesKeptSeconds = options.copiesKeptSeconds;
    this.#canErase = canErase;
    this.#isAlone = options.restoring === 'alone';
  }

  /**
   * @throws {UnusableServer} if the master key is not the vault's, if the vault is of a later version, or if the server keeps
   *   copies of destroyed keys and `copiesKeptSeconds` does not say for how long
   */
  static async open(options: PostgresKeyVaultOptions): Promise<PostgresKeyVault> {
    try {
      return await PostgresKeyVault.#open(options);
    } catch (error) {
      const isForWhoeverStarts =
        error instanceof VaultTaken || error instanceof WrongMasterKey || error instanceof VaultNotWhole;
      throw isForWhoeverStarts ? new UnusableServer(error.message) : error;
    }
  }

  static async #open(options: PostgresKeyVaultOptions): Promise<PostgresKeyVault> {
    const { database, copiesKeptSeconds } = options;
    const obstacles = await obstaclesToErasing(database);
    if (obstacles.length > 0 && copiesKeptSeconds === undefined) {
      throw new UnusableServer(
        `A destroyed key could be read from this PostgreSQL server's files: ${obstacles.join('; ')}. Change that, or say for how many seconds such copies are kept (--vault-copies-kept): each purge then states until when its content could be recovered.`,
      );
    }
    const vault = new PostgresKeyVault(options, obstacles.length === 0);
    await migrate(database, {
      ...vaultSchema,
      afterCreation: (sql) => vault.#tree.plant(sql),
      // With a wrong master key the vault is not migrated, so that the older version can still open it.
      check: (sql) => vault.#tree.readRoot(sql),
    });
    await vault.#tree.readRoot(database);
    await vault.#tree.assertWhole(database);
    if (options.restoring === 'alone') return vault;
    const [restoring] = await database.query('SELECT 1 FROM epitaph_vault.restoring');
    if (restoring !== undefined && options.restoring === undefined) {
      throw new UnusableServer(
        'The key vault in PostgreSQL was restored from a copy, and not all keys that were destroyed since are destroyed in it. Run epitaph restore again.',
      );
    }
    await vault.#listen();
    // The caller makes holds and floors match the log before it destroys any key.
    vault.#settled = vault.#ear;
    vault.#numbered = vault.#ear;
    return vault;
  }

  async createKey(stream: string): Promise<NewLifeKey> {
    const given = await this.#leaves.give(stream);
    const { keyId, owner, secret } = given;
    const stored = given.stored.then(() => {
      if (this.#ear !== undefined) this.#cache.set(keyId, { owner, secret });
    });
    // A caller that needs the key awaits `stored` and gets the error. If nobody awaits it, the failure needs no handling.
    stored.catch(() => {});
    const key: SecretLifeKey = { keyId, secret };
    return { key, stored };
  }

  findKey(keyId: number, stream: string): KeyLookup | Promise<KeyLookup> {
    const cached = this.#cache.get(keyId);
    if (cached !== undefined) return found(keyId, cached, stream);
    if (!Number.isSafeInteger(keyId) || keyId < 1 || keyId > HIGHEST_KEY_ID) return { status: 'unknown' };
    return this.#looks.answer({ keyId, stream });
  }

  async destroyKeys(
    requests: readonly DestroyRequest[],
    areDue: () => Promise<readonly boolean[]> = () => Promise.resolve(requests.map(() => true)),
  ): Promise<DestroyOutcome[]> {
    if (requests.length === 0) return [];
    await this.#settleHere();
    const { outcomes, generation, erased } = await aloneInVault(this.#database, async (sql) => {
      await this.#assertSettled(sql);
      return this.#destroy(sql, requests, await inTime(areDue()));
    });
    const gone = outcomes.map(({ kind }) => kind === 'destroyed' || kind === 'already-destroyed');
    for (let index = 0; index < requests.length; index++) {
      if (gone[index]) this.#cache.delete(requests[index]!.keyId);
    }
    // This also covers keys that an earlier call destroyed, but failed to erase.
    if (this.#canErase && gone.includes(true) && erased < generation) await this.#eraseUpTo(generation);
    const keptMs = this.#copiesKeptSeconds === undefined ? undefined : this.#copiesKeptSeconds * 1000;
    return outcomes.map((outcome, index) => {
      if (outcome.kind !== 'destroyed' && outcome.kind !== 'already-destroyed') return outcome;
      // The count is the one of the transaction: by now another server may have replaced this one, with a lower count.
      const counted = { ...outcome, destructions: generation };
      return keptMs === undefined ? counted : { ...counted, recoverableUntilMs: requests[index]!.nowMs + keptMs };
    });
  }

  onServerReplaced(settle: () => Promise<void>): void {
    this.#settleKept = settle;
  }

  onNewSecret(check: (containerRid: string) => Promise<void>): void {
    this.#assertNothingNamed = check;
  }

  onConnectionLost(forget: () => void): void {
    this.#forgets.push(forget);
  }

  destructionsUnderWay(): Promise<void> {
    return aloneInVault(this.#database, () => Promise.resolve());
  }

  placeHold(hold: VaultHold, { isNew = false }: { readonly isNew?: boolean } = {}): Promise<boolean> {
    return aloneInVault(this.#database, (sql) => putHold(sql, hold, isNew));
  }

  releaseHold(holdId: string, { placedAtMs }: { readonly placedAtMs?: number | undefined } = {}): Promise<void> {
    return aloneInVault(this.#database, (sql) => removeHold(sql, holdId, placedAtMs));
  }

  holds(containerRid?: string): Promise<VaultHold[]> {
    return readAllHolds(this.#database, containerRid);
  }

  async holdsOn(streams: readonly string[]): Promise<string[][]> {
    const holdsOn = await readHolds(this.#database, streams);
    return streams.map(holdsOn);
  }

  setFloor(containerRid: string, kind: FloorKind, seconds: number, options: SetFloorOptions = {}): Promise<void> {
    return aloneInVault(this.#database, (sql) => putFloor(sql, { containerRid, kind, seconds }, options));
  }

  floors(): Promise<ReadonlyMap<string, ContainerFloors>> {
    return readFloors(this.#database);
  }

  async destructions(): Promise<number> {
    const [root] = await this.#database.query<{ generation: number }>('SELECT generation FROM epitaph_vault.root');
    return root!.generation;
  }

  async containerSecret(containerRid: string): Promise<Uint8Array> {
    const known = await this.secretOf(containerRid);
    if (known !== undefined) {
      this.#secrets.set(containerRid, known);
      return known;
    }
    const name = secretNameOf(containerRid);
    const before = this.#secrets.get(containerRid);
    if (before === undefined) {
      try {
        await this.#assertNothingNamed(containerRid);
      } catch (error) {
        // Another node may have made the secret, and named items with it, since this node looked for it.
        const made = await this.secretOf(containerRid);
        if (made === undefined) throw error;
        this.#secrets.set(containerRid, made);
        return made;
      }
    }
    await aloneInVault(this.#database, async (sql) => {
      // Checks that this node's master key is still valid: it may have been changed while this node was disconnected.
      await this.#tree.readRoot(sql);
      // If two nodes make a secret, the first one wins. The caller gets the secret that is in the vault.
      await sql.query(
        'INSERT INTO epitaph_vault.secrets (name, wrapped) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING',
        [name, gcmSeal(this.#master, Buffer.from(name), before ?? freshKey())],
      );
    });
    const made = await this.secretOf(containerRid);
    invariant(made !== undefined, `the secret of container ${containerRid} was made`);
    this.#secrets.set(containerRid, made);
    return made;
  }

  /** The container's secret, or undefined if it was not made yet. */
  async secretOf(containerRid: string): Promise<Uint8Array | undefined> {
    const name = secretNameOf(containerRid);
    const [row] = await this.#database.query<{ wrapped: Buffer }>(
      'SELECT wrapped FROM epitaph_vault.secrets WHERE name = $1',
      [name],
    );
    if (row === undefined) return undefined;
    const secret = gcmOpen(this.#master, Buffer.from(name), row.wrapped);
    if (secret === undefined) {
      // This throws if the master key was changed while this process was disconnected from the server.
      await this.#tree.readRoot(this.#database);
      throw new UnreadableSecret(
        `The key vault in PostgreSQL is damaged: the secret of ${containerRid} in it does not open with the master key. Restore it; docs/backup-and-restore.md says how.`,
      );
    }
    return secret;
  }

  /** Does not close the database, which the read models share. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#leaves.close();
    // A lookup in progress may be opening a new listening connection.
    await this.#opening?.catch(() => {});
    await this.#ear?.connection.close();
    this.#cache.clear();
  }

  // -- what other nodes destroy -------------------------------------------------------------------------------

  async #listen(): Promise<void> {
    const { connection, prepared } = await this.#database.dedicated(async (ear) => {
      ear.onNotification((payload) => {
        this.#heard += 1;
        for (const keyId of JSON.parse(payload ?? '[]') as number[]) this.#cache.delete(keyId);
      });
      // The name stays as long as the connection: a program that needs the vault alone finds the running nodes and their version by it.
      await ear.query("SELECT set_config('application_name', $1, false)", [NODE_NAME]);
      const [lock] = await ear.query<{ shared: boolean }>('SELECT pg_try_advisory_lock_shared($1, $2) AS shared', [
        LOCK_SPACE,
        locks.nodes,
      ]);
      if (!lock!.shared) {
        throw new VaultTaken(
          'The key vault in PostgreSQL is being restored, or its master key is being changed. Start when that has finished.',
        );
      }
      const [session] = await ear.query<{ pid: number; startedAt: string }>(`${SESSIONS} WHERE pid = pg_backend_pid()`);
      await ear.query(`LISTEN ${CHANNEL}`);
      return session!;
    });
    connection.onEnd(() => {
      this.#ear = undefined;
      this.#heard += 1;
      this.#cache.clear();
      for (const forget of this.#forgets) forget();
    });
    this.#ear = { connection, ...prepared };
  }

  async #listenAgain(): Promise<void> {
    if (this.#ear !== undefined || this.#closed || this.#isAlone) return;
    this.#opening ??= this.#listen().finally(() => (this.#opening = undefined));
    await this.#opening;
  }

  /**
   * Makes holds and floors in the vault match the log again after the connection was lost: an older copy of the vault, which lacks
   * acknowledged holds and floors, may have replaced the server.
   */
  async #settleHere(): Promise<void> {
    await this.#listenAgain();
    const ear = this.#ear;
    if (this.#isAlone || ear === undefined || ear === this.#settled) return;
    await this.#settleKept();
    this.#settled = ear;
  }

  /** @throws {StorageUnavailable} if this is not the server on which holds and floors are known to match the log */
  async #assertSettled(sql: Statements): Promise<void> {
    if (this.#isAlone) return;
    const ear = await this.#earOn(sql);
    if (ear === undefined || ear !== this.#settled) throw new StorageUnavailable(REPLACED);
  }

  async #isNumberedHere(sql: Statements): Promise<boolean> {
    if (this.#isAlone) return true;
    const ear = await this.#earOn(sql);
    const isSame = ear !== undefined && ear === this.#numbered;
    this.#numbered = ear;
    return isSame;
  }

  /** The ear, if it is connected to the same server as these statements. */
  async #earOn(sql: Statements): Promise<Ear | undefined> {
    const ear = this.#ear;
    if (ear === undefined) return undefined;
    const { pid, startedAt } = ear;
    const found = await sql.query<{ startedAt: string }>(`${SESSIONS} WHERE pid = $1`, [pid]);
    if (found.some((session) => session.startedAt === startedAt)) return ear;
    // The ear's server has been replaced, and its connection has not noticed yet.
    ear.connection.close().catch(() => {});
    return undefined;
  }

  // -- keys to find ----------------------------------------------------------------------------------------------

  async #look(wanted: readonly WantedKey[]): Promise<KeyLookup[]> {
    await this.#listenAgain();
    const heard = this.#heard;
    const { nodes } = await this.#tree.open(
      this.#database,
      wanted.map(({ keyId }) => pathOf(keyId)),
      'read',
    );
    const looked = wanted.map(({ keyId, stream }): KeyLookup => {
      const leaf = nodes.get(placeName(nodeOf(keyId, 0)));
      const owner = ownerOf(stream);
      if (leaf === undefined || !leaf.content.owner(slotOf(keyId)).equals(owner)) return { status: 'unknown' };
      const bytes = leaf.content.key(slotOf(keyId));
      return bytes === undefined ? { status: 'destroyed' } : found(keyId, { owner, secret: asKey(bytes) }, stream);
    });
    for (const node of nodes.values()) {
      if (heard === this.#heard && node.place.level === 0) this.#rememberAll(node);
      node.content.wipe();
    }
    return looked;
  }

  /** Caches all keys of a leaf. They were made at about the same time, so they are often read one after the other. */
  #rememberAll({ place, content }: OpenNode): void {
    for (let slot = 0; slot < FANOUT; slot++) {
      const bytes = content.key(slot);
      if (bytes === undefined) continue;
      this.#cache.set(place.number * FANOUT + slot, { owner: Buffer.from(content.owner(slot)), secret: asKey(bytes) });
    }
  }

  // -- keys to destroy -------------------------------------------------------------------------------------------

  async #destroy(
    sql: Statements,
    requests: readonly DestroyRequest[],
    due: readonly boolean[],
  ): Promise<{ outcomes: DestroyOutcome[]; generation: number; erased: number }> {
    const verdictOn = await readVerdicts(sql, requests);
    const ids = requests.map(({ keyId }) => keyId).filter((id) => id > 0 && id <= HIGHEST_KEY_ID);
    const { nodes } = await this.#tree.open(sql, ids.map(pathOf), 'change');
    const changed = new Set<OpenNode>();
    const outcomes = requests.map((request, index): DestroyOutcome => {
      const slot = slotOf(request.keyId);
      const leaf = nodes.get(placeName(nodeOf(request.keyId, 0)));
      if (leaf === undefined || !leaf.content.owner(slot).equals(ownerOf(request.stream))) return { kind: 'unknown' };
      if (leaf.content.key(slot) === undefined) return { kind: 'already-destroyed' };
      if (due[index] !== true) return { kind: 'not-due' };
      const verdict = verdictOn(request);
      if (verdict.kind === 'refused') return verdict;
      leaf.content.destroy(slot);
      changed.add(leaf);
      return verdict;
    });
    const destroyed = requests.filter((_, index) => outcomes[index]!.kind === 'destroyed').map(({ keyId }) => keyId);
    for (let from = 0; from < destroyed.length; from += KEYS_A_NOTE) {
      const note = JSON.stringify(destroyed.slice(from, from + KEYS_A_NOTE));
      await sql.query('SELECT pg_notify($1, $2)', [CHANNEL, note]);
    }
    const [erased] = await sql.query<{ generation: number }>('SELECT generation FROM epitaph_vault.erased');
    const root = await this.#tree.readRoot(sql);
    let { generation } = root;
    if (changed.size > 0) {
      if (this.#canErase && this.#copiesKeptSeconds === undefined) await assertErasable(sql);
      generation += 1;
      await this.#tree.changeKeys(sql, nodes, changed, generation);
    }
    for (const node of nodes.values()) node.content.wipe();
    return { outcomes, generation, erased: erased?.generation ?? 0 };
  }

  /** Runs one erasure at a time. A call that comes during an erasure needs another one after it. */
  async #eraseUpTo(generation: number): Promise<void> {
    while (this.#erasing !== undefined) await this.#erasing.catch(() => {});
    this.#erasing = (async () => {
      const [known] = await this.#database.query<{ generation: number }>('SELECT generation FROM epitaph_vault.erased');
      if (known !== undefined && known.generation >= generation) return;
      const { generation: now } = await this.#tree.readRoot(this.#database);
      if (now < generation) throw new StorageUnavailable(REPLACED);
      await eraseFormerRoots(this.#database);
      await this.#database.query(
        `WITH known AS (UPDATE epitaph_vault.erased SET generation = greatest(generation, $1) RETURNING 1)
         INSERT INTO epitaph_vault.erased SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM known)`,
        [now],
      );
    })().finally(() => (this.#erasing = undefined));
    await this.#erasing;
  }

  /** Whether some of these keys were never given out. If so, this vault is an older copy of the one that gave them out. */
  async lacks(keys: readonly Pick<RestoredKey, 'keyId' | 'stream'>[]): Promise<boolean> {
    return (await this.#statesOf(keys)).includes('never-given');
  }

  // -- after a restore -------------------------------------------------------------------------------------------

  async unknownOf(keys: readonly RestoredKey[]): Promise<RestoredKey[]> {
    const states = await this.#statesOf(keys);
    return keys.filter((_, index) => states[index] !== 'there' && states[index] !== 'destroyed');
  }

  async settleRestored(
    keys: readonly RestoredKey[],
  ): Promise<{ readonly destroyed: number; readonly gone: ReadonlySet<number> }> {
    const states = await this.#statesOf(keys);
    // If another life has the key id, it keeps it.
    const wrong = keys.filter(
      ({ isDestroyed }, index) =>
        states[index] === 'never-given' || states[index] === 'damaged' || (states[index] === 'there' && isDestroyed),
    );
    const gone = new Set(keys.filter((_, index) => states[index] !== 'there').map(({ keyId }) => keyId));
    if (wrong.length === 0) return { destroyed: 0, gone };
    const destroyed = keys.filter((key, index) => states[index] === 'there' && key.isDestroyed);
    for (const { keyId } of destroyed) gone.add(keyId);
    await aloneInVault(this.#database, async (sql) => {
      const { nodes } = await this.#tree.open(
        sql,
        wrong.map(({ keyId }) => pathOf(keyId)),
        'make',
      );
      const leaves = new Set<OpenNode>();
      for (const { keyId, stream } of wrong) {
        const leaf = nodes.get(placeName(nodeOf(keyId, 0)))!;
        leaf.content.put(slotOf(keyId), Buffer.alloc(0), ownerOf(stream));
        leaf.content.destroy(slotOf(keyId));
        leaves.add(leaf);
      }
      const { generation } = await this.#tree.readRoot(sql);
      await this.#tree.changeKeys(sql, nodes, leaves, generation + 1);
      for (const node of nodes.values()) node.content.wipe();
    });
    this.#cache.clear();
    return { destroyed: destroyed.length, gone };
  }

  /** Continues after the given key id and count of destructions, so that no number is used twice, and erases the former roots. */
  async goOnAfter({ keyId, destructions }: { readonly keyId: number; readonly destructions: number }): Promise<void> {
    const generation = await aloneInVault(this.#database, async (sql) => {
      await sql.query(
        "SELECT setval('epitaph_vault.blocks', greatest($1, (SELECT last_value FROM epitaph_vault.blocks)))",
        [Math.max(1, nodeOf(keyId, 1).number)],
      );
      const root = await this.#tree.readRoot(sql);
      const next = Math.max(root.generation, destructions) + 1;
      await this.#tree.putRoot(sql, next, root.key.export());
      return next;
    });
    if (this.#canErase) await this.#eraseUpTo(generation);
  }

  async #statesOf(
    keys: readonly Pick<RestoredKey, 'keyId' | 'stream'>[],
  ): Promise<('there' | 'destroyed' | 'never-given' | 'of-another-life' | 'damaged')[]> {
    const { nodes, damaged } = await this.#tree.open(
      this.#database,
      keys.map(({ keyId }) => pathOf(keyId)),
      'read',
    );
    const states = keys.map(({ keyId, stream }) => {
      const name = placeName(nodeOf(keyId, 0));
      if (damaged.has(name)) return 'damaged';
      const leaf = nodes.get(name);
      if (leaf?.content.wasGiven(slotOf(keyId)) !== true) return 'never-given';
      if (!leaf.content.owner(slotOf(keyId)).equals(ownerOf(stream))) return 'of-another-life';
      return leaf.content.key(slotOf(keyId)) === undefined ? 'destroyed' : 'there';
    });
    for (const node of nodes.values()) node.content.wipe();
    return states;
  }
}

/** @throws {StorageUnavailable} if the answer takes longer than ASKING_MS; then nothing is destroyed */
async function inTime<Answer>(asked: Promise<Answer>): Promise<Answer> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>();
  const stop = after(ASKING_MS, () =>
    reject(new StorageUnavailable('Finding out what is due took too long, and other nodes wait for the key vault.')),
  );
  return Promise.race([asked, tooLate]).finally(stop);
}

function found(keyId: number, { owner, secret }: CachedKey, stream: string): KeyLookup {
  if (!owner.equals(ownerOf(stream))) return { status: 'unknown' };
  const key: SecretLifeKey = { keyId, secret };
  return { status: 'there', key };
}
