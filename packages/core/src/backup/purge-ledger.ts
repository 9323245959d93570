import { parsedJson } from '../parsed-json.ts';

/** How far a purge ledger goes: its number of lines after the first one, and the hash of the last line. */
export interface LedgerHead {
  readonly lines: number;
  /**
   * SHA-256 of the last line, base64url. It covers all lines before, because each line contains the hash of the line
   * before it.
   */
  readonly hash: string;
}

/** A vault backup that was begun, as a line of the ledger. It tells a restored store of backups that were made after its own. */
export interface LedgerBackup {
  readonly id: string;
  /** When the copy of the keys must be gone, in milliseconds. */
  readonly vaultLapsesAtMs: number;
}

/** Keys, each with the stream of the life that it belongs to. */
export type KeysOfLives = readonly (readonly [keyId: number, stream: string])[];

/** The content of one line of a purge ledger. */
export type LedgerEntry =
  /** Keys that were destroyed. A key may be listed more than once. */
  { readonly atMs: number; readonly keys: KeysOfLives } | { readonly atMs: number; readonly backup: LedgerBackup };

/** A head as text that people can pass on: `12:<hash>`. */
export function formatLedgerHead({ lines, hash }: LedgerHead): string {
  return `${lines}:${hash}`;
}

/** @returns undefined for a text that {@link formatLedgerHead} can't have made */
export function parseLedgerHead(text: string): LedgerHead | undefined {
  const [, lines, hash] = /^(\d{1,15}):([\w-]{43})$/.exec(text.trim()) ?? [];
  return lines === undefined || hash === undefined ? undefined : { lines: Number(lines), hash };
}

/** The format in the first line, which also names the store. */
export const LEDGER_FORMAT = 'epitaph-purge-ledger/1';

export interface LedgerFirstLine {
  readonly ledger: string;
  readonly store: string;
}

/** An entry with its number, counted from 1, and the hash of the line before it. */
export interface LedgerLine {
  readonly n: number;
  readonly previous: string;
  readonly entry: LedgerEntry;
}

// Checked without zod: only for these lines, zod would double what the writer's thread has to load before the store can start.

/** @returns undefined for a text that is not such a line */
export function readLedgerFirstLine(text: string): LedgerFirstLine | undefined {
  const { ledger, store } = propertiesOf(parsedJson(text), ['ledger', 'store']);
  return isText(ledger) && isText(store) ? { ledger, store } : undefined;
}

/** @returns undefined for a text that is not such a line */
export function readLedgerLine(text: string): LedgerLine | undefined {
  const line = parsedJson(text);
  const { n, previous, atMs, keys } = propertiesOf(line, ['n', 'previous', 'atMs', 'keys']);
  if (isInteger(n) && isText(previous) && isInteger(atMs) && Array.isArray(keys) && keys.every(isKeyOfLife)) {
    return { n, previous, entry: { atMs, keys } };
  }
  return readBackupLine(line);
}

function readBackupLine(line: unknown): LedgerLine | undefined {
  const { n, previous, atMs, backup } = propertiesOf(line, ['n', 'previous', 'atMs', 'backup']);
  const { id, vaultLapsesAtMs } = propertiesOf(backup, ['id', 'vaultLapsesAtMs']);
  const isLine = isInteger(n) && isText(previous) && isInteger(atMs) && isText(id) && isInteger(vaultLapsesAtMs);
  return isLine ? { n, previous, entry: { atMs, backup: { id, vaultLapsesAtMs } } } : undefined;
}

/** The properties of an object that has exactly these. Empty for every other value. */
function propertiesOf<Name extends string>(value: unknown, names: readonly Name[]): { readonly [N in Name]?: unknown } {
  if (typeof value !== 'object' || value === null) return {};
  const has = Object.keys(value).length === names.length && names.every((name) => Object.hasOwn(value, name));
  return has ? value : {};
}

const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);
const isText = (value: unknown): value is string => typeof value === 'string';
const isKeyOfLife = (value: unknown): value is KeysOfLives[number] =>
  Array.isArray(value) && value.length === 2 && isInteger(value[0]) && isText(value[1]);
