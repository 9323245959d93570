import { createSecretKey, type KeyObject } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { invariant } from '@epitaph/core/invariant.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import { GcmBodySealer, type SecretLifeKey } from '../crypto/gcm-body-sealer.ts';
import { KEY_BYTES, unwrapKey, wrapKey } from '../crypto/key-wrapping.ts';
import type { StepHook } from './placed-crash.ts';
import { isZero } from './is-zero.ts';
import { NOBODY, SPARE_HEAD_BYTES, SPARE_SLOTS } from './schema.ts';
import type { VaultTables } from './vault-tables.ts';
import { livesIn } from './written-lives.ts';

/** A batch is sealed for this name, instead of the name of a life's stream. No stream has this name. */
const NOBODYS = 'spare keys';
/** Batches are settled at least once in this many positions. This limits how many events are read after a crash. */
const STALE_AFTER = 250_000;

/** Keys with consecutive ids that were stored in one piece, before they had lives. */
interface Batch {
  readonly slot: number;
  readonly first: number;
  /** The keys, one after the other. A key that has a row of its own by now is overwritten with zeros. */
  readonly keys: Buffer;
  /** No event up to this position uses one of the remaining keys. */
  readonly position: number;
}

/**
 * The spare keys of a vault: batches of keys that are stored in advance, so that the first write of a life need not wait for its key.
 * The log shows which life has a spare key, once its first write is there; until then only this object knows. The key gets a row of its
 * own when the vault is written to next. After a crash before that, the next start finds the life in the log.
 */
export class SpareKeys {
  readonly #tables: VaultTables;
  readonly #masterKey: KeyObject;
  readonly #statements: ReturnType<typeof prepare>;
  #batches: Batch[] = [];
  readonly #given = new Map<number, string>();
  /** The batches as they will be once the transaction is committed. */
  #next: Batch[] | undefined;
  #settledAt = 0;

  constructor(vault: DatabaseSync, tables: VaultTables, masterKey: KeyObject) {
    this.#tables = tables;
    this.#masterKey = masterKey;
    this.#statements = prepare(vault);
  }

