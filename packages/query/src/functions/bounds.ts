import { queryError } from '../errors.ts';

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
