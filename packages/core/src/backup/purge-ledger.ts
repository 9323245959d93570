import { parsedJson } from '../parsed-json.ts';

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

export interface LedgerFirstLine {
  readonly ledger: string;
  readonly store: string;
}

/** An entry with its number, from 1 on, and the hash of the line before. */
export interface LedgerLine {
  readonly n: number;
  readonly previous: string;
  readonly entry: LedgerEntry;
}

// Read by hand: zod for these alone would be half of what the thread that writes loads before a store can start.

/** @returns undefined for a text that is no such line */
export function readLedgerFirstLine(text: string): LedgerFirstLine | undefined {
  const { ledger, store } = propertiesOf(parsedJson(text), ['ledger', 'store']);
  return isText(ledger) && isText(store) ? { ledger, store } : undefined;
}

/** @returns undefined for a text that is no such line */
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

/** Of an object that has these properties and no others; none of anything else. */
function propertiesOf<Name extends string>(value: unknown, names: readonly Name[]): { readonly [N in Name]?: unknown } {
  if (typeof value !== 'object' || value === null) return {};
  const has = Object.keys(value).length === names.length && names.every((name) => Object.hasOwn(value, name));
  return has ? value : {};
}

const isInteger = (value: unknown): value is number => Number.isSafeInteger(value);
const isText = (value: unknown): value is string => typeof value === 'string';
const isKeyOfLife = (value: unknown): value is KeysOfLives[number] =>
  Array.isArray(value) && value.length === 2 && isInteger(value[0]) && isText(value[1]);
