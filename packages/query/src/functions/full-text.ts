import type { Value } from '../values.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';

const WORD = /[\p{L}\p{N}]+/gu;

/** The words of a text as full-text search compares them: runs of letters and digits, without regard to case. */
export function wordsOf(text: string): readonly string[] {
  return text.normalize('NFKC').toLowerCase().match(WORD) ?? [];
}

/** How often the words of a term follow each other in a text. */
export function occurrences(words: readonly string[], term: readonly string[]): number {
  if (term.length === 0) return 0;
  let count = 0;
  for (let start = 0; start + term.length <= words.length; start += 1) {
    if (term.every((word, index) => words[start + index] === word)) count += 1;
  }
  return count;
}

/** Search terms are strings; the first version of the language took an array of them. Undefined for anything else. */
export function termsOf(args: readonly Value[]): readonly (readonly string[])[] | undefined {
  const terms = args.flat();
  return terms.every((term) => typeof term === 'string') ? terms.map(wordsOf) : undefined;
}

/** A test of one text for any or all of some terms. */
function contains(maxTerms: number, decisive: boolean): BuiltIn {
  return pure(2, 1 + maxTerms, (text, ...args) => {
    const terms = termsOf(args);
    if (typeof text !== 'string' || terms === undefined) return undefined;
    const words = wordsOf(text);
    for (const term of terms) if (occurrences(words, term) > 0 === decisive) return decisive;
    return !decisive;
  });
}

/** Without an index and without stemming: the words are compared as they stand, in each document that is looked at. */
export const fullTextFunctions: BuiltIns = {
  FULLTEXTCONTAINS: contains(1, false),
  FULLTEXTCONTAINSALL: contains(Number.POSITIVE_INFINITY, false),
  FULLTEXTCONTAINSANY: contains(Number.POSITIVE_INFINITY, true),
};