  /** Gives a spare key to a life. */
  give(id: number, stream: string): void {
    invariant(this.#batchOf(id) !== undefined, 'a key is in the vault before it is given to a life');
    this.#given.set(id, stream);
  }

  /** Whether it is time to settle, even if nothing else is written to the vault. */
  isStale(position: number): boolean {
    return this.#batches.some((batch) => position - batch.position > STALE_AFTER);
  }

  /**
   * Gives each key that has a life a row of its own, and removes it from its batch. Must be called in a transaction.
   *
   * @param position the log's last position
   */
  settle(position: number): void {
    this.#next = [];
    for (const batch of this.#batches) {
      const keys = Buffer.from(batch.keys);
      const given = [...this.#given].filter(([id]) => isIn(batch, id));
      for (const [id, stream] of given) {
        const offset = (id - batch.first) * KEY_BYTES;
        const key = keys.subarray(offset, offset + KEY_BYTES);
        // This also overwrites the key in the batch.
        this.#tables.addKey(id, stream, key);
      }
      if (given.length === 0 && position - batch.position <= STALE_AFTER) this.#next.push(batch);
      else if (isZero(keys)) this.#statements.empty.run(batch.slot);
      else this.#put({ ...batch, keys, position: Math.max(batch.position, this.#settledAt) });
    }
  }

  /**
   * Adds a batch. Must be called in a transaction after {@link settle}. If all slots are used, the oldest batch is dropped. A new batch
   * is requested when half a batch is left, so new lives only use the last two. An older one should have been removed already, but
   * the disk was full.
   */
  add(first: number, keys: Uint8Array, position: number): void {
    const kept = this.#next!.toSorted((one, other) => one.first - other.first).slice(1 - SPARE_SLOTS.length);
    const taken = new Set<number>(kept.map(({ slot }) => slot));
    const slot = SPARE_SLOTS.find((one) => !taken.has(one))!;
    this.#next = kept;
    this.#put({ slot, first, keys: Buffer.from(keys), position });
  }

  /**
   * Removes all batches. Must be called in a transaction after {@link settle}. Batches under another master key stay; see
   * {@link recoverSpareKeys}.
   */
  removeAll(): void {
    for (const { slot } of this.#batches) this.#statements.empty.run(slot);
    this.#next = [];
  }

  /**
   * Must be called after the commit.
   *
   * @param position the log's last position
   * @returns the ids of the keys that got rows of their own
   */
  committed(position: number): number[] {
    const next = this.#next!;
    for (const batch of this.#batches) if (!next.includes(batch)) batch.keys.fill(0);
    this.#batches = next;
    this.#settledAt = position;
    const settled = [...this.#given.keys()];
    this.#given.clear();
    return settled;
  }

  #put(batch: Batch): void {
    this.#statements.put.run(wrapBatch(this.#masterKey, batch), batch.slot);
    this.#next!.push(batch);
  }

  #batchOf(id: number): Batch | undefined {
    return this.#batches.find((batch) => isIn(batch, id));
  }
}

const isIn = ({ first, keys }: Batch, id: number): boolean => id >= first && id < first + keys.length / KEY_BYTES;

/**
 * Called after a crash: gives each spare key that has a life in the log a row of its own, and destroys the others. If the master key is
 * wrong, which is reported elsewhere, nothing is changed. If a write is damaged so that it does not name its key, the key is found by
 * opening the write's body: a backup of the log may have the other fields.
 */
export function recoverSpareKeys(
  { log, vault }: { readonly log: DatabaseSync; readonly vault: DatabaseSync },
  tables: VaultTables,
  masterKey: KeyObject,
  step: StepHook = () => {},
): void {
  const { find, empty } = prepare(vault);
  const stored = storedBatches(vault, masterKey);
  const batches = stored.filter((batch) => batch !== undefined);
  if (batches.length === 0 || batches.length < stored.length) return;
  const spare = new Map<number, Buffer>();
  for (const { first, keys } of batches) {
    for (let offset = 0; offset < keys.length; offset += KEY_BYTES) {
      const key = keys.subarray(offset, offset + KEY_BYTES);
      if (!isZero(key)) spare.set(first + offset / KEY_BYTES, key);
    }
  }
  const from = Math.min(...batches.map(({ position }) => position));
  vault.exec('BEGIN IMMEDIATE');
  try {
    const give = (keyId: number, stream: string): void => {
      const key = spare.get(keyId);
      if (key === undefined) return;
      spare.delete(keyId);
      if (find.get(keyId) === undefined) tables.addKey(keyId, stream, key);
    };
    const damaged: number[] = [];
    for (const { keyId, stream, position } of livesIn(log, from)) {
      if (keyId === undefined) damaged.push(position);
      else give(keyId, stream);
    }
    const written = log.prepare('SELECT stream, revision, body FROM events WHERE position = ?');
    for (const position of damaged) {
      const event = written.get(position) as unknown as Written;
      const keyId = keyThatOpens(spare, event);
      if (keyId !== undefined) give(keyId, event.stream);
    }
    for (const { slot } of batches) empty.run(slot);
    step('spare keys: before commit');
    vault.exec('COMMIT');
  } catch (error) {
    if (vault.isTransaction) vault.exec('ROLLBACK');
    throw error;
  }
  for (const key of spare.values()) key.fill(0);
  step('spare keys: after commit');
}

interface Written {
  readonly stream: string;
  readonly revision: number;
  readonly body: Uint8Array;
}

function keyThatOpens(keys: ReadonlyMap<number, Buffer>, { stream, revision, body }: Written): number | undefined {
  const sealer = new GcmBodySealer();
  for (const [keyId, bytes] of keys) {
    try {
      const key: SecretLifeKey = { keyId, secret: createSecretKey(bytes) };
      sealer.open(key, stream, revision, body);
      return keyId;
    } catch (error) {
      if (!(error instanceof SealBroken)) throw error;
    }
  }
  return undefined;
}

/** The highest id of a spare key in a vault; 0 if there is none, or the master key is wrong. */
export function lastSpareKey(vault: DatabaseSync, masterKey: KeyObject): number {
  const batches = storedBatches(vault, masterKey).filter((batch) => batch !== undefined);
  return Math.max(0, ...batches.map(({ first, keys }) => first + keys.length / KEY_BYTES - 1));
}

/** The batches in the slots that are in use; undefined for a batch that is wrapped with another master key. */
function storedBatches(vault: DatabaseSync, masterKey: KeyObject): (Batch | undefined)[] {
  const rows = prepare(vault).all.all() as { slot: number; wrapped: Uint8Array }[];
  return rows
    .filter(({ wrapped }) => !isZero(wrapped))
    .map(({ slot, wrapped }) => unwrapBatch(masterKey, slot, wrapped));
}

function wrapBatch(master: KeyObject, { slot, first, position, keys }: Batch): Buffer {
  const head = Buffer.alloc(SPARE_HEAD_BYTES);
  head.writeDoubleBE(first, 0);
  head.writeDoubleBE(position, 8);
  const plain = Buffer.concat([head, keys]);
  try {
    return wrapKey(master, slot, NOBODYS, plain);
  } finally {
    plain.fill(0);
  }
}

function unwrapBatch(master: KeyObject, slot: number, wrapped: Uint8Array): Batch | undefined {
  const plain = unwrapKey(master, slot, NOBODYS, wrapped);
  if (plain === undefined) return undefined;
  return {
    slot,
    first: plain.readDoubleBE(0),
    position: plain.readDoubleBE(8),
    keys: plain.subarray(SPARE_HEAD_BYTES),
  };
}

function prepare(vault: DatabaseSync) {
  return {
    all: vault.prepare('SELECT slot, wrapped FROM spare_keys ORDER BY slot'),
    // The length does not change, so each row stays at its place on its pages.
    put: vault.prepare('UPDATE spare_keys SET wrapped = ? WHERE slot = ?'),
    empty: vault.prepare('UPDATE spare_keys SET wrapped = zeroblob(length(wrapped)) WHERE slot = ?'),
    find: vault.prepare(`SELECT 1 FROM keys WHERE id = ? AND owner <> ${NOBODY}`),
  } satisfies Record<string, StatementSync>;
}
