import type { EvaluationContext } from './evaluate.ts';
import { newFrame } from './evaluate.ts';
import { DOCUMENT_SLOT } from './compile.ts';
import { guardStack } from './errors.ts';
import type { Frame } from './frame.ts';
import type { QueryPlan } from './plan.ts';
import { compareKeys, isLastFirst, Sorter } from './sorter.ts';
import type { Json, Value } from './values.ts';

/** Where a row stands in an ordered answer: by its ORDER BY values, and among equal ones by its document. */
export interface OrderedPlace {
  readonly keys: readonly Value[];
  /** The document's number in the order in which documents are offered. */
  readonly document: number;
}

/** Where an ordered answer begins: at a place, or after it. */
export interface OrderedStart {
  readonly keys: readonly Value[];
  /** Undefined: all documents with these values stand at this place. */
  readonly document: number | undefined;
  /** Leave out what stands at the place itself. */
  readonly exclude: boolean;
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

/** Whether a row of these ORDER BY values stands where an answer begins, or after it. */
export function isFromStart(
  plan: QueryPlan,
  start: OrderedStart,
  keys: readonly Value[],
  document: number | undefined,
): boolean {
  const difference = compareKeys(keys, start.keys, plan.program.orderBy);
  if (difference !== 0) return difference > 0;
  if (start.document === undefined || document === undefined) return !start.exclude;
  const further = isLastFirst(plan.program) ? start.document - document : document - start.document;
  return start.exclude ? further > 0 : further >= 0;
}

/**
 * The first rows of an ordered answer from a place in it on. Since it goes on from a place and not from a count, rows
 * that came or went meanwhile make it neither miss nor repeat any other. Offset and limit are the caller's.
 */
export class OrderedPage {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  readonly #start: OrderedStart | undefined;
  readonly #sorter: Sorter<OrderedRow>;
  /** The ORDER BY values of the document at hand: most documents are not kept. */
  readonly #keys: Value[] = [];

  /** @param capacity rows to keep at most */
  constructor(plan: QueryPlan, context: EvaluationContext, start: OrderedStart | undefined, capacity: number) {
    this.#plan = plan;
    this.#frame = newFrame(context);
    this.#start = start;
    this.#sorter = new Sorter(plan.program.orderBy, capacity, this.#frame.maxBufferedRows, isLastFirst(plan.program));
  }

  /** Takes the next documents; their numbers, which go up, are asked for by index, of those alone that matter. */
  offer(documents: readonly Json[], numberOf: (index: number) => number): void {
    guardStack(() => {
      for (let index = 0; index < documents.length; index += 1) this.#take(documents[index]!, index, numberOf);
    });
  }

  /** The rows in order. To be called once. */
  rows(): OrderedRow[] {
    return [...this.#sorter.sorted()];
  }

  #take(value: Json, index: number, numberOf: (index: number) => number): void {
    const { where, orderBy, project } = this.#plan.program;
    const frame = this.#frame;
    frame.slots[DOCUMENT_SLOT] = value;
    frame.stepsLeft = frame.maxStepsPerDocument;
    if (where !== undefined && !where(frame)) return;
    const keys = this.#keys;
    for (let place = 0; place < orderBy.length; place += 1) keys[place] = orderBy[place]!.run(frame);
    if (!this.#sorter.keeps(keys)) return;
    const document = numberOf(index);
    if (this.#start !== undefined && !isFromStart(this.#plan, this.#start, keys, document)) return;
    const row = project(frame);
    if (row === undefined) return;
    const kept = [...keys];
    this.#sorter.add(kept, { row, keys: kept, document });
  }
}
