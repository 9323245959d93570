import { isQuery, isQueryPlan, type CosmosRequest } from '../request.ts';
import { isScripts } from './scripts.ts';
import { namesTriggers } from './triggers.ts';

/** Whether what a request comes to depends on scripts of its container, as far as can be told before it is read. */
export function goesByScripts(
  { segments, headers }: Pick<CosmosRequest, 'segments' | 'headers'>,
  body: Buffer | undefined,
): boolean {
  if (isScripts(segments[4]) || namesTriggers({ headers })) return true;
  return body !== undefined && (isQuery(headers) || isQueryPlan(headers)) && /udf/i.test(body.toString('latin1'));
}
