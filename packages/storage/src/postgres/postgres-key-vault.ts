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

/** Keys in memory, those that came with the one asked for too; a key destroyed here leaves at once. */
const CACHE_SIZE = 50_000;
/** Secrets in memory. */
const SECRETS = 10_000;
/** Tells every node which keys were destroyed, so that none keeps one in memory. */
const CHANNEL = 'epitaph_vault';
/** A notification takes 8,000 bytes. */
const KEYS_A_NOTE = 500;
/**
 * For so many milliseconds whoever has the vault to himself may ask what is due: holds, floors and new keys of all nodes wait for
 * that, and a node may be cut off from the log.
 */
const ASKING_MS = 3_000;

export interface PostgresKeyVaultOptions {
  readonly database: PostgresDatabase;
  readonly master: KeyObject;
  /**
   * For how many seconds backups, WAL archives and replicas of the vault are kept, from which a destroyed key could
   * still be had with the master key. Undefined says that there are none, and is refused on a server that keeps old
   * WAL by its own settings.
   */
  readonly copiesKeptSeconds?: number | undefined;
  /** For a vault that is being restored: by whoever has it to himself, or by the node that then settles the log. */
  readonly restoring?: 'alone' | 'node' | undefined;
}

/** Somebody has the vault to himself for now. */
class VaultTaken extends StorageUnavailable {}

const REPLACED = 'The server of the key vault was replaced: what is kept is looked at first.';
const SESSIONS = 'SELECT pid, extract(epoch FROM backend_start)::text AS "startedAt" FROM pg_stat_activity';

const secretNameOf = (containerRid: string): string => `container ${containerRid}`;

