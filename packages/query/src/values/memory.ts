import { queryError } from '../errors.ts';
import type { Value } from './values.ts';

/** What an entry of a list, a map or a set takes besides what is in it. */
const ENTRY_BYTES = 96;

/**
 * What a query has to keep until it has seen its last document: groups, rows that wait to be put in order, what was
 * given before. Told in bytes as far as values show them; texts count as two bytes a character.
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
   * An entry is kept from now on.
   *
   * @returns the bytes that it counts as, for when it is kept no longer
   * @throws QueryError when that makes it more than there may be
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

  /** What counted as so many bytes is kept no longer. */
  release(counted: number): void {
    this.#heldBytes -= counted;
  }

  /** What was held since there were so many bytes is not kept any longer. */
  releaseTo(heldBytes: number): void {
    this.#heldBytes = heldBytes;
  }
}

/** Bytes that a value takes in memory, about. */
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
