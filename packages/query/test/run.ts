import { evaluate, parseQuery, planQuery } from '../src/index.ts';
import type { EvaluationContext, Json, QueryParameter } from '../src/index.ts';

/** All rows of a query over documents. */
export function rows(
  sql: string,
  documents: readonly Json[] = [],
  parameters: readonly QueryParameter[] = [],
  context: EvaluationContext = {},
): Json[] {
  return [...evaluate(planQuery(parseQuery(sql), parameters), documents, context)];
}

/** The value of an expression without documents; undefined if it is Cosmos DB's undefined. */
export function valueOf(expression: string, context: EvaluationContext = {}): Json | undefined {
  return rows(`SELECT VALUE ${expression}`, [], [], context)[0];
}
