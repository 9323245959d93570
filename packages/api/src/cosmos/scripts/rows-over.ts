import { systemClocks } from '@epitaph/core/clock.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Pace } from '@epitaph/core/turn.ts';
import {
  FunctionCalls,
  type Json,
  jsonText,
  parseQuery,
  planQuery,
  startEvaluation,
  tryDocuments,
} from '@epitaph/query';
import { charge, workOfFunctions, workOfText } from '../../request-units/charge.ts';
import { planOptionsOf } from '../../store/plan-options.ts';
import { badRequest } from '../errors.ts';
import type { QueryBody } from '../feed.ts';
import type { CosmosRequest } from '../request.ts';
import { functionsFor } from './functions.ts';

/** The most characters that the rows of a query may take. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
/** The size of a row in addition to its characters. */
const ROW_CHARACTERS = 16;
/** The most milliseconds that the query may work on one document. It blocks all other requests meanwhile. */
const MAX_DOCUMENT_MS = 50;

/** All rows of a query over a script's own writes, as JSON. */
export interface Found {
  readonly rows: readonly string[];
  readonly characters: number;
  readonly charge: number;
}

/** Paces the evaluation of all these queries, so that other requests get their turn. */
const pace = new Pace();

/**
 * Evaluates a query over documents of which some are not recorded yet. No index contains these, so all documents are read.
 *
 * @param signal aborted when the rows are no longer needed
 * @throws QueryError for an invalid query; WireError if its rows are too large
 */
export async function rowsOver(
  documents: AsyncIterable<readonly Json[]>,
  { sql, parameters }: Pick<QueryBody, 'sql' | 'parameters'>,
  request: CosmosRequest,
  container: ContainerState,
  signal: AbortSignal,
): Promise<Found> {
  const functions = functionsFor(request, container, sql);
  const options = { ...planOptionsOf(container.definition), userFunctions: functions?.names ?? new Set<string>() };
  const query = parseQuery(sql, { maxLength: request.limits.queryCharacters });
  const plan = planQuery(query, parameters, options);
  const calls = functions && plan.callsFunctions ? new FunctionCalls(functions, systemClocks.monotonicMs) : undefined;
  const context = {
    nowMs: request.store.nowMs(),
    monotonicMs: systemClocks.workedMs,
    maxDocumentMs: MAX_DOCUMENT_MS,
    ...(calls && { calls }),
  };
  const evaluation = startEvaluation(plan, context);
  const readyUpTo = calls && tryDocuments(plan, { ...context, calls });
  const rows: string[] = [];
  let characters = 0;
  let examined = 0;
  const take = (): void => {
    for (const row of evaluation.takeRows()) {
      const text = jsonText(row);
      characters += ROW_CHARACTERS + text.length;
      if (characters > MAX_CHARACTERS) {
        throw badRequest(
          'The results of the query are too large for a script that has already written. Narrow the query.',
        );
      }
      rows.push(text);
    }
  };
  for await (const some of documents) {
    examined += some.length;
    for (let next = 0; next < some.length && evaluation.wantsDocuments; take()) {
      const ready = readyUpTo?.(some, next, some.length) ?? some.length;
      if (ready > next) next = evaluation.offer(some.slice(0, ready), next);
      else await calls!.settle(signal);
      await pace.step();
    }
    if (!evaluation.wantsDocuments) break;
  }
  for (const _ of evaluation.finishing()) {
    take();
    if (calls?.isWaiting === true) await calls.settle(signal);
    await pace.step();
  }
  take();
  const extraWork = evaluation.extraWork + workOfFunctions(functions?.workedMs ?? 0) + workOfText(sql);
  const units = charge.query(examined, characters - ROW_CHARACTERS * rows.length, extraWork);
  return { rows, characters, charge: units };
}
