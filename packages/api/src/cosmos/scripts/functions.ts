import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { QueryRequest } from '../../store/api/queries-api.ts';
import { type CosmosRequest, scriptRunner } from '../request.ts';
import { failureOf } from './failures.ts';

/** Whether a query may call user-defined functions, judged by its text alone. */
const callsFunctions = (sql: string): boolean => /\budf\s*\./i.test(sql);

const NONE: ReadonlySet<string> = new Set();

/** The names of the user-defined functions that a query over a container may call. */
export const functionNames = ({ store }: Pick<CosmosRequest, 'store'>, container: ContainerState, sql: string) =>
  callsFunctions(sql) ? new Set(store.listScripts(container, 'user-defined-function').map(({ name }) => name)) : NONE;

/**
 * The user-defined functions that a query may call, as they are stored now; undefined for a query that calls none. If the
 * store runs no scripts, only the call of a function is refused, so a query that contains `udf.` otherwise still works.
 */
export function functionsFor(
  request: Pick<CosmosRequest, 'store' | 'scripts'>,
  container: ContainerState,
  sql: string,
): QueryRequest['userFunctions'] {
  if (!callsFunctions(sql)) return undefined;
  const stored = request.store.listScripts(container, 'user-defined-function');
  const sources = new Map(stored.map(({ name, body }) => [name, body]));
  let workedMs = 0;
  return {
    names: new Set(sources.keys()),
    get workedMs() {
      return workedMs;
    },
    call: async (calls, signal) => {
      const outcome = await scriptRunner(request).evaluate(sources, calls, { of: container.rid, signal });
      workedMs += outcome.workedMs;
      if (outcome.kind === 'done') return outcome.results;
      throw failureOf('A user-defined function', outcome);
    },
  };
}
