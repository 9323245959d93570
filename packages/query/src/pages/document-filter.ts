import { DOCUMENT_SLOT } from '../compile/compile.ts';
import { conditionsOf, type PlanOptions, type QueryParameter, type QueryPlan } from '../compile/plan.ts';
import { guardStack } from '../errors.ts';
import { satisfies } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import { detached, MOST_REMEMBERED_BYTES } from '../values/detached.ts';
import { bytesOf } from '../values/memory.ts';
import { isObject, type Json, type JsonObject, setProperty } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';

/** The conditions of a filter that are decided by some of a document's properties. */
export class DocumentFilter {
  /** The names of these properties, in order. */
  readonly properties: readonly string[];
  readonly #plan: QueryPlan;
  readonly #frame: Frame;

  /** @param plan a plan that has only these conditions */
  constructor(plan: QueryPlan, context: EvaluationContext) {
    this.properties = plan.documentProperties!.toSorted();
    this.#plan = plan;
    this.#frame = newFrame(context);
  }

  /**
   * Whether a document can't satisfy the filter. If so, a query over the document gives the same as over the part.
   *
   * @param part has the document's {@link properties}
   * @throws the same errors as an evaluation
   */
  excludes(part: Json): boolean {
    const frame = this.#frame;
    frame.slots[DOCUMENT_SLOT] = part;
    frame.work.beginDocument();
    return guardStack(() => !satisfies(this.#plan.program, frame));
  }

  /** The part of a document that has these properties, without references to the document; undefined if it is large. */
  partOf(document: Json): { readonly part: Json; readonly bytes: number } | undefined {
    const part: JsonObject = {};
    if (isObject(document)) {
      for (const name of this.properties) {
        if (Object.hasOwn(document, name)) setProperty(part, name, document[name]!);
      }
    }
    const bytes = bytesOf(part);
    return bytes > MOST_REMEMBERED_BYTES ? undefined : { part: detached(part), bytes };
  }
}

/**
 * The conditions of a query's WHERE that are decided by some of a document's properties, for a query whose rows are each of one document or
 * of groups of documents.
 *
 * @returns undefined if there are none, or if excluded documents matter, too
 */
export function documentFilter(
  plan: QueryPlan,
  parameters: readonly QueryParameter[],
  options: PlanOptions,
  context: EvaluationContext,
): DocumentFilter | undefined {
  // Calls of functions are tried before the filter is decided.
  if (plan.callsFunctions || plan.derivedFrom !== undefined) return undefined;
  const conditions = conditionsOf(
    plan,
    parameters,
    options,
    ({ documentProperties, changing }) => documentProperties !== undefined && changing === undefined,
  );
  return conditions?.needsBody === true ? new DocumentFilter(conditions, context) : undefined;
}
