import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryParameter, QueryPlan } from '../compile/plan.ts';
import { guardStack } from '../errors.ts';
import { NOWHERE } from '../language/expressions.ts';
import { printQuery } from '../language/print.ts';
import { bindSources, rowValues } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import { placeAmongOthers, type RowPlace } from '../run/place.ts';
import { detached, MOST_REMEMBERED_BYTES } from '../values/detached.ts';
import { bytesOf } from '../values/memory.ts';
import { jsonText } from '../values/json-text.ts';
import type { Json } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';
import { isOfMany, isOrdered } from './ordered-page.ts';
import { NO_BOUNDS } from './pipeline.ts';

const STAR = { kind: 'star', at: NOWHERE } as const;

/**
 * Whether rows are ordered, grouped or distinct by values that depend on nothing but the document of each row, so that the places of a
 * document's rows are the same in every run of the query.
 */
export function hasLastingPlaces(plan: QueryPlan): boolean {
  const { program, derivedFrom, readsDocuments } = plan;
  const hasPlaces = isOrdered(plan) || (program.distinct && program.rank === undefined && readsDocuments);
  const isFixed = !plan.callsFunctions && !plan.readsClock && plan.changing === undefined;
  return hasPlaces && derivedFrom === undefined && isFixed;
}

/** A text that identifies the places of a query's rows. Queries that only select or limit their rows differently have the same one. */
export function placesText(plan: QueryPlan, parameters: readonly QueryParameter[]): string {
  const { query } = plan;
  const { selection } = query;
  // If each row is of one document, only a VALUE matters: it may be undefined, and then makes no row.
  const matters = isOfMany(plan) || selection.kind === 'value';
  const compared = { ...query, ...NO_BOUNDS, selection: matters ? selection : STAR };
  const text = printQuery(compared);
  const values = parameters.filter(({ name }) => text.includes(name));
  return jsonText([text, values.map(({ name, value }) => (value === undefined ? [name] : [name, value]))]);
}

/** Bytes of a place besides its values. */
const PLACE_BYTES = 48;

/** The places of the rows of a document. They don't keep the document in memory. */
export interface FoundPlaces {
  readonly rows: readonly RowPlace[];
  /** The approximate bytes that these take in memory. */
  readonly bytes: number;
  /** The units of work that finding them took, beyond those that are free for each document. */
  readonly extraWork: number;
}

/** Finds the places of each document's rows, for a plan that {@link hasLastingPlaces}. */
export class DocumentPlaces {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  #take: (place: RowPlace) => void = () => {};
  /** The places so far; undefined if they are too many, or too large. */
  #rows: RowPlace[] | undefined;
  #bytes = 0;
  #inside = 0;
  readonly #accept = (): boolean => {
    this.#takeRow();
    return true;
  };

  constructor(plan: QueryPlan, context: EvaluationContext) {
    this.#plan = plan;
    this.#frame = newFrame(context);
  }

  /** The units of work beyond those that are free for each document. */
  get extraWork(): number {
    return this.#frame.work.extra;
  }

  /**
   * Calls `take` with the place of each row of a document, and throws the same errors as an evaluation.
   *
   * @returns the places, if they are small enough to be kept
   */
  of(document: Json, take: (place: RowPlace) => void): FoundPlaces | undefined {
    this.#take = take;
    this.#rows = [];
    this.#bytes = 0;
    this.#inside = 0;
    this.#frame.slots[DOCUMENT_SLOT] = document;
    this.#frame.work.beginDocument();
    const before = this.extraWork;
    guardStack(() => bindSources(this.#plan.program.sources, 0, this.#frame, this.#accept));
    const rows = this.#rows;
    return rows && { rows, bytes: this.#bytes, extraWork: this.extraWork - before };
  }

  #takeRow(): void {
    const { where, project, orderBy, grouping, distinct, weight } = this.#plan.program;
    const frame = this.#frame;
    const inside = this.#inside;
    this.#inside += 1;
    frame.work.addRow(weight);
    if (where !== undefined && !where(frame)) return;
    if (grouping !== undefined) return this.#add({ keys: rowValues(grouping, frame), inside });
    // Of the rows of a query, only those that select a VALUE may be undefined. Such a row is left out.
    const row = distinct || this.#plan.query.selection.kind === 'value' ? project(frame) : null;
    if (row === undefined) return;
    const keys = orderBy.map(({ run }) => run(frame));
    if (!distinct) return this.#add({ keys, inside });
    if (keys.length > 0) keys.push(...placeAmongOthers([row]));
    this.#add({ keys, inside, row });
  }

  #add(place: RowPlace): void {
    this.#take(place);
    if (this.#rows === undefined) return;
    const { keys, inside, row } = place;
    this.#bytes += PLACE_BYTES + bytesOf(keys as Json[]) + (row === undefined ? 0 : bytesOf(row));
    if (this.#bytes > MOST_REMEMBERED_BYTES) this.#rows = undefined;
    else if (row === undefined) this.#rows.push({ keys: keys.map(detached), inside });
    else this.#rows.push({ keys: keys.map(detached), inside, row: detached(row) });
  }
}
