import { systemClocks } from '@epitaph/core/clock.ts';
import { SlowLane } from '../store/slow-lane.ts';
import type { QueryRequest } from '../store/api/queries-api.ts';
import { isQuery, isQueryPlan, type Answer, type CosmosRequest } from './request.ts';

/** Bytes of a query from which on it takes more than some milliseconds to read and plan. */
const LONG_TEXT = 16 * 1024;

const longTexts = new SlowLane(systemClocks.monotonicMs);

/**
 * Long texts of queries are read one at a time, with as much time for others in between.
 *
 * @param begin reads the text before anything that it waits for
 */
export function afterReading(
  request: CosmosRequest,
  begin: () => Answer | Promise<Answer>,
  standAside?: QueryRequest['standAside'],
): Answer | Promise<Answer> {
  const { headers, body } = request;
  const isLong = (body?.length ?? 0) > LONG_TEXT && (isQuery(headers) || isQueryPlan(headers));
  return isLong ? inLane(request, begin, standAside) : begin();
}

async function inLane(
  request: CosmosRequest,
  begin: () => Answer | Promise<Answer>,
  standAside: QueryRequest['standAside'] = (wait) => wait(),
): Promise<Answer> {
  await standAside(() => longTexts.begin(request.signal()));
  return longTexts.work(begin);
}
