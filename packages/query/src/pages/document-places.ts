import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryParameter, QueryPlan } from '../compile/plan.ts';
import { guardStack } from '../errors.ts';
import { NOWHERE } from '../language/expressions.ts';
import { printQuery } from '../language/print.ts';
import { bindSources, rowValues } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { RowPlace } from '../run/place.ts';
import { bytesOf } from '../values/memory.ts';
import { jsonText } from '../values/json-text.ts';
import { type Json, type JsonObject, setProperty, type Value } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';
import { isOrdered } from './ordered-page.ts';
import { NO_BOUNDS } from './pipeline.ts';

const STAR = { kind: 'star', at: NOWHERE } as const;

/**
 * Whether rows are ordered or grouped by values that depend on nothing but the document of each row, so that the places of a document's
 * rows are the same in every run of the query.
 */
export function hasLastingPlaces(plan: QueryPlan): boolean {
  const { program, derivedFrom } = plan;
  const isOfOne = program.grouping !== undefined || !program.distinct;
  const isFixed = !plan.callsFunctions && !plan.readsClock && plan.changing === undefined;
  return isOrdered(plan) && isOfOne && derivedFrom === undefined && isFixed;
}

/** A text that identifies the places of a query's rows. Queries that only select or limit their rows differently have the same one. */
export function placesText({ query, program }: QueryPlan, parameters: readonly QueryParameter[]): string {
  const { selection } = query;
  // The selection has the aggregates of a group. Otherwise, only a VALUE may be undefined, and then makes no row.
  const matters = program.grouping !== undefined || selection.kind === 'value';
  const compared = { ...query, ...NO_BOUNDS, selection: matters ? selection : STAR };
  const text = printQuery(compared);
  const values = parameters.filter(({ name }) => text.includes(name));
  return jsonText([text, values.map(({ name, value }) => (value === undefined ? [name] : [name, value]))]);
}

/** The places of the rows of a document. */
export interface FoundPlaces {
  readonly rows: readonly RowPlace[];
  /** The units of work that finding them took, beyond those that are free for each document. */
  readonly extraWork: number;
}

/** Finds the places of each document's rows, for a plan that {@link hasLastingPlaces}. */
export class DocumentPlaces {
  readonly #plan: QueryPlan;
  readonly #frame: Frame;
  #rows: RowPlace[] = [];
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
  of(document: Json): FoundPlaces {
    this.#rows = [];
    this.#inside = 0;
    this.#frame.slots[DOCUMENT_SLOT] = document;
    this.#frame.work.beginDocument();
    const before = this.extraWork;
    guardStack(() => bindSources(this.#plan.program.sources, 0, this.#frame, this.#accept));
    return { rows: this.#rows, extraWork: this.extraWork - before };
  }

  #takeRow(): void {
    const { where, project, orderBy, grouping, weight } = this.#plan.program;
    const frame = this.#frame;
    this.#inside += 1;
    frame.work.addRow(weight);
    if (where !== undefined && !where(frame)) return;
    if (grouping !== undefined) return this.#keep(rowValues(grouping, frame));
    // Of the rows of a query, only those that select a VALUE may be undefined. Such a row is left out.
    if (this.#plan.query.selection.kind === 'value' && project(frame) === undefined) return;
    this.#keep(orderBy.map(({ run }) => run(frame)));
  }

  #keep(values: readonly Value[]): void {
    this.#rows.push({ keys: values.map(detached), inside: this.#inside - 1 });
  }
}

/** Bytes of a place besides its values. */
const PLACE_BYTES = 48;

/** The approximate bytes that the places of a document take in memory. */
export const bytesOfPlaces = ({ rows }: FoundPlaces): number =>
  rows.reduce((bytes, { keys }) => bytes + PLACE_BYTES + bytesOf(keys as Json[]), 0);

/** From so many characters on, a part of a text may be a reference into the whole text. */
const MAY_REFER = 13;

/** A value whose texts don't keep others in memory, of which they are parts. */
function detached(value: Value): Value {
  if (typeof value === 'string')
    return value.length < MAY_REFER ? value : (JSON.parse(JSON.stringify(value)) as string);
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((element) => detached(element) as Json);
  // A copy of the properties keeps the order in which their names were written.
  const copy: JsonObject = { ...value };
  for (const name in value) setProperty(copy, name, detached(value[name]) as Json);
  return copy;
}
