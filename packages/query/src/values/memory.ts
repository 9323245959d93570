import { queryError } from '../errors.ts';
import type { Value } from './values.ts';

/** Bytes that an entry of a list, a map or a set takes besides its content. */
const ENTRY_BYTES = 96;

/**
 * Counts the memory that a query needs until its last document: groups, rows to be sorted, and rows that were returned before, for
 * DISTINCT. It is estimated from the values, in bytes; a text counts two bytes for each character.
 */
export class Memory {
  readonly #mostBytes: number;
  #heldBytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Counts an entry that is kept from now on.
   *
   * @returns the bytes that it counts as, to be passed to {@link release}
   * @throws QueryError if the limit is exceeded
   */
  hold(bytes: number): number {
    const counted = ENTRY_BYTES + bytes;
    this.#heldBytes += counted;
    if (this.#heldBytes > this.#mostBytes) {
      throw queryError(
        'tooMuchHeld',
        `The query has to hold more than ${Math.ceil(this.#mostBytes / 1024 / 1024)} MiB at once. Narrow it with a filter, select less of each document, or use TOP or OFFSET LIMIT.`,
      );
    }
    return counted;
  }

  /** Says that an entry that counted as this many bytes is no longer kept. */
  release(counted: number): void {
    this.#heldBytes -= counted;
  }

  /** Says that nothing is kept any longer that was added since the count was `heldBytes`. */
  releaseTo(heldBytes: number): void {
    this.#heldBytes = heldBytes;
  }
}

/** The approximate bytes that a value takes in memory. */
export function bytesOf(value: Value): number {
  switch (typeof value) {
    case 'string':
      return textBytes(value);
    case 'object': {
      if (value === null) return 8;
      let bytes = 32;
      if (Array.isArray(value)) for (const element of value) bytes += bytesOf(element);
      else for (const name in value) bytes += 8 + bytesOf(value[name]);
      return bytes;
    }
    default:
      return 16;
  }
}

export const BYTES_PER_CHARACTER = 2;

export const textBytes = (text: string): number => 16 + BYTES_PER_CHARACTER * text.length;
