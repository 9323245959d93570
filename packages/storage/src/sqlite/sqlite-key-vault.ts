import { createSecretKey, type KeyObject } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { parsedJson } from '@epitaph/core/parsed-json.ts';
import {
  type ContainerFloors,
  type DestroyOutcome,
  type DestroyRequest,
  type FloorKind,
  type HoldScope,
  type KeyLookup,
  type KeyUse,
  type KeyVault,
  LONGEST_FLOOR_SECONDS,
  type NewLifeKey,
  prefixesOf,
  type SetFloorOptions,
  UnreadableSecret,
  type VaultHold,
} from '@epitaph/core/vault/key-vault.ts';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import { KEY_BYTES, ownerOf, unwrapKey } from '../crypto/key-wrapping.ts';
import type { SecretLifeKey } from '../crypto/gcm-body-sealer.ts';
import { RandomPool } from '../crypto/random-pool.ts';
import { UnusableFile } from './database.ts';
import type { DestroyJob, VaultWriteJob } from './log-writer-jobs.ts';
import type { PendingKey, PendingKeys } from './sqlite-event-log.ts';
import { HOLDS_ON_STREAM, LAST_KEY_ID, NOBODY } from './schema.ts';
import { SpareStock } from './spare-stock.ts';
import { StorageFault, type Writer } from './writer.ts';

/** How many unwrapped keys are kept in memory. A destroyed key is removed at once. */
const CACHE_SIZE = 50_000;
/** How many keys one job of the writer destroys. */
const DESTROYED_AT_ONCE = 32;
/** Destroying this many keys takes the writer as long as a small write, not counting the syncs of the whole group. */
const KEYS_A_WRITE = 4;
/** Name of a secret that only the right master key opens. */
export const MASTER_KEY_CHECK = 'master-key-check';
export const secretNameOf = (containerRid: string): string => `container ${containerRid}`;

interface KeyOfStream {
  readonly stream: string;
  readonly key: SecretLifeKey;
}

/** The key vault in one SQLite file. The writer of the log also writes the vault. */
export class SqliteKeyVault implements KeyVault, PendingKeys {
  readonly #writer: Writer;
  readonly #database: DatabaseSync;
  readonly #master: KeyObject;
  readonly #read: ReturnType<typeof prepare>;
  readonly #cache = new GenerationCache<number, KeyOfStream>(CACHE_SIZE);
  readonly #pending = new Map<Promise<unknown>, PendingKey>();
  #assertNothingNamed: Parameters<SqliteKeyVault['onNewSecret']>[0] = async () => {};
  #isHandingOver = false;
  /** By key id: the jobs that tell the writer which lives spare keys belong to. */
  readonly #giving = new Map<number, Promise<unknown>>();
  readonly #spares: SpareStock;
  #keepsSpares: boolean;
  /** By key id: spare keys with lives that may have no rows of their own yet. */
  readonly #unsettled = new Map<number, KeyOfStream>();
  readonly #random = new RandomPool();
  #nextKeyId: number;
  /** Resolves when keys may be destroyed; pending while the vault is being copied. */
  #undestroyed: Promise<unknown> = Promise.resolve();
  readonly #destructions = new Set<Promise<unknown>>();
  #closed = false;

