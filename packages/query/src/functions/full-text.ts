import { finite, isObject } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { assertComparable } from './bounds.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';

const WORD = /[\p{L}\p{N}]+/gu;

/** The words of a text as full-text search compares them: runs of letters and digits, without regard to case. */
export function wordsOf(text: string): readonly string[] {
  return text.normalize('NFKC').toLowerCase().match(WORD) ?? [];
}

/** How often the words of a term occur in a row in a text. Each word may differ by at most `distance` edits. */
export function occurrences(words: readonly string[], term: readonly string[], distance = 0): number {
  const [first, ...rest] = term;
  if (first === undefined) return 0;
  let count = 0;
  for (let start = 0; start + term.length <= words.length; start += 1) {
    if (!isSame(distance, words[start] as string, first)) continue;
    let same = 0;
    while (same < rest.length && isSame(distance, words[start + 1 + same] as string, rest[same] as string)) same += 1;
    if (same === rest.length) count += 1;
  }
  return count;
}

const isSame = (distance: number, a: string, b: string): boolean =>
  distance === 0 ? a === b : isWithin(distance, a, b);

/** Whether one word becomes another by inserting, removing or changing at most this many letters. */
function isWithin(distance: number, a: string, b: string, fromA = 0, fromB = 0): boolean {
  let [inA, inB] = [fromA, fromB];
  while (inA < a.length && inA - fromA < b.length - fromB && a[inA] === b[inB]) {
    inA += 1;
    inB += 1;
  }
  const [leftA, leftB] = [a.length - inA, b.length - inB];
  if (Math.abs(leftA - leftB) > distance) return false;
  if (leftA === 0 || leftB === 0) return true;
  // There must be an edit at the first letter that differs.
  return (
    distance > 0 &&
    (isWithin(distance - 1, a, b, inA + 1, inB + 1) ||
      isWithin(distance - 1, a, b, inA + 1, inB) ||
      isWithin(distance - 1, a, b, inA, inB + 1))
  );
}

/** The words of search terms, which are strings, or an array of strings as in the first version of the language; otherwise undefined. */
export function termsOf(args: readonly Value[]): readonly (readonly string[])[] | undefined {
  const terms = args.flat();
  return terms.every((term) => typeof term === 'string') ? terms.map(wordsOf) : undefined;
}

interface FuzzyTerm {
  readonly words: readonly string[];
  readonly distance: number;
}

const MAX_DISTANCE = 2;

/** The cost, in comparisons, of checking whether two words are a few edits apart. */
const FUZZY_COMPARISONS = 10;

/** The terms of a condition: strings, or `{ term, distance }` for words that may differ by a few edits. */
function fuzzyTermsOf(args: readonly Value[]): readonly FuzzyTerm[] | undefined {
  const terms: FuzzyTerm[] = [];
  for (const given of args.flat()) {
    const { term, distance } = isObject(given) ? given : { term: given, distance: 0 };
    if (typeof term !== 'string' || !Number.isInteger(distance)) return undefined;
    const edits = distance as number;
    if (edits < 0 || edits > MAX_DISTANCE) return undefined;
    terms.push({ words: wordsOf(term), distance: edits });
  }
  return terms;
}

/** Whether a text contains any or all of some terms. */
function contains(maxTerms: number, decisive: boolean): BuiltIn {
  const call = (text: Value, ...args: Value[]): Value => {
    const terms = fuzzyTermsOf(args);
    if (typeof text !== 'string' || terms === undefined) return undefined;
    const words = wordsOf(text);
    assertComparable(
      words.length,
      terms.reduce(
        (sum, { words: { length }, distance }) => sum + length * (distance === 0 ? 1 : FUZZY_COMPARISONS),
        0,
      ),
    );
    for (const term of terms) if (occurrences(words, term.words, term.distance) > 0 === decisive) return decisive;
    return !decisive;
  };
  return { ...pure(2, 1 + maxTerms, call), unitsPerCharacter: 4 };
}

/** The statistics of all documents that BM25 needs: their number, their words, and how many have each term. */
export interface TextStatistics {
  readonly documents: number;
  readonly words: number;
  /** How many documents have each term. */
  readonly documentsWith: readonly number[];
}

/** The usual constants of BM25. */
const K1 = 1.2;
const B = 0.75;

/** The BM25 score of a text with `length` words, in which the terms occur so often. */
export function bm25(length: number, counts: readonly number[], of: TextStatistics): number {
  const averageLength = of.words / of.documents;
  let score = 0;
  counts.forEach((count, index) => {
    if (count === 0) return;
    const having = of.documentsWith[index] ?? 0;
    const rarity = Math.log(1 + (of.documents - having + 0.5) / (having + 0.5));
    score += (rarity * count * (K1 + 1)) / (count + K1 * (1 - B + (B * length) / averageLength));
  });
  return score;
}

/** `_FullTextScore(text, terms, documents, words, documentsWith)`, with the statistics that the client has inserted. */
function scoreBy(text: Value, given: Value, documents: Value, words: Value, documentsWith: Value): Value {
  const terms = Array.isArray(given) ? termsOf(given) : undefined;
  const having = Array.isArray(documentsWith) ? documentsWith.filter((count) => typeof count === 'number') : [];
  if (terms === undefined || typeof documents !== 'number' || typeof words !== 'number') return undefined;
  const found = typeof text === 'string' ? wordsOf(text) : [];
  assertComparable(
    found.length,
    terms.reduce((sum, { length }) => sum + length, 0),
  );
  const counts = terms.map((term) => occurrences(found, term));
  return finite(bm25(found.length, counts, { documents, words, documentsWith: having }));
}

/** Full-text functions without an index and without stemming: each document's words are compared as they are. */
export const fullTextFunctions: BuiltIns = {
  FULLTEXTCONTAINS: contains(1, false),
  FULLTEXTCONTAINSALL: contains(Number.POSITIVE_INFINITY, false),
  FULLTEXTCONTAINSANY: contains(Number.POSITIVE_INFINITY, true),
  // Used in the plans of ranked searches, in queries for each range. Cosmos DB uses the same names.
  _FULLTEXTSCORE: pure(5, 5, scoreBy),
  _FULLTEXTWORDCOUNT: pure(1, 1, (text) => (typeof text === 'string' ? wordsOf(text).length : 0)),
};
