import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { LogManifest, VaultManifest } from '@epitaph/core/backup/manifest.ts';
import { formatLedgerHead, type LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { isoTime } from '@epitaph/core/clock.ts';
import { digestOf } from './backup.ts';
import { readFacts } from './data-folder.ts';
import { UnusableFile } from './database.ts';
import { readPurgeLedger } from './purge-ledger.ts';
import type { RestoreOptions, ServerLog } from './restore-options.ts';

export const isOnServer = (log: LogManifest | ServerLog): log is ServerLog => 'name' in log;

export function assertTogether(log: LogManifest | ServerLog, vault: VaultManifest): void {
  if (isOnServer(log)) assertItsLog(log, vault);
  else assertSameStore(log, vault);
}

/**
 * Refuses a copy of the keys that has lapsed. Times of the manual clock are not real ones. So with that clock, the latest recorded time
 * decides.
 *
 * @param recordedMs the latest recorded time, in milliseconds
 */
export function assertNotLapsed(
  { lapsesAtMs }: VaultManifest,
  { folder }: { readonly folder: string },
  recordedMs: number,
  { nowMs, allowLapsed }: RestoreOptions,
): void {
  if (allowLapsed || lapsesAtMs > (hasManualClock(folder) ? recordedMs : nowMs)) return;
  throw new UnusableFile(
    `The copy of the keys lapsed at ${isoTime(lapsesAtMs)}: certificates say that it was destroyed by then. To restore from it anyway, use --allow-lapsed.`,
  );
}

function hasManualClock(folder: string): boolean {
  try {
    return readFacts(folder)?.clock === 'manual';
  } catch {
    // Missing and damaged files are reported by a later check.
    return false;
  }
}

function assertSameStore(log: LogManifest, vault: VaultManifest): void {
  if (vault.log !== undefined) {
    throw new UnusableFile(
      'The log of these keys is on a server, not in the backup. Use --event-store instead of --log.',
    );
  }
  if (log.store !== vault.store) {
    throw new UnusableFile(
      `The two parts are from different stores (${log.store} and ${vault.store}). The keys of one can't open the other.`,
    );
  }
  if (vault.logPosition < log.logPosition) {
    throw new UnusableFile(
      'The copy of the keys is older than the copy of the log: it lacks the keys of what was written in between. Use the vault part of the same backup or of a later one.',
    );
  }
}

function assertItsLog({ id, name }: ServerLog, vault: VaultManifest): void {
  if (vault.log === id) return;
  throw new UnusableFile(
    vault.log === undefined
      ? 'The log of these keys is in the backup, not on a server. Use --log instead of --event-store.'
      : `The keys belong to another event log than the one on ${name}, and can't open it.`,
  );
}

/**
 * Reads the ledger to its end. Its chain of hashes must be intact, and contain every head that was given by the operator or is recorded
 * in the backup.
 */
export async function assertWhole(
  { ledger, ledgerHead }: RestoreOptions,
  parts: readonly (LogManifest | VaultManifest)[],
): Promise<{ readonly head: LedgerHead; readonly lastMs: number; readonly listed: ReadonlySet<number> }> {
  const { store } = parts[0]!;
  if (!existsSync(ledger)) {
    throw new UnusableFile(
      `There is no purge ledger at ${ledger}. Without it nobody can say what was erased after the backup, so nothing is restored.`,
    );
  }
  const expected = new Map(
    [formatLedgerHead(ledgerHead), ...parts.map((part) => part.ledgerHead)].map((text) => [text, false]),
  );
  const listed = new Set<number>();
  let head: LedgerHead | undefined;
  let lastMs = 0;
  for await (const line of readPurgeLedger(ledger)) {
    if (line.store !== store) {
      throw new UnusableFile(
        `${ledger} is the purge ledger of another store (${line.store}; the backup is of ${store}).`,
      );
    }
    head = line.head;
    lastMs = Math.max(lastMs, line.entry?.atMs ?? 0);
    if (line.entry !== undefined && 'keys' in line.entry) for (const [keyId] of line.entry.keys) listed.add(keyId);
    const text = formatLedgerHead(head);
    if (expected.has(text)) expected.set(text, true);
  }
  if (expected.get(formatLedgerHead(ledgerHead)) !== true) {
    throw new UnusableFile(
      head !== undefined && head.lines < ledgerHead.lines
        ? `${ledger} is incomplete: it has ${head.lines} lines, but the given head says ${ledgerHead.lines}. Restore with the latest ledger.`
        : `${ledger} does not contain the given head: it is another ledger, or was changed.`,
    );
  }
  for (const [text, seen] of expected) {
    if (!seen) {
      throw new UnusableFile(
        `${ledger} does not continue the ledger with which the backup was taken (${text}): it is an older copy, or a new ledger begun since.`,
      );
    }
  }
  return { head: head!, lastMs, listed };
}

export async function assertIntact(
  { folder, files }: Pick<LogManifest, 'files'> & { readonly folder: string },
  onProgress: NonNullable<RestoreOptions['onProgress']>,
): Promise<void> {
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    const path = join(folder, name);
    if (!existsSync(path)) throw new UnusableFile(`${path} is missing from the backup. Use another one.`);
    if ((await digestOf(path, (done) => onProgress(name, done, bytes))) !== sha256) {
      throw new UnusableFile(`${path} is not as it was written: the backup is damaged. Use another one.`);
    }
  }
}