  private constructor(writer: Writer, database: DatabaseSync, master: KeyObject, keepsSpares: boolean) {
    this.#writer = writer;
    this.#keepsSpares = keepsSpares;
    this.#database = database;
    this.#master = master;
    this.#read = prepare(database);
    this.#nextKeyId = (this.#read.lastKey.get() as { last: number }).last + 1;
    this.#spares = new SpareStock({
      writer,
      takeNumbers: (count) => (this.#nextKeyId += count) - count,
      onSettled: (keyIds) => {
        for (const keyId of keyIds) this.#unsettled.delete(keyId);
      },
    });
  }

  /**
   * @param options.keepsSpares whether spare keys are stored in advance; only possible if the same writer writes the log
   * @throws {UnusableFile} if the master key is not the vault's
   */
  static async open(
    writer: Writer,
    database: DatabaseSync,
    master: KeyObject,
    { keepsSpares }: { readonly keepsSpares: boolean },
  ): Promise<SqliteKeyVault> {
    const vault = new SqliteKeyVault(writer, database, master, keepsSpares);
    // Only the right master key opens this secret, so a wrong one is noticed now and not at the first read.
    await vault.#secret(MASTER_KEY_CHECK);
    return vault;
  }

  claim(stored: readonly Promise<unknown>[]): readonly PendingKey[] | undefined {
    const pending = stored.flatMap((one) => this.#pending.get(one) ?? []);
    for (const one of stored) this.#pending.delete(one);
    if (pending.length === stored.length) return pending;
    // The caller has to wait for another key anyway, so these are stored by jobs of their own now.
    for (const one of pending) this.#handOver(one);
    return undefined;
  }

  /** The highest id of a key that exists or existed. */
  get lastKeyId(): number {
    return this.#nextKeyId - 1;
  }

  createKey(stream: string): NewLifeKey {
    if (this.#closed) throw new StorageFault({ fault: 'the key vault is closed' });
    const spare = this.#spares.take();
    const { keyId, bytes } = spare ?? { keyId: this.#nextKeyId++, bytes: this.#random.take(KEY_BYTES) };
    if (this.#keepsSpares) this.#spares.restock();
    const key: SecretLifeKey = { keyId, secret: createSecretKey(bytes) };
    this.#cache.set(keyId, { stream, key });
    // Usually the append that needs the key takes it along within this turn of the event loop. Otherwise it is stored alone.
    if (!this.#isHandingOver) {
      this.#isHandingOver = true;
      setImmediate(() => {
        this.#isHandingOver = false;
        this.#handOverAll();
      });
    }
    if (spare !== undefined) {
      bytes.fill(0);
      this.#unsettled.set(keyId, { stream, key });
      const stored = Promise.resolve();
      this.#pending.set(stored, { job: { kind: 'give-key', id: keyId, stream }, settle: () => {} });
      return { key, stored };
    }
    const { promise: stored, resolve, reject } = Promise.withResolvers<void>();
    const settle = (error?: unknown) => {
      bytes.fill(0);
      if (error === undefined) resolve();
      else {
        this.#cache.delete(keyId);
        reject(error);
      }
    };
    // A caller that needs the key awaits `stored` and gets the error. If nobody awaits it, the failure needs no handling.
    stored.catch(() => {});
    // The key is sent unwrapped: the writer wraps it before it stores it.
    this.#pending.set(stored, { job: { kind: 'add-key', id: keyId, stream, blobs: [bytes] }, settle });
    return { key, stored };
  }

  #handOver({ job, settle }: PendingKey): void {
    const done = this.#writer.submit(job);
    done.then(() => settle(), settle);
    if (job.kind !== 'give-key') return;
    this.#giving.set(job.id, done);
    done.catch(() => {}).finally(() => this.#giving.delete(job.id));
  }

  #handOverAll(): void {
    const all = [...this.#pending.values()];
    this.#pending.clear();
    for (const pending of all) this.#handOver(pending);
  }

  /** Resolves when the writer knows the lives of the keys that are about to be destroyed. */
  #givingOf(keyIds: ReadonlySet<number>): Promise<unknown> {
    for (const [stored, pending] of this.#pending) {
      if (!keyIds.has(pending.job.id)) continue;
      this.#pending.delete(stored);
      this.#handOver(pending);
    }
    return Promise.all([...this.#giving].flatMap(([keyId, done]) => (keyIds.has(keyId) ? [done] : [])));
  }

  findKey(keyId: number, stream: string, { once = false }: KeyUse = {}): KeyLookup {
    const cached = this.#cache.get(keyId);
    if (cached !== undefined)
      return cached.stream === stream ? { status: 'there', key: cached.key } : { status: 'unknown' };
    const row = this.#read.key.get(keyId) as unknown as [wrapped: string, owner: string | null] | undefined;
    if (row === undefined) {
      const unsettled = this.#unsettled.get(keyId);
      return unsettled?.stream === stream ? { status: 'there', key: unsettled.key } : { status: 'unknown' };
    }
    const [wrapped, owner] = row;
    // Nothing is left of a destroyed key, so only the stored owner tells which life it belonged to.
    if (owner !== null) {
      return { status: Buffer.from(owner, 'hex').equals(ownerOf(stream)) ? 'destroyed' : 'unknown' };
    }
    const bytes = unwrapKey(this.#master, keyId, stream, Buffer.from(wrapped, 'hex'));
    if (bytes === undefined) return { status: 'unknown' };
    const key: SecretLifeKey = { keyId, secret: createSecretKey(bytes) };
    bytes.fill(0);
    if (!once) this.#cache.set(keyId, { stream, key });
    return { status: 'there', key };
  }

  async destroyKeys(requests: readonly DestroyRequest[]): Promise<DestroyOutcome[]> {
    if (requests.length === 0) return [];
    await this.#undestroyed;
    // No await may come between here and the registration of the destruction, so that a copy of the vault waits for it.
    const given = this.#givingOf(new Set(requests.map(({ keyId }) => keyId)));
    const jobs = await this.#destroying(given.then(() => Promise.allSettled(this.#destroyJobs(requests))));
    const failed = jobs.find((job) => job.status === 'rejected');
    const outcomes = jobs.flatMap((job) => (job.status === 'fulfilled' ? job.value : []));
    for (let index = 0; index < requests.length; index++) {
      // After a failure only the file tells which keys are destroyed, so they are removed from the cache.
      const { keyId } = requests[index]!;
      const kind = failed === undefined ? outcomes[index]!.kind : undefined;
      if (kind !== 'refused') this.#cache.delete(keyId);
      if (kind === 'destroyed' || kind === 'already-destroyed') this.#unsettled.delete(keyId);
    }
    if (failed !== undefined) throw failed.reason;
    return outcomes;
  }

  /** Destroys keys in several jobs, so that writes of clients come in between. */
  *#destroyJobs(requests: readonly DestroyRequest[]): Generator<Promise<DestroyOutcome[]>> {
    for (let from = 0; from < requests.length; from += DESTROYED_AT_ONCE) {
      const some = requests.slice(from, from + DESTROYED_AT_ONCE);
      const weight = Math.ceil(some.length / KEYS_A_WRITE);
      const job: DestroyJob = { kind: 'destroy', requests: some, weight, apart: true };
      yield this.#writer.submit<DestroyOutcome[]>(job, { background: true });
    }
  }

  /**
   * Copies the file. Meanwhile no key is destroyed, but new ones are made. There are no spare keys in the file meanwhile, so the copy has
   * no keys of lives that begin later.
   */
  async whileCopying<Result>(work: () => Promise<Result>): Promise<Result> {
    const before = this.#undestroyed;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#undestroyed = promise;
    await before;
    const keepsSpares = this.#keepsSpares;
    this.#keepsSpares = false;
    try {
      while (this.#destructions.size > 0) await Promise.allSettled(this.#destructions);
      // Before the spare keys are removed, the writer is told which of them were given to lives in this turn.
      if (keepsSpares) await this.#spares.remove(() => this.#handOverAll());
      return await work();
    } finally {
      this.#keepsSpares = keepsSpares;
      resolve();
    }
  }

  async #destroying<Outcome>(work: Promise<Outcome>): Promise<Outcome> {
    this.#destructions.add(work);
    try {
      return await work;
    } finally {
      this.#destructions.delete(work);
    }
  }

  /** Removes all unwrapped keys from memory. They are unwrapped again when needed. */
  forgetUnwrapped(): void {
    this.#cache.clear();
  }

  placeHold(hold: VaultHold, { isNew = false }: { readonly isNew?: boolean } = {}): Promise<boolean> {
    const job: VaultWriteJob = { kind: 'vault-write', write: { what: 'place-hold', hold, isNew } };
    return this.#writer.submit<boolean>(job);
  }

  releaseHold(holdId: string, { placedAtMs }: { readonly placedAtMs?: number | undefined } = {}): Promise<void> {
    return this.#write({ what: 'release-hold', holdId, placedAtMs });
  }

  holds(containerRid?: string): VaultHold[] {
    const { holds, holdsOfContainer } = this.#read;
    const rows = containerRid === undefined ? holds.all() : holdsOfContainer.all(containerRid);
    return (rows as { hold_id: string; container: string; scope: string; placed_at: number }[]).map((row) => {
      const scope = this.#scopeInForce(row.hold_id, row.scope);
      return { holdId: row.hold_id, containerRid: row.container, scope, placedAtMs: row.placed_at };
    });
  }

  /** The scope of a hold by the rows that decide on destructions. Because of damage they may differ from the hold's own row. */
  #scopeInForce(holdId: string, kept: string): HoldScope {
    const scope = parsedJson(kept) as HoldScope | undefined;
    if (scope?.kind === 'lives') {
      const lives = this.#read.heldLives.all(holdId) as { stream: string }[];
      return { kind: 'lives', streams: lives.map((life) => life.stream) };
    }
    const rows = this.#read.heldPrefixes.all(holdId) as { prefix: string }[];
    const inForce = new Set(rows.map(({ prefix }) => prefix));
    const isWhole = scope !== undefined && prefixesOf(scope).every((prefix) => inForce.has(prefix));
    return isWhole ? scope : { kind: 'stream-prefixes', prefixes: [...inForce] };
  }

  holdsOn(streams: readonly string[]): string[][] {
    return streams.map((stream) =>
      (this.#read.holdsOn.all(stream) as { hold_id: string }[]).map(({ hold_id }) => hold_id),
    );
  }

  setFloor(containerRid: string, kind: FloorKind, seconds: number, options: SetFloorOptions = {}): Promise<void> {
    return this.#write({ what: 'set-floor', containerRid, floor: kind, seconds, options });
  }

  floors(): ReadonlyMap<string, ContainerFloors> {
    const rows = this.#read.floors.all() as { container: string; kind: FloorKind; seconds: number }[];
    const floors = new Map<string, ContainerFloors>();
    for (const { container, kind, seconds } of rows) {
      floors.set(container, { ...floors.get(container), [kind]: seconds });
    }
    return floors;
  }

  onNewSecret(check: (containerRid: string) => Promise<void>): void {
    this.#assertNothingNamed = check;
  }

  containerSecret(containerRid: string): Promise<Uint8Array> {
    return this.#secret(secretNameOf(containerRid), containerRid);
  }

  /** Does not close the writer: the log shares it, and closes it. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#handOverAll();
    await this.#writer.idle();
    this.#spares.wipe();
    this.#cache.clear();
    this.#unsettled.clear();
    this.#database.close();
  }

  async #secret(name: string, containerRid?: string): Promise<Uint8Array> {
    const place = Buffer.from(name);
    const kept = () => (this.#read.secret.get(name) as { wrapped: Uint8Array } | undefined)?.wrapped;
    let wrapped = kept();
    if (wrapped === undefined && containerRid !== undefined) {
      try {
        await this.#assertNothingNamed(containerRid);
      } catch (error) {
        // A concurrent write may have made the secret, and named items with it, since this call looked for it.
        wrapped = kept();
        if (wrapped === undefined) throw error;
      }
    }
    if (wrapped === undefined) {
      const fresh = gcmSeal(this.#master, place, this.#random.take(32));
      // If two calls make a secret, the first one wins. The caller gets the secret that is in the vault.
      const job: VaultWriteJob = { kind: 'vault-write', write: { what: 'add-secret', name }, blobs: [fresh] };
      wrapped = await this.#writer.submit<Uint8Array>(job);
    }
    const secret = gcmOpen(this.#master, place, wrapped);
    if (secret === undefined) {
      if (containerRid !== undefined) {
        throw new UnreadableSecret(
          `vault.db is damaged: the secret of ${containerRid} in it does not open with the master key. Restore the key vault from a backup.`,
        );
      }
      throw new UnusableFile(
        'The master key is not the one in force for this key vault: perhaps it is one from before a change, or of another store. Give the right one; nothing can be read without it.',
      );
    }
    return secret;
  }

  async #write(write: VaultWriteJob['write']): Promise<void> {
    const job: VaultWriteJob = { kind: 'vault-write', write };
    await this.#writer.submit(job);
  }
}

function prepare(database: DatabaseSync) {
  // The owner is read for destroyed keys only, and both columns as text: a column of bytes takes as long as the rest of the look-up.
  const key = database.prepare(
    `SELECT hex(wrapped), iif(wrapped = zeroblob(length(wrapped)), hex(owner), NULL) FROM keys WHERE id = ? AND owner <> ${NOBODY}`,
  );
  key.setReturnArrays(true);
  return {
    lastKey: database.prepare(LAST_KEY_ID),
    key,
    holds: database.prepare('SELECT hold_id, container, scope, placed_at FROM holds ORDER BY placed_at, hold_id'),
    holdsOfContainer: database.prepare(
      'SELECT hold_id, container, scope, placed_at FROM holds WHERE container = ? ORDER BY placed_at, hold_id',
    ),
    holdsOn: database.prepare(HOLDS_ON_STREAM),
    heldLives: database.prepare('SELECT stream FROM held_lives WHERE hold_id = ? ORDER BY stream'),
    heldPrefixes: database.prepare('SELECT prefix FROM held_prefixes WHERE hold_id = ?'),
    floors: database.prepare(
      `SELECT container, 'retention' AS kind, min(seconds, ${LONGEST_FLOOR_SECONDS}) AS seconds FROM floors
       UNION ALL SELECT container, 'change-feed', min(seconds, ${LONGEST_FLOOR_SECONDS}) FROM feed_floors`,
    ),
    secret: database.prepare('SELECT wrapped FROM secrets WHERE name = ?'),
  } satisfies Record<string, StatementSync>;
}
