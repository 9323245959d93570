import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryParameter, QueryPlan } from '../compile/plan.ts';
import { guardStack } from '../errors.ts';
import { NOWHERE } from '../language/expressions.ts';
import { printQuery } from '../language/print.ts';
import { bindSources } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { RowPlace } from '../run/place.ts';
import { bytesOf } from '../values/memory.ts';
import { jsonText } from '../values/json-text.ts';
import type { Json, Value } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';
import { isOfMany } from './ordered-page.ts';
import { NO_BOUNDS } from './pipeline.ts';

const STAR = { kind: 'star', at: NOWHERE } as const;

/**
 * Whether rows are ordered by values that depend on nothing but the document of each row, so that the places of a document's rows are the
 * same in every run of the query.
 */
export function hasLastingPlaces(plan: QueryPlan): boolean {
  const { program, readsDocuments, derivedFrom } = plan;
  const isOfOne = !isOfMany(plan) && derivedFrom === undefined;
  const isFixed = !plan.callsFunctions && !plan.readsClock && plan.changing === undefined;
  return program.orderBy.length > 0 && readsDocuments && isOfOne && isFixed;
}

/** A text that identifies the places of a query's rows. Queries that only select or limit their rows differently have the same one. */
export function placesText({ query }: QueryPlan, parameters: readonly QueryParameter[]): string {
  const { selection } = query;
  // Of the selected values, only a VALUE may be undefined, and then makes no row.
  const compared = { ...query, ...NO_BOUNDS, selection: selection.kind === 'value' ? selection : STAR };
  const text = printQuery(compared);
  const values = parameters.filter(({ name }) => text.includes(name));
  return jsonText([text, values.map(({ name, value }) => (value === undefined ? [name] : [name, value]))]);
}

/** Finds the places of each document's rows, for a plan that {@link hasLastingPlaces}. */
export class DocumentPlaces {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  #places: RowPlace[] = [];
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

  /** Throws the same errors as an evaluation. The result does not keep the document in memory. */
  of(document: Json): readonly RowPlace[] {
    this.#places = [];
    this.#inside = 0;
    this.#frame.slots[DOCUMENT_SLOT] = document;
    this.#frame.work.beginDocument();
    guardStack(() => bindSources(this.#plan.program.sources, 0, this.#frame, this.#accept));
    return this.#places;
  }

  #takeRow(): void {
    const { where, project, orderBy, weight } = this.#plan.program;
    const frame = this.#frame;
    this.#inside += 1;
    frame.work.addRow(weight);
    if (where !== undefined && !where(frame)) return;
    // Of the rows of a query, only those that select a VALUE may be undefined. Such a row is left out.
    if (this.#plan.query.selection.kind === 'value' && project(frame) === undefined) return;
    this.#places.push({ keys: orderBy.map(({ run }) => detached(run(frame))), inside: this.#inside - 1 });
  }
}

/** Bytes of a place besides its values. */
const PLACE_BYTES = 48;

/** The approximate bytes that places take in memory. */
export const bytesOfPlaces = (places: readonly RowPlace[]): number =>
  places.reduce((bytes, { keys }) => bytes + PLACE_BYTES + bytesOf(keys as Json[]), 0);

/** From so many characters on, a part of a text may be a reference into the whole text. */
const MAY_REFER = 13;

/** A text that does not keep another one in memory, of which it is a part. */
const detached = (value: Value): Value =>
  typeof value === 'string' && value.length >= MAY_REFER ? (JSON.parse(JSON.stringify(value)) as string) : value;
