import { z } from 'zod';

/** How far a purge ledger goes: its number of lines after the first, and the hash of the last of them. */
export interface LedgerHead {
  readonly lines: number;
  /** SHA-256 of the last line, base64url. It covers all lines before, because each line names the hash of the one before. */
  readonly hash: string;
}

/** A vault backup that was begun, as the ledger has it: so that a restored store knows of those taken after its own. */
export interface LedgerBackup {
  readonly id: string;
  /** When the copy of the keys is to be gone, in milliseconds. */
  readonly vaultLapsesAtMs: number;
}

/** Keys, each with the stream of its life. */
export type KeysOfLives = readonly (readonly [keyId: number, stream: string])[];

/** What one line of a purge ledger says. */
export type LedgerEntry =
  /** Keys that were destroyed. A key may be listed more than once. */
  { readonly atMs: number; readonly keys: KeysOfLives } | { readonly atMs: number; readonly backup: LedgerBackup };

/** A head as people hand it on: `12:<hash>`. */
export function formatLedgerHead({ lines, hash }: LedgerHead): string {
  return `${lines}:${hash}`;
}

/** @returns undefined for a text that {@link formatLedgerHead} has not made */
export function parseLedgerHead(text: string): LedgerHead | undefined {
  const [, lines, hash] = /^(\d{1,15}):([\w-]{43})$/.exec(text.trim()) ?? [];
  return lines === undefined || hash === undefined ? undefined : { lines: Number(lines), hash };
}

/** What is written before all else: of which format the ledger is, and of which store. */
export const LEDGER_FORMAT = 'epitaph-purge-ledger/1';
export const ledgerFirstLineSchema = z.strictObject({ ledger: z.string(), store: z.string() });

const chained = { n: z.int(), previous: z.string(), atMs: z.int() };
export const ledgerLineSchema = z.union([
  z.strictObject({ ...chained, keys: z.array(z.tuple([z.int(), z.string()])) }),
  z.strictObject({ ...chained, backup: z.strictObject({ id: z.string(), vaultLapsesAtMs: z.int() }) }),
]);
