import { closeSync, fstatSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs';

/** Bytes of a journal before its first page, and of what stands before each page: the page's number, to begin with. */
const JOURNAL_HEADER = 32;
const FRAME_HEADER = 24;
/** Bytes of a database before the first page's own header. */
const FILE_HEADER = 100;

/**
 * What SQLite leaves of rows in pages that they are no longer in. `secure_delete` overwrites what is deleted where it lies.
 * A row that went to another page, when pages were split or joined, has left its bytes behind in the gap between a page's
 * list of rows and the rows themselves, until a new row comes there. So what is deleted may still stand where it was once.
 *
 * Every page that changes goes through the journal: while that is not emptied before the gaps of its pages are wiped,
 * nothing is missed, whenever the process ends.
 *
 * Source: SQLite, "Database File Format", "B-tree Pages" and "The WAL File".
 */
export class PageGaps {
  readonly #journal: string;
  readonly #pageSize: number;
  /** Kept open: closing a file gives up the locks that the process has on it, SQLite's own as well. */
  readonly #file: number;

  constructor(file: string, pageSize: number) {
    this.#journal = `${file}-wal`;
    this.#pageSize = pageSize;
    this.#file = openSync(file, 'r+');
  }

  /** Overwrites the gaps of all pages with zeros. The journal must have been moved into the file. */
  wipeAll(): void {
    this.#wipe(Array.from({ length: this.#pages }, (_, index) => index + 1));
  }

  /** The same, of the pages that the journal has. */
  wipeChanged(): void {
    this.#wipe(this.#changed());
  }

  get journalBytes(): number {
    return statSync(this.#journal, { throwIfNoEntry: false })?.size ?? 0;
  }

  close(): void {
    closeSync(this.#file);
  }

  get #pages(): number {
    return Math.floor(fstatSync(this.#file).size / this.#pageSize);
  }

  #changed(): Set<number> {
    const pages = new Set<number>();
    const { journalBytes } = this;
    if (journalBytes === 0) return pages;
    const journal = openSync(this.#journal, 'r');
    try {
      const number = Buffer.alloc(4);
      const frame = FRAME_HEADER + this.#pageSize;
      for (let at = JOURNAL_HEADER; at + frame <= journalBytes; at += frame) {
        readSync(journal, number, 0, 4, at);
        pages.add(number.readUInt32BE());
      }
    } finally {
      closeSync(journal);
    }
    return pages;
  }

  #wipe(pages: Iterable<number>): void {
    const last = this.#pages;
    const page = Buffer.alloc(this.#pageSize);
    const zeros = Buffer.alloc(this.#pageSize);
    let isWiped = false;
    for (const number of pages) {
      // Of a journal that is written over from its beginning the rest may name pages that are not there any more.
      if (number < 1 || number > last) continue;
      const place = (number - 1) * this.#pageSize;
      readSync(this.#file, page, 0, this.#pageSize, place);
      const [from, to] = gapOf(page, number);
      if (page.subarray(from, to).equals(zeros.subarray(from, to))) continue;
      writeSync(this.#file, zeros, from, to - from, place + from);
      isWiped = true;
    }
    if (isWiped) fsyncSync(this.#file);
  }
}

/** Bytes of the header of each kind of page that has rows. What other pages begin with is no such number. */
const HEADERS: Readonly<Record<number, number>> = { 2: 12, 5: 12, 10: 8, 13: 8 };

/** Where the gap of a page begins, and where it ends; nothing for a page without rows of its own. */
function gapOf(page: Buffer, number: number): readonly [from: number, to: number] {
  const at = number === 1 ? FILE_HEADER : 0;
  const header = HEADERS[page[at]!];
  if (header === undefined) return [0, 0];
  const from = at + header + 2 * page.readUInt16BE(at + 3);
  const to = page.readUInt16BE(at + 5) || 65_536;
  return from < to && to <= page.length ? [from, to] : [0, 0];
}
