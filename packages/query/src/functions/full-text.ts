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

/** How often the words of a term follow each other in a text, each in at most so many edits. */
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

/** Whether letters put in, left out or changed, so many at most, make one word of another. */
function isWithin(distance: number, a: string, b: string, fromA = 0, fromB = 0): boolean {
  let [inA, inB] = [fromA, fromB];
  while (inA < a.length && inA - fromA < b.length - fromB && a[inA] === b[inB]) {
    inA += 1;
    inB += 1;
  }
  const [leftA, leftB] = [a.length - inA, b.length - inB];
  if (Math.abs(leftA - leftB) > distance) return false;
  if (leftA === 0 || leftB === 0) return true;
  // At the first letter that differs there is an edit.
  return (
    distance > 0 &&
    (isWithin(distance - 1, a, b, inA + 1, inB + 1) ||
      isWithin(distance - 1, a, b, inA + 1, inB) ||
      isWithin(distance - 1, a, b, inA, inB + 1))
  );
}

/** Search terms are strings; the first version of the language took an array of them. Undefined for anything else. */
export function termsOf(args: readonly Value[]): readonly (readonly string[])[] | undefined {
  const terms = args.flat();
  return terms.every((term) => typeof term === 'string') ? terms.map(wordsOf) : undefined;
}

interface FuzzyTerm {
  readonly words: readonly string[];
  readonly distance: number;
}

const MAX_DISTANCE = 2;

/** What it takes to tell whether words are a few edits apart, in comparisons. */
const FUZZY_COMPARISONS = 10;

/** Terms as conditions take them: strings, or `{ term, distance }` for words that may be a few edits away. */
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

/** A test of one text for any or all of some terms. */
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

/** What BM25 weighs the terms of one text by: of all documents, how many there are, their words, and who has which term. */
export interface TextStatistics {
  readonly documents: number;
  readonly words: number;
  /** How many documents have each term. */
  readonly documentsWith: readonly number[];
}

/** The constants that BM25 is mostly used with. */
const K1 = 1.2;
const B = 0.75;

/** BM25: how well a text of some words fits terms that occur in it so often. */
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

/** `_FullTextScore(text, terms, documents, words, documentsWith)`, by statistics that the client has put in. */
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

/** Without an index and without stemming: the words are compared as they stand, in each document that is looked at. */
export const fullTextFunctions: BuiltIns = {
  FULLTEXTCONTAINS: contains(1, false),
  FULLTEXTCONTAINSALL: contains(Number.POSITIVE_INFINITY, false),
  FULLTEXTCONTAINSANY: contains(Number.POSITIVE_INFINITY, true),
  // What the plans of ranked searches ask of each range; Cosmos DB calls them the same.
  _FULLTEXTSCORE: pure(5, 5, scoreBy),
  _FULLTEXTWORDCOUNT: pure(1, 1, (text) => (typeof text === 'string' ? wordsOf(text).length : 0)),
};
