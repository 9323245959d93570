import { hash } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  existsSync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import {
  LEDGER_FORMAT,
  type LedgerEntry,
  type LedgerFirstLine,
  type LedgerHead,
  readLedgerFirstLine,
  readLedgerLine,
} from '@epitaph/core/backup/purge-ledger.ts';
import { identityOf, syncFolder } from './durable-files.ts';
import { UnusableFile } from './database.ts';

/** How many bytes are read from the end of the file to find the last line. Doubled until a whole line is found. */
const TAIL_BYTES = 256 * 1024;

/**
 * The ledger of destroyed keys, in a file of its own. Lines of JSON are only ever appended, each with the hash of the line before. It
 * contains no content of items and no names in clear.
 */
export class PurgeLedger {
  readonly #file: string;
  readonly #descriptor: number;
  /** The identity of the file that the descriptor belongs to. */
  readonly #identity: string | undefined;
  readonly #durable: boolean;
  #size: number;
  #head: LedgerHead;
  /** True if a failed write may have left bytes after the last line. */
  #isTorn = false;

  private constructor(file: string, descriptor: number, durable: boolean, size: number, head: LedgerHead) {
    this.#file = file;
    this.#descriptor = descriptor;
    this.#identity = identityOf(file);
    this.#durable = durable;
    this.#size = size;
    this.#head = head;
  }

