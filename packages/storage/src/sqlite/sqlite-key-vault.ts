import { createSecretKey, hash, type KeyObject } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type {
  DestroyOutcome,
  DestroyRequest,
  HoldScope,
  KeyLookup,
  KeyVault,
  NewLifeKey,
  VaultHold,
} from '@epitaph/core/vault/key-vault.ts';
import { gcmOpen, gcmSeal } from '../crypto/aes-gcm.ts';
import type { SecretLifeKey } from '../crypto/gcm-body-sealer.ts';
import { RandomPool } from '../crypto/random-pool.ts';
import { UnusableFile } from './database.ts';
import type { AddKeyJob, DestroyJob, VaultWriteJob } from './log-writer-core.ts';
import type { WriterOrder } from './sqlite-event-log.ts';
import type { Writer } from './writer.ts';

/** Unwrapped keys kept in memory; a destroyed one leaves at once. */
const CACHE_SIZE = 50_000;
const OWNER_BYTES = 8;
const MASTER_KEY_CHECK = 'master-key-check';

/** The key vault in one SQLite file, written by the same writer as the log. */
export class SqliteKeyVault implements KeyVault, WriterOrder {
  readonly #writer: Writer;
  readonly #database: DatabaseSync;
  readonly #master: KeyObject;
  readonly #read: ReturnType<typeof prepare>;
  readonly #cache = new Map<number, { readonly stream: string; readonly key: SecretLifeKey }>();
  /** Of each key that is being stored: the group of the writer's jobs that it went into. */
  readonly #groups = new WeakMap<Promise<unknown>, number>();
  readonly #random = new RandomPool();
  #nextKeyId: number;

  private constructor(writer: Writer, database: DatabaseSync, master: KeyObject) {
    this.#writer = writer;
    this.#database = database;
    this.#master = master;
    this.#read = prepare(database);
    this.#nextKeyId = (this.#read.lastKey.get() as { last: number }).last + 1;
  }

  /**
   * @throws {UnusableFile} when the master key is not the one the vault was made with.
   */
  static async open(writer: Writer, database: DatabaseSync, master: KeyObject): Promise<SqliteKeyVault> {
    const vault = new SqliteKeyVault(writer, database, master);
    // A value that only the right master key opens: a wrong one is noticed now and not at the first read.
    await vault.#secret(MASTER_KEY_CHECK);
    return vault;
  }

  isQueued(promise: Promise<unknown>): boolean {
    return this.#groups.get(promise) === this.#writer.gatheringGroup;
  }

