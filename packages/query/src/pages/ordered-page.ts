import { DOCUMENT_SLOT } from '../compile/compile.ts';
import { Chosen, type QueryParameter, type QueryPlan } from '../compile/plan.ts';
import { guardStack } from '../errors.ts';
import { printExpression } from '../language/print.ts';
import { bindSources, groupAttempt, Groups } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import {
  isFromStart,
  MAX_NEIGHBOURS,
  type OrderedPlace,
  type OrderedStart,
  placeAmongOthers,
  type RowPlace,
  startAmong,
} from '../run/place.ts';
import { Ranking } from '../run/ranking.ts';
import { isLastFirst, type Room, Sorter } from '../run/sorter.ts';
import { BYTES_PER_CHARACTER, bytesOf, textBytes, type Memory } from '../values/memory.ts';
import { jsonText } from '../values/json-text.ts';
import { type Json, stableKey, type Value } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';
import { type Evaluation, startEvaluation } from './evaluate.ts';

/** Bytes that are kept with a row for its place, besides the values. */
const PLACE_BYTES = 72;

export interface OrderedRow extends OrderedPlace {
  readonly row: Json;
}

/** Whether rows are in an order in which each has its own place, so that a page can continue after it; or there is only one row. */
export function isOrdered({ program, readsDocuments, derivedFrom }: QueryPlan): boolean {
  return (
    (program.orderBy.length > 0 || program.grouping !== undefined) && readsDocuments && (derivedFrom?.streaming ?? true)
  );
}

/** Whether each row is of one document, and rows are in the order of scores that depend on all documents. */
export function isRanked({ program, derivedFrom }: QueryPlan): boolean {
  return program.rank !== undefined && !program.distinct && program.sources.length === 0 && derivedFrom === undefined;
}

/**
 * A text that identifies the order of a query's rows; undefined if they are in the order of the documents. A place in the rows of one
 * query is meaningless for another query whose text differs.
 */
export function orderText({ query }: QueryPlan, parameters: readonly QueryParameter[]): string | undefined {
  const { groupBy, orderBy, orderByRank } = query;
  if (groupBy.length + orderBy.length === 0) return undefined;
  const groups = groupBy.map(printExpression);
  const steps = orderBy.map(
    ({ expression, direction }) => [printExpression(expression), direction === 'DESC'] as const,
  );
  const named = new Set([...groups, ...steps.map(([expression]) => expression)].join(' ').match(/@\w+/g));
  const values = parameters.filter(({ name }) => named.has(name)).map(({ name, value }) => [name, value ?? null]);
  return jsonText([groups, steps, orderByRank !== undefined, values]);
}

/** Whether a row may come from any number of documents. */
export const isOfMany = ({ program }: QueryPlan): boolean => program.distinct || program.grouping !== undefined;

/**
 * Finds the first rows of an ordered answer from a place on. Since it continues from a place and not from a count, no row is missed or
 * repeated if others were added or removed meanwhile. The caller handles OFFSET and LIMIT.
 */
