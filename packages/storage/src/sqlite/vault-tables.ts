import type { KeyObject } from 'node:crypto';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import {
  type ContainerFloors,
  destroyedUnder,
  type DestroyOutcome,
  type DestroyRequest,
  type FloorKind,
  floorUntil,
  type HoldScope,
  isFloorToSet,
  isOfAnother,
  LONGEST_FLOOR_SECONDS,
  prefixesOf,
  type VaultHold,
} from '@epitaph/core/vault/key-vault.ts';
import { ownerOf, WRAPPED_BYTES, wrapKey } from '../crypto/key-wrapping.ts';
import { BUSY_MS, EMPTYING_MS } from './database.ts';
import { isZero } from './is-zero.ts';
import type { VaultWriteJob } from './log-writer-jobs.ts';
import { HOLDS_ON_STREAM, LAST_KEY_ID, NOBODY } from './schema.ts';

/** Smaller gaps in key ids come from batches of spare keys, whose keys get rows later. Larger ones come from a restore, and stay. */
const MAX_PASSED = 10_000;

/** Writes to the vault's tables: keys, holds, floors, secrets. The caller provides the transactions. */
export class VaultTables {
  readonly #vault: DatabaseSync;
  readonly #statements: ReturnType<typeof prepareVault>;
  readonly #masterKey: KeyObject;
  /** The highest key id that has a row, if it is known. */
  #lastKeyId: number | undefined;

  constructor(vault: DatabaseSync, masterKey: KeyObject) {
    this.#vault = vault;
    this.#statements = prepareVault(vault);
    this.#masterKey = masterKey;
  }

  /** Must be called after a rollback. */
  rolledBack(): void {
    this.#lastKeyId = undefined;
  }