  createKey(stream: string): NewLifeKey {
    const keyId = this.#nextKeyId++;
    const bytes = this.#random.take(32);
    const key: SecretLifeKey = { keyId, secret: createSecretKey(bytes) };
    const wrapped = gcmSeal(this.#master, keyPlace(keyId, stream), bytes);
    bytes.fill(0);
    const job: AddKeyJob = { kind: 'add-key', id: keyId, owner: ownerOf(stream), wrapped };
    const group = this.#writer.gatheringGroup;
    const stored = this.#writer.submit<undefined>(job);
    this.#groups.set(stored, group);
    this.#remember(keyId, stream, key);
    // The append that needs this key fails with it and tells; here it only has to be forgotten.
    stored.catch(() => this.#cache.delete(keyId));
    return { key, stored };
  }

  findKey(keyId: number, stream: string): KeyLookup {
    const cached = this.#cache.get(keyId);
    if (cached !== undefined) return cached.stream === stream ? { status: 'there', key: cached.key } : { status: 'unknown' };
    const row = this.#read.key.get(keyId) as { owner: Uint8Array; wrapped: Uint8Array } | undefined;
    if (row === undefined || Buffer.compare(row.owner, ownerOf(stream)) !== 0) return { status: 'unknown' };
    if (isZero(row.wrapped)) return { status: 'destroyed' };
    const bytes = gcmOpen(this.#master, keyPlace(keyId, stream), row.wrapped);
    if (bytes === undefined) return { status: 'unknown' };
    const key: SecretLifeKey = { keyId, secret: createSecretKey(bytes) };
    bytes.fill(0);
    this.#remember(keyId, stream, key);
    return { status: 'there', key };
  }

  async destroyKeys(requests: readonly DestroyRequest[]): Promise<DestroyOutcome[]> {
    if (requests.length === 0) return [];
    const job: DestroyJob = {
      kind: 'destroy',
      requests: requests.map((request) => ({ ...request, owner: ownerOf(request.stream) })),
    };
    const outcomes = await this.#writer.submit<DestroyOutcome[]>(job);
    for (let index = 0; index < requests.length; index++) {
      if (outcomes[index]!.kind !== 'refused') this.#cache.delete(requests[index]!.keyId);
    }
    return outcomes;
  }

  /** Drops every unwrapped key from memory; they are unwrapped again when needed. */
  forgetUnwrapped(): void {
    this.#cache.clear();
  }

  placeHold(hold: VaultHold): Promise<void> {
    return this.#write({ what: 'place-hold', hold });
  }

  releaseHold(holdId: string): Promise<void> {
    return this.#write({ what: 'release-hold', holdId });
  }

  holds(): VaultHold[] {
    const rows = this.#read.holds.all() as { hold_id: string; container: string; scope: string; placed_at: number }[];
    return rows.map((row) => {
      let scope = JSON.parse(row.scope) as HoldScope;
      if (scope.kind === 'lives') {
        const lives = this.#read.heldLives.all(row.hold_id) as { stream: string }[];
        scope = { kind: 'lives', streams: lives.map((life) => life.stream) };
      }
      return { holdId: row.hold_id, containerRid: row.container, scope, placedAtMs: row.placed_at };
    });
  }

  setFloor(containerRid: string, seconds: number): Promise<void> {
    return this.#write({ what: 'set-floor', containerRid, seconds });
  }

  floors(): ReadonlyMap<string, number> {
    const rows = this.#read.floors.all() as { container: string; seconds: number }[];
    return new Map(rows.map((row) => [row.container, row.seconds]));
  }

  containerSecret(containerRid: string): Promise<Uint8Array> {
    return this.#secret(`container ${containerRid}`);
  }

  /** The writer goes on: the log shares it, and closes it. */
  async close(): Promise<void> {
    await this.#writer.idle();
    this.#cache.clear();
    this.#database.close();
  }

  async #secret(name: string): Promise<Uint8Array> {
    const place = Buffer.from(name);
    const known = this.#read.secret.get(name) as { wrapped: Uint8Array } | undefined;
    let wrapped = known?.wrapped;
    if (wrapped === undefined) {
      const fresh = gcmSeal(this.#master, place, this.#random.take(32));
      // Whoever is first wins; the answer is what stands in the vault.
      const job: VaultWriteJob = { kind: 'vault-write', write: { what: 'add-secret', name, wrapped: fresh } };
      wrapped = await this.#writer.submit<Uint8Array>(job);
    }
    const secret = gcmOpen(this.#master, place, wrapped);
    if (secret === undefined) {
      throw new UnusableFile(
        'The master key is not the one this key vault was made with. Give the right one; nothing can be read without it.',
      );
    }
    return secret;
  }

  async #write(write: VaultWriteJob['write']): Promise<void> {
    const job: VaultWriteJob = { kind: 'vault-write', write };
    await this.#writer.submit(job);
  }

  #remember(keyId: number, stream: string, key: SecretLifeKey): void {
    if (this.#cache.size >= CACHE_SIZE) {
      const oldest = this.#cache.keys().next().value;
      if (oldest !== undefined) this.#cache.delete(oldest);
    }
    this.#cache.set(keyId, { stream, key });
  }
}

/** Says whose key it is without saying the name: enough to notice a vault that belongs to another log. */
function ownerOf(stream: string): Buffer {
  return hash('sha256', stream, 'buffer').subarray(0, OWNER_BYTES);
}

function keyPlace(keyId: number, stream: string): Buffer {
  return Buffer.from(`${keyId} ${stream}`, 'latin1');
}

function isZero(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0);
}

function prepare(database: DatabaseSync) {
  return {
    lastKey: database.prepare('SELECT coalesce(max(id), 0) AS last FROM keys'),
    key: database.prepare('SELECT owner, wrapped FROM keys WHERE id = ?'),
    holds: database.prepare('SELECT hold_id, container, scope, placed_at FROM holds ORDER BY placed_at, hold_id'),
    heldLives: database.prepare('SELECT stream FROM held_lives WHERE hold_id = ? ORDER BY stream'),
    floors: database.prepare('SELECT container, seconds FROM floors'),
    secret: database.prepare('SELECT wrapped FROM secrets WHERE name = ?'),
  } satisfies Record<string, StatementSync>;
}