export class OrderedPage {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  readonly #start: OrderedStart | undefined;
  readonly #sorter: Sorter<OrderedRow>;
  readonly #capacity: number;
  readonly #groups: Groups | undefined;
  readonly #ranking: Ranking<OrderedRow> | undefined;
  /** The evaluation of the query in FROM whose rows are the documents of this one. */
  readonly #inner: Evaluation | undefined;
  /** All rows, after the last document. */
  #inOrder: readonly OrderedRow[] = [];
  /** The index, in these rows, of the first requested one. */
  #first = 0;
  /** The ORDER BY values of the current row. The array is reused, since most rows are not kept. */
  readonly #keys: Value[] = [];
  /** The index of the current document among those offered, and of the current row in it. */
  #index = 0;
  #inside = 0;
  #numberOf: (index: number) => number = (index) => index;
  readonly #accept = (): boolean => {
    this.#takeRow();
    return true;
  };

  /**
   * @param plan a plan that {@link isOrdered}; or one that {@link isRanked}, if there is no start
   * @param capacity the largest number of rows to return
   * @param room the memory for the rows of a page, which need not be filled
   */
  constructor(
    plan: QueryPlan,
    context: EvaluationContext,
    start: OrderedStart | undefined,
    capacity: number,
    room?: Room,
  ) {
    const { program, derivedFrom } = plan;
    this.#plan = plan;
    this.#frame = newFrame(context);
    const { memory, work } = this.#frame;
    this.#start = start;
    this.#capacity = capacity;
    // If equal rows are dropped, or the start is determined by neighbours, all rows are needed to know which to return.
    const needsAll = program.distinct || start?.near !== undefined;
    const lastFirst = isLastFirst(program);
    this.#sorter = needsAll
      ? new Sorter(program.orderBy, Number.POSITIVE_INFINITY, memory, lastFirst)
      : new Sorter(program.orderBy, capacity, memory, lastFirst, room);
    this.#groups = program.grouping === undefined ? undefined : new Groups(program.grouping, memory);
    this.#ranking = program.rank === undefined ? undefined : new Ranking(program.rank, memory);
    this.#inner = derivedFrom === undefined ? undefined : startEvaluation(derivedFrom, { ...context, memory, work });
  }

  /** Takes the next documents. `numberOf` returns a document's number by its index; numbers ascend. It is called only when needed. */
  offer(documents: readonly Json[], numberOf: (index: number) => number): void {
    this.#numberOf = numberOf;
    guardStack(() => {
      for (let index = 0; index < documents.length; index += 1) {
        this.#index = index;
        this.#inside = 0;
        this.#frame.work.beginDocument();
        if (this.#inner === undefined) this.#takeDocument(documents[index]!);
        else {
          this.#inner.offer(documents.slice(index, index + 1), 0);
          for (const row of this.#inner.takeRows()) this.#takeDocument(row);
        }
      }
    });
  }

  /**
   * Takes a row of a document whose place is known. It may be called instead of `offer` if the plan {@link hasLastingPlaces} and, unless it
   * {@link isOfMany}, the start is not among neighbours.
   *
   * @param document the document's number
   * @param chosen makes a {@link Chosen} that represents the row; only called if rows are each of one document
   */
  offerPlace(document: number, { keys, inside, row }: RowPlace, chosen: () => Json): void {
    if (this.#groups !== undefined) return this.#groups.add(keys);
    if (!this.#sorter.keeps(keys)) return;
    if (row !== undefined) {
      this.#sorter.add(keys, { row, keys }, PLACE_BYTES + bytesOf(row));
      return;
    }
    if (this.#start !== undefined && !isFromStart(this.#plan.program, this.#start, { keys, document, inside })) return;
    this.#sorter.add(keys, { row: chosen(), keys, document, inside }, Chosen.BYTES);
  }

  /** The units of work beyond those that are free for each document. */
  get extraWork(): number {
    return this.#frame.work.extra;
  }

  /** Must be called once, after the last document. It pauses before work that may take as long as a document. */
  *finishing(): Generator<void, void, undefined> {
    for (const place of this.#groups?.bound(this.#frame, groupAttempt(this.#plan.program)) ?? []) {
      yield;
      if (place === undefined) continue;
      this.#frame.work.beginDocument();
      this.#frame.work.addRow(this.#plan.program.weight);
      guardStack(() => this.#order(place));
    }
    const inOrder = yield* (this.#ranking ?? this.#sorter).sorted();
    this.#inOrder = this.#plan.program.distinct ? yield* distinct(inOrder, this.#frame.memory) : inOrder;
    if (this.#start !== undefined) this.#first = yield* startAmong(this.#plan.program, this.#start, this.#inOrder);
  }

  /**
   * Returns the rows in order, the known rows just before them, and whether the room was too small for all rows. Must be called once, after
   * `finishing`.
   */
  rows(): { readonly rows: OrderedRow[]; readonly before: readonly OrderedRow[]; readonly isCut: boolean } {
    const sorted = this.#inOrder;
    if (this.#ranking !== undefined) return { rows: sorted.slice(0, this.#capacity), before: [], isCut: false };
    const first = this.#first;
    return {
      rows: sorted.slice(first, first + this.#capacity),
      before: sorted.slice(Math.max(0, first - MAX_NEIGHBOURS), first),
      isCut: this.#sorter.isCut,
    };
  }

  #takeDocument(value: Json): void {
    this.#frame.slots[DOCUMENT_SLOT] = value;
    const { sources } = this.#plan.program;
    if (sources.length === 0) this.#takeRow();
    else bindSources(sources, 0, this.#frame, this.#accept);
  }

  #takeRow(): void {
    this.#inside += 1;
    const { where, project, weight } = this.#plan.program;
    this.#frame.work.addRow(weight);
    const facts = this.#ranking?.observe(this.#frame);
    if (where !== undefined && !where(this.#frame)) return;
    if (facts !== undefined) {
      const row = project(this.#frame);
      if (row === undefined) return;
      const rowBytes = bytesOf(row);
      this.#frame.work.lookThrough(rowBytes / BYTES_PER_CHARACTER);
      this.#ranking!.add(facts, { row, keys: [], document: this.#numberOf(this.#index) }, rowBytes);
    } else if (this.#groups === undefined) this.#order();
    else this.#groups.accumulate(this.#frame);
  }

  /** @param group the place, among the other groups, of the group that the frame is bound to */
  #order(group?: readonly Value[]): void {
    const { orderBy, distinct: isDistinct, project } = this.#plan.program;
    const frame = this.#frame;
    const keys = this.#keys;
    // The array has the keys of the row before. Its length is only set if it differs, since that takes time.
    if (keys.length !== orderBy.length) keys.length = orderBy.length;
    for (let place = 0; place < orderBy.length; place += 1) keys[place] = orderBy[place]!.run(frame);
    let row = isDistinct ? project(frame) : undefined;
    if (isDistinct) {
      if (row === undefined) return;
      keys.push(...placeAmongOthers([row]));
    } else if (group !== undefined) keys.push(...group);
    if (!this.#sorter.keeps(keys)) return;
    const isOfOne = !isDistinct && group === undefined;
    const document = isOfOne ? this.#numberOf(this.#index) : undefined;
    const inside = isOfOne ? this.#inside - 1 : undefined;
    // Rows before the start were returned by an earlier page.
    if (!isDistinct && this.#start !== undefined) {
      if (!isFromStart(this.#plan.program, this.#start, { keys, document, inside })) return;
    }
    row ??= project(frame);
    if (row === undefined) return;
    const kept = [...keys];
    const rowBytes = Chosen.isOne(row) ? Chosen.BYTES : PLACE_BYTES + bytesOf(row);
    const bytes = this.#sorter.add(kept, { row, keys: kept, document, inside }, rowBytes);
    frame.work.lookThrough(bytes / BYTES_PER_CHARACTER);
  }
}

function* distinct(rows: readonly OrderedRow[], memory: Memory): Generator<void, readonly OrderedRow[], undefined> {
  const first = new Map<string, OrderedRow>();
  for (const row of rows) {
    // Rows may be large.
    yield;
    const key = stableKey(row.row);
    if (first.has(key)) continue;
    memory.hold(textBytes(key));
    first.set(key, row);
  }
  return [...first.values()];
}
