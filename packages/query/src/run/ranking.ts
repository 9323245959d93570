import { assertComparable } from '../functions/bounds.ts';
import { bm25, occurrences, wordsOf } from '../functions/full-text.ts';
import type { Memory } from '../values/memory.ts';
import { sorting } from '../values/sorting.ts';
import { compareValues } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { assertTime, type Compiled, type Frame } from './frame.ts';

/** One score of ORDER BY RANK: how well a text matches some terms, or a value such as the similarity of a vector. */
export type RankComponent =
  | { readonly kind: 'text'; readonly text: Compiled; readonly terms: readonly (readonly string[])[] }
  | { readonly kind: 'value'; readonly run: Compiled; readonly descending: boolean };

/** ORDER BY RANK: one component, or several that are fused by their ranks. */
export interface RankStep {
  readonly components: readonly RankComponent[];
  /** One for each component. */
  readonly weights: readonly number[];
}

/** The usual constant of reciprocal rank fusion. */
const RRF_CONSTANT = 60;

/** If a text has at least this many words, the time is checked for each term. */
const MANY_WORDS = 1_024;
/** In shorter texts, a word counts as this many characters of work. */
const CHARACTERS_PER_WORD = 8;

/** Bytes that the facts of a row take for each component, including its score. */
const FACTS_BYTES = 128;
/** Bytes that the facts of a row take for each term. */
const TERM_BYTES = 8;
/** How many terms are scored between two pauses. */
const TERMS_BETWEEN_PAUSES = 16 * 1024;

/** The facts about a text that BM25 needs: its length in words, and the number of occurrences of each term. */
interface TextFacts {
  readonly length: number;
  readonly occurrences: readonly number[];
}

type Facts = readonly (TextFacts | Value)[];

interface Ranked<Row> {
  readonly row: Row;
  readonly facts: Facts;
}

class TextObserver {
  readonly #terms: readonly (readonly string[])[];
  readonly #documentsWith: number[];
  #documents = 0;
  #words = 0;

  constructor(terms: readonly (readonly string[])[]) {
    this.#terms = terms;
    this.#documentsWith = terms.map(() => 0);
  }

  observe(text: Value, frame: Frame): TextFacts {
    const words = typeof text === 'string' ? wordsOf(text) : [];
    const counts = this.#terms.map((term) => {
      // One term may be as long as the text is, and there may be thousands of them.
      assertComparable(words.length, term.length);
      if (words.length >= MANY_WORDS) assertTime(frame);
      else frame.work.lookThrough(CHARACTERS_PER_WORD * (words.length + 1));
      return occurrences(words, term);
    });
    const facts = { length: words.length, occurrences: counts };
    this.#documents += 1;
    this.#words += words.length;
    facts.occurrences.forEach((count, index) => {
      if (count > 0) this.#documentsWith[index] = (this.#documentsWith[index] ?? 0) + 1;
    });
    return facts;
  }

  score({ length, occurrences: counts }: TextFacts): number {
    return bm25(length, counts, {
      documents: this.#documents,
      words: this.#words,
      documentsWith: this.#documentsWith,
    });
  }
}

/**
 * Collects rows for ORDER BY RANK. Scores depend on all documents, so rows wait for the last one. The statistics include all documents
 * that are offered to the query, also those that its filter excludes.
 */
export class Ranking<Row> {
  readonly #step: RankStep;
  readonly #memory: Memory;
  readonly #statistics: readonly (TextObserver | undefined)[];
  /** The number of terms of all components. */
  readonly #terms: number;
  readonly #rows: Ranked<Row>[] = [];

  constructor(step: RankStep, memory: Memory) {
    this.#step = step;
    this.#memory = memory;
    this.#terms = step.components.reduce((sum, one) => sum + (one.kind === 'text' ? one.terms.length : 0), 0);
    this.#statistics = step.components.map((one) => (one.kind === 'text' ? new TextObserver(one.terms) : undefined));
  }

  /** Returns the facts that the scores need of the row that the frame is bound to. Must be called for every row, also for excluded ones. */
  observe(frame: Frame): Facts {
    return this.#step.components.map((one, index) =>
      one.kind === 'text' ? this.#statistics[index]?.observe(one.text(frame), frame) : one.run(frame),
    );
  }

  /** @param rowBytes the bytes that the row takes */
  add(facts: Facts, row: Row, rowBytes: number): void {
    this.#memory.hold(rowBytes + FACTS_BYTES * facts.length + TERM_BYTES * this.#terms);
    this.#rows.push({ facts, row });
  }

  /** Returns the rows, the best first; equal ones in the order in which they were added. Pauses from time to time. */
  *sorted(): Generator<void, readonly Row[], undefined> {
    const fused = this.#rows.map(() => 0);
    for (const [index, component] of this.#step.components.entries()) {
      const statistics = this.#statistics[index];
      const scores: Value[] = [];
      let weighed = 0;
      for (const { facts } of this.#rows) {
        scores.push(statistics === undefined ? (facts[index] as Value) : statistics.score(facts[index] as TextFacts));
        weighed += 1 + (component.kind === 'text' ? component.terms.length : 0);
        if (weighed < TERMS_BETWEEN_PAUSES) continue;
        weighed = 0;
        yield;
      }
      const sign = component.kind === 'text' || component.descending ? -1 : 1;
      const order = yield* sorting([...scores.keys()], (a, b) => compareScores(scores[a], scores[b], sign));
      const weight = this.#step.weights[index] ?? 1;
      let rank = 1;
      order.forEach((row, place) => {
        const before = order[place - 1];
        if (before !== undefined && compareScores(scores[before], scores[row], sign) !== 0) rank += 1;
        fused[row] = (fused[row] ?? 0) + weight / (RRF_CONSTANT + rank);
      });
    }
    const order = yield* sorting([...fused.keys()], (a, b) => (fused[b] ?? 0) - (fused[a] ?? 0));
    return order.map((index) => this.#rows[index]!.row);
  }
}

/** Compares two scores. Rows without a score come last in both directions. */
function compareScores(a: Value, b: Value, sign: 1 | -1): number {
  if (a === undefined || b === undefined) return a === b ? 0 : a === undefined ? 1 : -1;
  return compareValues(a, b) * sign;
}
