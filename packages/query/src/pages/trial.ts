import { DOCUMENT_SLOT } from '../compile/compile.ts';
import type { QueryPlan } from '../compile/plan.ts';
import { attempted, type FunctionCalls, whenReady } from '../run/calls.ts';
import { bindSources } from '../run/execute.ts';
import type { Frame } from '../run/frame.ts';
import type { Program } from '../run/program.ts';
import type { Json, Value } from '../values/values.ts';
import { type EvaluationContext, newFrame } from './context.ts';

/**
 * Evaluates of a document, without an effect, all that an evaluation of the plan may evaluate of it: what of that needs other
 * documents as well is not, that is groups and the rows of a query in FROM that are ordered.
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

/** The same of the row that the frame is bound to. Answers the row that comes out of it by itself. */
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
 * For a plan that calls functions: tries documents from an index on, at most up to another. Answers the index up to which they can
 * be offered, until it is called the next time. Where that is the first, calls are to be settled, and the same is tried
 * again.
 */
export function tryDocuments(
  plan: QueryPlan,
  context: EvaluationContext & { readonly calls: FunctionCalls },
): (documents: readonly Json[], from: number, to: number) => number {
  const attempt = documentAttempt(plan, context);
  return (documents, from, to) => context.calls.readyUpTo(documents, from, to, attempt);
}

/** What takes the place of documents when there are no more of these, once it can be offered; pauses where it can't yet. */
export function triedRows(
  plan: QueryPlan,
  context: EvaluationContext,
  rows: readonly Json[],
): Iterable<Json | undefined> {
  const { calls } = context;
  if (!plan.program.callsFunctions || calls === undefined) return rows;
  return whenReady(calls, rows, documentAttempt({ ...plan, derivedFrom: undefined }, context));
}
