import { isQuery, isQueryPlan, type CosmosRequest } from '../request.ts';
import { isScripts } from './scripts.ts';
import { namesTriggers } from './triggers.ts';

/** Whether a request may depend on the scripts of its container, as far as can be told before its body is parsed. */
export function goesByScripts(
  { segments, headers }: Pick<CosmosRequest, 'segments' | 'headers'>,
  body: Buffer | undefined,
): boolean {
  if (isScripts(segments[4]) || namesTriggers({ headers })) return true;
  return body !== undefined && (isQuery(headers) || isQueryPlan(headers)) && /udf/i.test(body.toString('latin1'));
}
