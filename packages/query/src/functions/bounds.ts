import { queryError } from '../errors.ts';
import type { Value } from '../values/values.ts';

/** Twice the largest document, so that no text that could be stored is refused. */
const MAX_TEXT_LENGTH = 4 * 1024 * 1024;
const MAX_ARRAY_LENGTH = 1_000_000;

/** Nested calls can double a text again and again; this is where they stop. */
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

/** Characters of a value as JSON at most: four of the largest documents. */
const MAX_VALUE_CHARACTERS = 8 * 1024 * 1024;

/**
 * A value that may have the same text or array in it again and again: as JSON, or as a key, it has all of them, and can
 * be larger than the memory.
 */
export function boundedValue<T extends Value>(value: T): T {
  boundedCharacters(value);
  return value;
}

/** Characters of such a value as JSON, about. */
export function boundedCharacters(value: Value): number {
  if (typeof value !== 'object') return 0;
  const left = charactersLeft(value, MAX_VALUE_CHARACTERS);
  if (left < 0) {
    throw queryError('tooComplex', `A value in the query has more than about ${MAX_VALUE_CHARACTERS} characters.`);
  }
  return MAX_VALUE_CHARACTERS - left;
}

/** Whether a value has no more characters as JSON, about. */
export const isShort = (value: Value, characters: number): boolean => charactersLeft(value, characters) >= 0;

/** Characters of a value as JSON, about, as far as it may have them. */
export const charactersOf = (value: Value): number =>
  MAX_VALUE_CHARACTERS - Math.max(0, charactersLeft(value, MAX_VALUE_CHARACTERS));

/** Numbers count as four, whatever they are. Looks at no more of a value than fits. */
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

/** Comparisons that a function may make of all its arguments with a text or an array. */
const MAX_COMPARISONS = 100_000_000;

/** @throws QueryError for a text or array of some length that is to be looked through very often */
export function assertComparable(length: number, times: number): void {
  if (length * times > MAX_COMPARISONS) {
    throw queryError('tooComplex', 'A function in the query looks for too much in a value that is too large.');
  }
}