  /**
   * Opens the ledger of a store for appending, or begins one.
   *
   * @throws {UnusableFile} if the ledger is damaged, belongs to another store, or can't be written
   */
  static open(file: string, { store, durable }: { readonly store: string; readonly durable: boolean }): PurgeLedger {
    const isNew = !existsSync(file);
    let descriptor: number;
    try {
      descriptor = openSync(file, 'a+', 0o600);
    } catch (error) {
      throw new UnusableFile(
        `The purge ledger ${file} can't be written: ${(error as Error).message}. Nothing is erased without it; check its folder and its permissions.`,
      );
    }
    try {
      const { size, line } = lastLine(descriptor);
      // A crash while the ledger was begun leaves a file without a whole line.
      if (line === undefined) {
        const text = JSON.stringify({ ledger: LEDGER_FORMAT, store });
        assertBegun(file, text);
        ftruncateSync(descriptor, 0);
        writeSync(descriptor, `${text}\n`);
        fdatasyncSync(descriptor);
        if (isNew) syncFolder(dirname(file));
        return new PurgeLedger(file, descriptor, durable, Buffer.byteLength(text) + 1, {
          lines: 0,
          hash: hashOf(text),
        });
      }
      assertStore(file, firstLine(descriptor), store);
      // An incomplete last line comes from a crash. Its append was not acknowledged, so it is cut off.
      if (fstatSync(descriptor).size > size) ftruncateSync(descriptor, size);
      return new PurgeLedger(file, descriptor, durable, size, headOf(file, line));
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  get head(): LedgerHead {
    return this.#head;
  }

  /** Appends lines durably. If it throws, none of them is appended. */
  append(entries: readonly LedgerEntry[]): void {
    let head = this.#head;
    let text = '';
    for (const entry of entries) {
      const n = head.lines + 1;
      const line = JSON.stringify({ n, previous: head.hash, ...entry });
      head = { lines: n, hash: hashOf(line) };
      text += `${line}\n`;
    }
    const bytes = Buffer.from(text);
    this.#assertUntouched();
    try {
      if (this.#isTorn) this.#cut();
      for (let written = 0; written < bytes.length;) written += writeSync(this.#descriptor, bytes, written);
      if (this.#durable) fdatasyncSync(this.#descriptor);
    } catch (error) {
      this.#isTorn = true;
      try {
        this.#cut();
      } catch {
        // The next append tries again before it writes anything.
      }
      throw this.#unwritable((error as Error).message, error);
    }
    this.#size += bytes.length;
    this.#head = head;
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  /** Throws if the file was moved or changed by others. It is then not repaired, since it may be all that is left of the ledger. */
  #assertUntouched(): void {
    // An entry written to a file that no longer has its name would be lost.
    if (identityOf(this.#file) !== this.#identity) {
      throw this.#unwritable('it was moved, removed or replaced. Put it back, and start the store again');
    }
    const { size } = fstatSync(this.#descriptor);
    if (size < this.#size || (size > this.#size && !this.#isTorn)) {
      throw this.#unwritable(
        `another program has changed it, as one does that rotates logs: it has ${size} bytes, and had ${this.#size}. Copy the whole one over it`,
      );
    }
  }

  #unwritable(why: string, cause?: unknown): Error {
    return new Error(`the purge ledger ${this.#file} can't be written: ${why}`, { cause });
  }

  /** Removes the bytes that a failed write has left after the last line. */
  #cut(): void {
    ftruncateSync(this.#descriptor, this.#size);
    this.#isTorn = false;
  }
}

export interface LedgerLine {
  readonly head: LedgerHead;
  /** Undefined for the first line, which names the store. */
  readonly entry: LedgerEntry | undefined;
  readonly store: string;
}

/**
 * Reads a ledger from its first line on, and checks the chain of hashes. A last line that a crash has left incomplete is skipped.
 *
 * @throws {UnusableFile} at the first line whose hash does not match the line before
 */
export async function* readPurgeLedger(file: string): AsyncGenerator<LedgerLine> {
  let head: LedgerHead | undefined;
  let store = '';
  let pending: string | undefined;
  const follow = (line: string): LedgerLine => {
    if (head === undefined) {
      ({ store } = parseFirst(file, line));
      head = { lines: 0, hash: hashOf(line) };
      return { head, entry: undefined, store };
    }
    const read = readLedgerLine(line);
    if (read === undefined || read.n !== head.lines + 1 || read.previous !== head.hash) {
      throw new UnusableFile(
        `${file}: line ${head.lines + 2} does not follow from the line before it: the purge ledger was changed or is damaged. Use an intact copy.`,
      );
    }
    head = { lines: read.n, hash: hashOf(line) };
    return { head, entry: read.entry, store };
  };
  try {
    for await (const line of createInterface({ input: createReadStream(file), crlfDelay: Infinity })) {
      if (pending !== undefined) yield follow(pending);
      pending = line;
    }
  } catch (error) {
    if (error instanceof UnusableFile) throw error;
    throw new UnusableFile(`The purge ledger ${file} can't be read: ${(error as Error).message}.`);
  }
  if (pending === undefined) throw new UnusableFile(`${file} is empty, so it is not a purge ledger.`);
  if (endsWithNewline(file)) yield follow(pending);
  else if (head === undefined) throw new UnusableFile(`${file} has no complete line, so it is not a purge ledger.`);
}

function endsWithNewline(file: string): boolean {
  const descriptor = openSync(file, 'r');
  try {
    const { size } = fstatSync(descriptor);
    const last = Buffer.alloc(1);
    return size > 0 && readSync(descriptor, last, 0, 1, size - 1) === 1 && last[0] === 0x0a;
  } finally {
    closeSync(descriptor);
  }
}

/** The last whole line, and the offset of its end. */
function lastLine(descriptor: number): { readonly size: number; readonly line: string | undefined } {
  const { size } = fstatSync(descriptor);
  for (let want = TAIL_BYTES; ; want *= 2) {
    const from = Math.max(0, size - want);
    const bytes = Buffer.alloc(size - from);
    for (let read = 0; read < bytes.length;) {
      const got = readSync(descriptor, bytes, read, bytes.length - read, from + read);
      if (got === 0) break;
      read += got;
    }
    const end = bytes.lastIndexOf(0x0a);
    const start = end <= 0 ? -1 : bytes.lastIndexOf(0x0a, end - 1);
    if (end >= 0 && (start >= 0 || from === 0)) {
      return { size: from + end + 1, line: bytes.toString('utf8', start + 1, end) };
    }
    if (from === 0) return { size: 0, line: undefined };
  }
}

/** Makes sure that a file without a whole line is the beginning of a ledger, which may be begun anew. A crash may leave zeros in it. */
function assertBegun(file: string, line: string): void {
  const begun = readFileSync(file);
  const expected = Buffer.from(line);
  if (begun.some((byte, at) => byte !== 0 && byte !== expected[at])) {
    throw new UnusableFile(`${file} is not a purge ledger.`);
  }
}

function firstLine(descriptor: number): string {
  const bytes = Buffer.alloc(4_096);
  const got = readSync(descriptor, bytes, 0, bytes.length, 0);
  return bytes.toString('utf8', 0, got).split('\n', 1)[0]!;
}

function assertStore(file: string, line: string, store: string): void {
  const found = parseFirst(file, line);
  if (found.store !== store) {
    throw new UnusableFile(
      `${file} is the purge ledger of another store. Start with this store's own (--purge-ledger).`,
    );
  }
}

function parseFirst(file: string, line: string): LedgerFirstLine {
  const read = readLedgerFirstLine(line);
  if (read === undefined) throw new UnusableFile(`${file} is not a purge ledger.`);
  if (read.ledger !== LEDGER_FORMAT) {
    throw new UnusableFile(
      `${file}: this purge ledger was written by a newer Epitaph (${read.ledger}). Start that version, or a later one.`,
    );
  }
  return read;
}

function headOf(file: string, line: string): LedgerHead {
  const lines = readLedgerFirstLine(line) === undefined ? readLedgerLine(line)?.n : 0;
  if (lines === undefined) {
    throw new UnusableFile(`${file}: the purge ledger's last line is damaged. Replace it by an intact copy.`);
  }
  return { lines, hash: hashOf(line) };
}

function hashOf(line: string): string {
  return hash('sha256', line, 'base64url');
}
