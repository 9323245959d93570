import { closeSync, fstatSync, fsyncSync, openSync, readSync, statSync, writeSync } from 'node:fs';

/** Lengths in bytes: the header of a journal, and the header before each page in it, which begins with the page's number. */
const JOURNAL_HEADER = 32;
const FRAME_HEADER = 24;
/** Length in bytes of the file's header, which is before the header of the first page. */
const FILE_HEADER = 100;

/**
 * Overwrites bytes of rows that SQLite leaves in pages. `secure_delete` overwrites a deleted row at its current place. But a row that
 * was moved to another page, when pages were split or joined, leaves its bytes on the former page: in the gap between the page's list
 * of rows and the rows themselves, until a new row is stored there. So a deleted row may still be readable at a former place.
 *
 * Every changed page goes through the journal. So no page is missed, whenever the process ends, if the gaps of the journal's pages are
 * wiped before the journal is emptied.
 *
 * Source: SQLite, "Database File Format", "B-tree Pages" and "The WAL File".
 */
export class PageGaps {
  readonly #journal: string;
  readonly #pageSize: number;
  /** Kept open: closing the file would release all locks that the process has on it, including SQLite's. */
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

  /** Overwrites the gaps of the pages that are in the journal. */
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
      // SQLite restarts a journal from its beginning. The old rest of it may name pages that no longer exist.
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

/** Length in bytes of the header of each type of page that has rows. Other pages begin with none of these types. */
const HEADERS: Readonly<Record<number, number>> = { 2: 12, 5: 12, 10: 8, 13: 8 };

/** The offsets of the begin and end of a page's gap; an empty range for a page without rows. */
function gapOf(page: Buffer, number: number): readonly [from: number, to: number] {
  const at = number === 1 ? FILE_HEADER : 0;
  const header = HEADERS[page[at]!];
  if (header === undefined) return [0, 0];
  const from = at + header + 2 * page.readUInt16BE(at + 3);
  const to = page.readUInt16BE(at + 5) || 65_536;
  return from < to && to <= page.length ? [from, to] : [0, 0];
}
