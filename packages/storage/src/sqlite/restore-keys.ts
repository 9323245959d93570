import { type KeyObject, randomInt } from 'node:crypto';
import { join } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { VaultManifest } from '@epitaph/core/backup/manifest.ts';
import { type KeysOfLives, parseLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { gcmOpen } from '../crypto/aes-gcm.ts';
import { ownerOf } from '../crypto/key-wrapping.ts';
import {
  type CopiedSecrets,
  lostKeys,
  LostNames,
  type RestoredKey,
  type RestoredKeys,
  type SettledKeys,
  settleKeys,
} from '../restored-keys.ts';
import { LEDGER_FILE } from './data-folder.ts';
import { openForReading, UnusableFile } from './database.ts';
import type { StepHook } from './placed-crash.ts';
import { PurgeLedger, readPurgeLedger } from './purge-ledger.ts';
import type { RestoreOptions, ServerLog } from './restore-options.ts';
import { LAST_KEY_ID, NOBODY } from './schema.ts';
import { secretNameOf } from './sqlite-key-vault.ts';

/** How many keys are destroyed in one transaction. */
const BATCH = 10_000;

/** Overwrites a key in place with zeros of the same length, as the vault does. */
const OVERWRITE =
  'UPDATE keys SET wrapped = zeroblob(length(wrapped)) WHERE id = ? AND owner = ? AND wrapped <> zeroblob(length(wrapped))';

/**
 * Destroys the keys that the ledger has entered since the copy of the keys was begun. Those entered before are destroyed in the copy
 * already.
 */
export async function destroyLater(
  vault: DatabaseSync,
  folder: string,
  { ledgerHead }: VaultManifest,
  onStep: StepHook,
  onProgress: (lines: number) => void,
): Promise<number> {
  const after = parseLedgerHead(ledgerHead)!.lines;
  const overwrite = vault.prepare(OVERWRITE);
  let destroyed = 0;
  let pending = 0;
  vault.exec('BEGIN IMMEDIATE');
  for await (const { head, entry } of readPurgeLedger(join(folder, LEDGER_FILE))) {
    if (head.lines <= after || entry === undefined || !('keys' in entry)) continue;
    for (const [keyId, stream] of entry.keys) destroyed += Number(overwrite.run(keyId, ownerOf(stream)).changes);
    pending += entry.keys.length;
    if (pending < BATCH) continue;
    vault.exec('COMMIT; BEGIN IMMEDIATE');
    onStep('restore keys: batch');
    pending = 0;
    onProgress(head.lines);
  }
  onStep('restore keys: before commit');
  vault.exec('COMMIT');
  onStep('restore keys: after commit');
  return destroyed;
}

/**
 * The keys of content in the log that the copy lacks.
 *
 * @throws {UnusableFile} if there are any, and that was not accepted
 */
export async function lostOf(
  { log }: ServerLog,
  head: number,
  { vault, acceptLost, onProgress = () => {} }: RestoreOptions,
): Promise<KeysOfLives> {
  const copy = openForReading(join(vault, 'vault.db'), { isCopy: true });
  try {
    const lost = await lostKeys(new CopiedKeys(copy), log, (position) => onProgress('looking', position, head));
    if (lost.length === 0 || acceptLost === true) return lost;
    throw new UnusableFile(
      `The copy of the keys is older than the log: it lacks ${lost.length} keys, and what was written with them since can't be read any more. Use the vault part of a later backup, or accept the loss (--accept-lost).`,
    );
  } finally {
    copy.close();
  }
}

/**
 * Destroys the keys of all lives that the log records as purged. A ledger that is not the newest lacks some of them; it also lacks those
 * that an interrupted restore has purged. They are entered into the ledger, so that it has all keys that the log has as destroyed.
 */
export async function settleByLog(
  vault: DatabaseSync,
  folder: string,
  { log }: ServerLog,
  known: {
    readonly store: string;
    readonly listed: ReadonlySet<number>;
    readonly lastMs: number;
    readonly master: KeyObject;
  },
  onStep: StepHook,
  onProgress: (position: number) => void,
): Promise<SettledKeys & { readonly namesLost: readonly string[] }> {
  const copied = new CopiedKeys(vault);
  const names = await LostNames.of(log, copiedSecrets(vault, known.master));
  const ledger = PurgeLedger.open(join(folder, LEDGER_FILE), { store: known.store, durable: true });
  try {
    const restored: RestoredKeys = {
      unknownOf: (keys) => copied.unknownOf(keys),
      settleRestored: async (keys) => {
        await names.look(keys);
        const settled = copied.settleRestored(keys);
        onStep('restore keys: by the log');
        const unlisted = keys.filter(({ keyId, isDestroyed }) => isDestroyed && !known.listed.has(keyId));
        if (unlisted.length > 0) {
          ledger.append([{ atMs: known.lastMs, keys: unlisted.map(({ keyId, stream }) => [keyId, stream] as const) }]);
          onStep('restore ledger: after');
        }
        return settled;
      },
    };
    const settled = await settleKeys(restored, log, onProgress);
    return { ...settled, namesLost: names.rids };
  } finally {
    ledger.close();
  }
}

function copiedSecrets(vault: DatabaseSync, master: KeyObject): CopiedSecrets {
  const find = vault.prepare('SELECT wrapped FROM secrets WHERE name = ?');
  return {
    secretOf: (rid) => {
      const name = secretNameOf(rid);
      const row = find.get(name) as { readonly wrapped: Uint8Array } | undefined;
      return row && gcmOpen(master, Buffer.from(name), row.wrapped);
    },
  };
}

/** The keys in a vault file that was restored from a copy. */
class CopiedKeys implements RestoredKeys {
  readonly #vault: DatabaseSync;
  readonly #find: StatementSync;

  constructor(vault: DatabaseSync) {
    this.#vault = vault;
    this.#find = vault.prepare('SELECT owner, wrapped = zeroblob(length(wrapped)) AS gone FROM keys WHERE id = ?');
  }

  unknownOf(keys: readonly RestoredKey[]): RestoredKey[] {
    return keys.filter((key) => this.#stateOf(key) === 'unknown');
  }

  settleRestored(keys: readonly RestoredKey[]): { readonly destroyed: number; readonly gone: ReadonlySet<number> } {
    const overwrite = this.#vault.prepare(OVERWRITE);
    // If another life has the key id, it keeps it.
    const putGone = this.#vault.prepare(
      `INSERT INTO keys (id, owner, wrapped) VALUES (?, ?, zeroblob(1))
       ON CONFLICT (id) DO UPDATE SET owner = excluded.owner WHERE owner = ${NOBODY}`,
    );
    const gone = new Set<number>();
    let destroyed = 0;
    this.#vault.exec('BEGIN IMMEDIATE');
    for (const key of keys) {
      const { keyId, stream, isDestroyed } = key;
      const state = this.#stateOf(key);
      if (state === 'unknown') putGone.run(keyId, ownerOf(stream));
      else if (isDestroyed) destroyed += Number(overwrite.run(keyId, ownerOf(stream)).changes);
      if (state !== 'there' || isDestroyed) gone.add(keyId);
    }
    this.#vault.exec('COMMIT');
    return { destroyed, gone };
  }

  #stateOf({ keyId, stream }: RestoredKey): 'there' | 'destroyed' | 'unknown' {
    const row = this.#find.get(keyId) as { readonly owner: Uint8Array; readonly gone: number } | undefined;
    if (row === undefined || !ownerOf(stream).equals(row.owner)) return 'unknown';
    return row.gone === 1 ? 'destroyed' : 'there';
  }
}

/**
 * Makes the ids of new keys continue at a much higher number. The ledger identifies keys by their ids, and the state that this restore
 * gives up may still be restored by another one. So none of the ids used there may be given out again.
 */
export function numberApart(vault: DatabaseSync): void {
  const { last } = vault.prepare(LAST_KEY_ID).get() as { last: number };
  // Inserts a destroyed key that belongs to no life: the ids of new keys continue after the highest one.
  vault
    .prepare('INSERT INTO keys (id, owner, wrapped) VALUES (?, zeroblob(1), zeroblob(1))')
    .run(last + randomInt(2 ** 40, 2 ** 44));
}