  /**
   * Adds a key. Rows are only appended in the order of their ids: if a row were inserted between others, SQLite could move these to
   * another page, and copies of them would remain on the former page after their destruction. So ids that are skipped get blank rows
   * now.
   *
   * @param key the key in plain, which is overwritten
   */
  addKey(id: number, stream: string, key: Uint8Array): void {
    const { insertKey, insertBlank, fillBlank } = this.#statements;
    const [owner, wrapped] = [ownerOf(stream), wrapKey(this.#masterKey, id, stream, key)];
    key.fill(0);
    const last = this.#lastKeyId ?? (this.#statements.lastKey.get() as { last: number }).last;
    if (id <= last && fillBlank.run(owner, wrapped, id).changes > 0) return;
    for (let passed = last + 1; passed < id && id - passed <= MAX_PASSED; passed++) insertBlank.run(passed);
    insertKey.run(id, owner, wrapped);
    this.#lastKeyId = Math.max(last, id);
  }

  destroy(request: DestroyRequest): DestroyOutcome {
    const row = this.#statements.findKey.get(request.keyId) as { owner: Uint8Array; wrapped: Uint8Array } | undefined;
    if (row === undefined || Buffer.compare(row.owner, ownerOf(request.stream)) !== 0) return { kind: 'unknown' };
    if (isZero(row.wrapped)) return { kind: 'already-destroyed' };
    const holds = (this.#statements.holdsOn.all(request.stream) as { hold_id: string }[]).map(({ hold_id }) => hold_id);
    const floors = this.#floorsOf(parseItemStream(request.stream)!.containerRid);
    const floorUntilMs = floorUntil(floors, request);
    if (holds.length > 0 || floorUntilMs !== null) return { kind: 'refused', holds, floorUntilMs };
    this.#statements.overwriteKey.run(request.keyId);
    return destroyedUnder(floors);
  }

  write({ write, blobs }: VaultWriteJob): unknown {
    switch (write.what) {
      case 'place-hold': {
        const { holdId, containerRid, scope, placedAtMs } = write.hold;
        if (write.isNew && this.#isOfAnother(write.hold)) return false;
        this.#statements.removeHeldLives.run(holdId);
        this.#statements.removeHeldPrefixes.run(holdId);
        // Each held life has its own row, so that a hold on a million lives costs a look-up, not a scan.
        const kept: HoldScope = scope.kind === 'lives' ? { kind: 'lives', streams: [] } : scope;
        this.#statements.putHold.run(holdId, containerRid, JSON.stringify(kept), placedAtMs);
        if (scope.kind === 'lives')
          for (const stream of scope.streams) this.#statements.addHeldLife.run(stream, holdId);
        for (const prefix of prefixesOf(scope)) this.#statements.addHeldPrefix.run(prefix, prefix, holdId);
        return true;
      }
      case 'release-hold':
        if (write.placedAtMs !== undefined && this.#hold(write.holdId)?.placed_at !== write.placedAtMs)
          return undefined;
        this.#statements.removeHeldLives.run(write.holdId);
        this.#statements.removeHeldPrefixes.run(write.holdId);
        this.#statements.removeHold.run(write.holdId);
        return undefined;
      case 'set-floor':
        if (!isFloorToSet(this.#floorsOf(write.containerRid)[write.floor] ?? 0, write.seconds, write.options)) {
          return undefined;
        }
        if (write.seconds === 0) this.#statements.removeFloor[write.floor].run(write.containerRid);
        else this.#statements.putFloor[write.floor].run(write.containerRid, write.seconds);
        return undefined;
      case 'add-secret':
        this.#statements.addSecret.run(write.name, blobs![0]!);
        return (this.#statements.findSecret.get(write.name) as { wrapped: Uint8Array }).wrapped;
    }
  }

  #floorsOf(containerRid: string): ContainerFloors {
    const found = this.#statements.findFloors.all(containerRid, containerRid) as { kind: FloorKind; seconds: number }[];
    return Object.fromEntries(found.map(({ kind, seconds }) => [kind, seconds]));
  }

  #hold(holdId: string): { readonly scope: string; readonly placed_at: number } | undefined {
    return this.#statements.findHold.get(holdId) as { scope: string; placed_at: number } | undefined;
  }

  /** Whether the stored hold of the same id comes from another request. */
  #isOfAnother(hold: VaultHold): boolean {
    const found = this.#hold(hold.holdId);
    if (found === undefined) return false;
    const kept = JSON.parse(found.scope) as HoldScope;
    const lives = this.#statements.findHeldLives.all(hold.holdId) as { stream: string }[];
    const scope = kept.kind === 'lives' ? { ...kept, streams: lives.map(({ stream }) => stream) } : kept;
    return isOfAnother({ scope, placedAtMs: found.placed_at }, hold);
  }

  /**
   * Moves everything from the write-ahead log into the file, and empties the write-ahead log: until then it has older versions of pages,
   * with destroyed keys. SQLite reports `busy` as a result, not as an exception.
   *
   * @throws while another connection reads the file. The caller of the destruction then tries again
   */
  forgetOldPages(): void {
    this.#vault.exec(`PRAGMA busy_timeout = ${EMPTYING_MS}`);
    try {
      const { busy } = this.#statements.truncateWal.get() as { busy: number };
      if (busy === 0) return;
    } finally {
      this.#vault.exec(`PRAGMA busy_timeout = ${BUSY_MS}`);
    }
    throw new Error(
      'nothing can be erased while another program reads vault.db, because its journal still has the keys that were destroyed. Stop that program; a running store then continues by itself.',
    );
  }
}

function prepareVault(vault: DatabaseSync) {
  return {
    lastKey: vault.prepare(LAST_KEY_ID),
    insertBlank: vault.prepare(
      `INSERT INTO keys (id, owner, wrapped) VALUES (?, ${NOBODY}, zeroblob(${WRAPPED_BYTES}))`,
    ),
    fillBlank: vault.prepare(
      `UPDATE keys SET owner = ?, wrapped = ? WHERE id = ? AND owner = ${NOBODY} AND length(wrapped) = ${WRAPPED_BYTES}`,
    ),
    insertKey: vault.prepare('INSERT INTO keys (id, owner, wrapped) VALUES (?, ?, ?)'),
    findKey: vault.prepare('SELECT owner, wrapped FROM keys WHERE id = ?'),
    // The length does not change, so the row stays at its place on its page.
    overwriteKey: vault.prepare('UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = ?'),
    holdsOn: vault.prepare(HOLDS_ON_STREAM),
    putHold: vault.prepare('INSERT OR REPLACE INTO holds (hold_id, container, scope, placed_at) VALUES (?, ?, ?, ?)'),
    findHold: vault.prepare('SELECT scope, placed_at FROM holds WHERE hold_id = ?'),
    findHeldLives: vault.prepare('SELECT stream FROM held_lives WHERE hold_id = ?'),
    addHeldLife: vault.prepare('INSERT OR IGNORE INTO held_lives (stream, hold_id) VALUES (?, ?)'),
    addHeldPrefix: vault.prepare(
      'INSERT OR IGNORE INTO held_prefixes (length, prefix, hold_id) VALUES (length(?), ?, ?)',
    ),
    removeHeldPrefixes: vault.prepare('DELETE FROM held_prefixes WHERE hold_id = ?'),
    removeHold: vault.prepare('DELETE FROM holds WHERE hold_id = ?'),
    removeHeldLives: vault.prepare('DELETE FROM held_lives WHERE hold_id = ?'),
    findFloors: vault.prepare(
      `SELECT 'retention' AS kind, min(seconds, ${LONGEST_FLOOR_SECONDS}) AS seconds FROM floors WHERE container = ?
       UNION ALL SELECT 'change-feed', min(seconds, ${LONGEST_FLOOR_SECONDS}) FROM feed_floors WHERE container = ?`,
    ),
    putFloor: {
      retention: vault.prepare('INSERT OR REPLACE INTO floors (container, seconds) VALUES (?, ?)'),
      'change-feed': vault.prepare('INSERT OR REPLACE INTO feed_floors (container, seconds) VALUES (?, ?)'),
    },
    removeFloor: {
      retention: vault.prepare('DELETE FROM floors WHERE container = ?'),
      'change-feed': vault.prepare('DELETE FROM feed_floors WHERE container = ?'),
    },
    addSecret: vault.prepare('INSERT OR IGNORE INTO secrets (name, wrapped) VALUES (?, ?)'),
    findSecret: vault.prepare('SELECT wrapped FROM secrets WHERE name = ?'),
    truncateWal: vault.prepare('PRAGMA wal_checkpoint(TRUNCATE)'),
  } satisfies Record<string, StatementSync | Record<FloorKind, StatementSync>>;
}