/** The connection on which a node hears, and its session on the server, which no other server has. */
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
 * The key vault in PostgreSQL, shared by any number of processes. Each takes blocks of key ids of its own to make
 * keys in; destroying is one process's at a time.
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
  /** Hears what other nodes destroy. While there is none, no key is kept in memory. */
  #ear: Ear | undefined;
  /** The one since which the vault is known to keep what is on record to be kept. */
  #settled: Ear | undefined;
  /** The one since which new keys are numbered on from what its server has. */
  #numbered: Ear | undefined;
  #settleKept: () => Promise<void> = () => Promise.resolve();
  /** As they were found or made: an older copy that takes the server's place may lack them. */
  readonly #secrets = new GenerationCache<string, Uint8Array>(SECRETS);
  #assertNothingNamed: (containerRid: string) => Promise<void> = () => Promise.resolve();
  readonly #forgets: (() => void)[] = [];
  #opening: Promise<void> | undefined;
  /** Counts what was heard: a look that was under way meanwhile may be out of date. */
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
   * @throws {UnusableServer} when the master key is another one than the vault's, when the vault is of a later
   * version, or when the server keeps what is destroyed and nobody has said for how long.
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
      // With a wrong key the vault is left as it is, for the older version to open.
      check: (sql) => vault.#tree.readRoot(sql),
    });
    await vault.#tree.readRoot(database);
    await vault.#tree.assertWhole(database);
    if (options.restoring === 'alone') return vault;
    const [restoring] = await database.query('SELECT 1 FROM epitaph_vault.restoring');
    if (restoring !== undefined && options.restoring === undefined) {
      throw new UnusableServer(
        'The key vault in PostgreSQL was put back from a copy, and what was destroyed since is not applied to the end. Call epitaph restore again.',
      );
    }
    await vault.#listen();
    // Whoever opens it settles that before anything is destroyed.
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
    // Whoever needs the key waits for it and is told; a key that nobody waits for needs no one to handle its failure.
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
    // Also for a key that an earlier call destroyed and then could not erase.
    if (this.#canErase && gone.includes(true) && erased < generation) await this.#eraseUpTo(generation);
    const keptMs = this.#copiesKeptSeconds === undefined ? undefined : this.#copiesKeptSeconds * 1000;
    return outcomes.map((outcome, index) => {
      if (outcome.kind !== 'destroyed' && outcome.kind !== 'already-destroyed') return outcome;
      // As of its transaction: another server may have taken this one's place by now, which has counted less.
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
        // What is named may have been so since it was looked up, by another node that has made it.
        const made = await this.secretOf(containerRid);
        if (made === undefined) throw error;
        this.#secrets.set(containerRid, made);
        return made;
      }
    }
    await aloneInVault(this.#database, async (sql) => {
      // By the key in force: it may have been changed while this node was cut off.
      await this.#tree.readRoot(sql);
      // Whoever is first wins; the answer is what stands in the vault.
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

  /** The same, where it was made before. */
  async secretOf(containerRid: string): Promise<Uint8Array | undefined> {
    const name = secretNameOf(containerRid);
    const [row] = await this.#database.query<{ wrapped: Buffer }>(
      'SELECT wrapped FROM epitaph_vault.secrets WHERE name = $1',
      [name],
    );
    if (row === undefined) return undefined;
    const secret = gcmOpen(this.#master, Buffer.from(name), row.wrapped);
    if (secret === undefined) {
      // Throws where the master key was changed while this process was cut off from the server.
      await this.#tree.readRoot(this.#database);
      throw new UnreadableSecret(
        `The key vault in PostgreSQL is damaged: the secret of ${containerRid} in it does not open with the master key. Restore it; docs/backup-and-restore.md says how.`,
      );
    }
    return secret;
  }

  /** The database goes on: the read models share it. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#leaves.close();
    // A look that is under way may listen again.
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
      // For as long as it listens: what must have the vault to itself finds out that there are nodes, and of which version.
      await ear.query("SELECT set_config('application_name', $1, false)", [NODE_NAME]);
      const [lock] = await ear.query<{ shared: boolean }>('SELECT pg_try_advisory_lock_shared($1, $2) AS shared', [
        LOCK_SPACE,
        locks.nodes,
      ]);
      if (!lock!.shared) {
        throw new VaultTaken(
          'The key vault in PostgreSQL is being restored, or its master key changed. Start when that is over.',
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
   * Where the connection to the server was lost, an older copy may have taken the server's place, without holds and floors that are
   * acknowledged.
   */
  async #settleHere(): Promise<void> {
    await this.#listenAgain();
    const ear = this.#ear;
    if (this.#isAlone || ear === undefined || ear === this.#settled) return;
    await this.#settleKept();
    this.#settled = ear;
  }

  /** @throws {StorageUnavailable} where this is another server than the one on which that is settled */
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

  /** The ear, where it is on the server that this is asked of. */
  async #earOn(sql: Statements): Promise<Ear | undefined> {
    const ear = this.#ear;
    if (ear === undefined) return undefined;
    const { pid, startedAt } = ear;
    const found = await sql.query<{ startedAt: string }>(`${SESSIONS} WHERE pid = $1`, [pid]);
    if (found.some((session) => session.startedAt === startedAt)) return ear;
    // The server that it hears is gone, and nobody has noticed yet.
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

  /** The neighbours of a key were made about the same time: who reads one soon reads the next. */
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

  /** One erasure at a time; whoever comes while one runs needs the next. */
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

  /** Whether some of these keys were never given to anybody: then this is an older copy of the vault that gave them. */
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
    // A number that another life has stays that life's.
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

  /** Goes on with numbers that were not given out yet, for keys and for destructions, and has former roots erased. */
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

/** @throws {StorageUnavailable} when it takes too long; nothing is destroyed then */
async function inTime<Answer>(asked: Promise<Answer>): Promise<Answer> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>();
  const stop = after(ASKING_MS, () =>
    reject(new StorageUnavailable('What is due could not be asked while others wait for the key vault.')),
  );
  return Promise.race([asked, tooLate]).finally(stop);
}

function found(keyId: number, { owner, secret }: CachedKey, stream: string): KeyLookup {
  if (!owner.equals(ownerOf(stream))) return { status: 'unknown' };
  const key: SecretLifeKey = { keyId, secret };
  return { status: 'there', key };
}
