import type { EvaluationContext } from './evaluate.ts';
import { newFrame } from './evaluate.ts';
import { DOCUMENT_SLOT } from './compile.ts';
import { guardStack } from './errors.ts';
import type { Frame } from './frame.ts';
import type { QueryPlan } from './plan.ts';
import { compareKeys, Sorter } from './sorter.ts';
import type { Json, Value } from './values.ts';

/** Where a row stands in an ordered answer: by its ORDER BY values, and among equal ones by its document. */
export interface OrderedPlace {
  readonly keys: readonly Value[];
  /** The document's number in the order in which documents are offered. */
  readonly document: number;
}

export interface OrderedRow extends OrderedPlace {
  readonly row: Json;
}

/** Whether each document gives one row at most, whose place depends on that document alone. */
export function isOrderedByDocument({ program, readsDocuments, derivedFrom }: QueryPlan): boolean {
  return (
    program.orderBy.length > 0 &&
    program.grouping === undefined &&
    program.sources.length === 0 &&
    !program.distinct &&
    readsDocuments &&
    derivedFrom === undefined
  );
}

/**
 * The first rows of an ordered answer after a place in it. Since it goes on from a place and not from a count, rows
 * that came or went meanwhile make it neither miss nor repeat any other. Offset and limit are the caller's.
 */
export class OrderedPage {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  readonly #after: OrderedPlace | undefined;
  readonly #lastFirst: boolean;
  readonly #sorter: Sorter<OrderedRow>;

  /** @param capacity rows to keep at most */
  constructor(plan: QueryPlan, context: EvaluationContext, after: OrderedPlace | undefined, capacity: number) {
    this.#plan = plan;
    this.#frame = newFrame(context);
    this.#after = after;
    // Where anything is descending, clients that merge ranges take equal rows to be ordered from the last document to
    // the first, as Cosmos DB has them that reads its index backwards. They go on from a page by that.
    this.#lastFirst = plan.program.orderBy.some(({ descending }) => descending);
    this.#sorter = new Sorter(plan.program.orderBy, capacity, this.#frame.maxBufferedRows, this.#lastFirst);
  }

  /** Takes the next document; their numbers go up. */
  offer(value: Json, document: number): void {
    guardStack(() => this.#take(value, document));
  }

  /** The rows in order. To be called once. */
  rows(): OrderedRow[] {
    return [...this.#sorter.sorted()];
  }

  #take(value: Json, document: number): void {
    const { where, orderBy, project } = this.#plan.program;
    const frame = this.#frame;
    frame.slots[DOCUMENT_SLOT] = value;
    frame.stepsLeft = frame.maxStepsPerDocument;
    if (where !== undefined && !where(frame)) return;
    const keys = orderBy.map(({ run }) => run(frame));
    if (this.#after !== undefined) {
      const difference = compareKeys(keys, this.#after.keys, orderBy);
      if (difference < 0) return;
      const further = this.#lastFirst ? this.#after.document - document : document - this.#after.document;
      if (difference === 0 && further <= 0) return;
    }
    if (!this.#sorter.keeps(keys)) return;
    const row = project(frame);
    if (row !== undefined) this.#sorter.add(keys, { row, keys, document });
  }
}
