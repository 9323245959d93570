import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { attempted, type FunctionCalls, whenReady } from '../run/calls.ts';
import { bindSources } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { Program } from '../run/program.ts';
import type { Json, Value } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';

/**
 * Evaluates, without effects, everything that an evaluation of the plan may evaluate for a document. Excluded are the parts that depend on
 * other documents as well: groups, and ordered rows of a query in FROM.
 */
function documentAttempt(plan: QueryPlan, context: EvaluationContext): (document: Json) => void {
  const work = newFrame(context).work;
  const attemptOf = ({ program, derivedFrom }: QueryPlan, emit: (row: Json) => void): ((document: Json) => void) => {
    const frame = newFrame({ ...context, work });
    const accept = attempted((bound: Frame) => {
      const { made } = work;
      const row = attemptRow(program, bound);
      if (row !== undefined) emit(row);
      work.keepOf(made, 0);
      return true;
    }, true);
    const own = (document: Json): void => {
      frame.slots[DOCUMENT_SLOT] = document;
      bindSources(program.sources, 0, frame, () => accept(frame));
    };
    if (derivedFrom === undefined) return own;
    const { orderBy, grouping, rank } = derivedFrom.program;
    const comesAtOnce = orderBy.length === 0 && grouping === undefined && rank === undefined;
    return attemptOf(derivedFrom, comesAtOnce ? own : () => {});
  };
  const attempt = attemptOf(plan, () => {});
  return (document) => {
    work.beginDocument();
    attempt(document);
  };
}

/** Does the same for the row that the frame is bound to. Returns the resulting row, if it does not depend on other rows. */
function attemptRow({ rank, where, weight, grouping, orderBy, project }: Program, frame: Frame): Value {
  frame.work.addRow(weight);
  for (const component of rank?.components ?? []) (component.kind === 'text' ? component.text : component.run)(frame);
  if (where !== undefined && !where(frame)) return undefined;
  for (const { run } of grouping?.keys ?? []) run(frame);
  for (const { argument } of grouping?.aggregates ?? []) argument(frame);
  if (grouping !== undefined) return undefined;
  for (const { run } of orderBy) run(frame);
  return project(frame);
}

/**
 * For a plan that calls functions: tries documents from one index up to another. Returns the index up to which they can be offered, until
 * the next call. If it is the first index, calls must be settled, and the same documents tried again.
 */
export function tryDocuments(
  plan: QueryPlan,
  context: EvaluationContext & { readonly calls: FunctionCalls },
): (documents: readonly Json[], from: number, to: number) => number {
  const attempt = documentAttempt(plan, context);
  return (documents, from, to) => context.calls.readyUpTo(documents, from, to, attempt);
}

/** After the last document: yields the rows that replace documents, each once it can be offered. Pauses while it can't. */
export function triedRows(
  plan: QueryPlan,
  context: EvaluationContext,
  rows: readonly Json[],
): Iterable<Json | undefined> {
  const { calls } = context;
  if (!plan.program.callsFunctions || calls === undefined) return rows;
  return whenReady(calls, rows, documentAttempt({ ...plan, derivedFrom: undefined }, context));
}
