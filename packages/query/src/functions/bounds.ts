import { queryError } from '../errors.ts';
import type { Value } from '../values/values.ts';

/** Twice the largest document, so that no text that could be stored is refused. */
const MAX_TEXT_LENGTH = 4 * 1024 * 1024;
const MAX_ARRAY_LENGTH = 1_000_000;

/** Refuses a text that is too long: nested calls could double it again and again. */
export function boundedText(text: string): string {
  assertTextLength(text.length);
  return text;
}

export function assertTextLength(length: number): void {
  if (length > MAX_TEXT_LENGTH) {
    throw queryError('tooComplex', `A text in the query is longer than ${MAX_TEXT_LENGTH} characters.`);
  }
}

export function boundedArray<T>(items: T[]): T[] {
  if (items.length > MAX_ARRAY_LENGTH) {
    throw queryError('tooComplex', `An array in the query has more than ${MAX_ARRAY_LENGTH} elements.`);
  }
  return items;
}

/** Limit for the characters of a value as JSON: those of four of the largest documents. */
const MAX_VALUE_CHARACTERS = 8 * 1024 * 1024;

/**
 * Refuses a value that is too large. It may contain the same text or array many times; as JSON, or as a key, it contains all copies, and
 * could be larger than the memory.
 */
export function boundedValue<T extends Value>(value: T): T {
  boundedCharacters(value);
  return value;
}

/** The approximate number of characters of a value as JSON. A value that is too large is refused. */
export function boundedCharacters(value: Value): number {
  if (typeof value !== 'object') return 0;
  const left = charactersLeft(value, MAX_VALUE_CHARACTERS);
  if (left < 0) {
    throw queryError('tooComplex', `A value in the query has more than about ${MAX_VALUE_CHARACTERS} characters.`);
  }
  return MAX_VALUE_CHARACTERS - left;
}

/** Whether a value has at most this many characters as JSON, approximately. */
export const isShort = (value: Value, characters: number): boolean => charactersLeft(value, characters) >= 0;

/** The approximate number of characters of a value as JSON, up to the limit. */
export const charactersOf = (value: Value): number =>
  MAX_VALUE_CHARACTERS - Math.max(0, charactersLeft(value, MAX_VALUE_CHARACTERS));

/** How many of `most` characters are left after a value; negative if it has more. A number counts as four. Reads no more than fits. */
function charactersLeft(value: Value, most: number): number {
  let left = most - 4;
  if (typeof value === 'string') return most - value.length;
  if (typeof value !== 'object' || value === null) return left;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && left >= 0; index += 1) left = charactersLeft(value[index], left);
    return left;
  }
  for (const name in value) {
    left = charactersLeft(value[name], left - name.length);
    if (left < 0) break;
  }
  return left;
}

/** The largest number of comparisons of a function's arguments with a text or an array. */
const MAX_COMPARISONS = 100_000_000;

/** @throws QueryError if a text or array of this length would be searched too often */
export function assertComparable(length: number, times: number): void {
  if (length * times > MAX_COMPARISONS) {
    throw queryError(
      'tooComplex',
      'A function in the query would make too many comparisons with a large text or array.',
    );
  }
}
