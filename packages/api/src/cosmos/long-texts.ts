import { systemClocks } from '@epitaph/core/clock.ts';
import { SlowLane } from '../store/slow-lane.ts';
import type { QueryRequest } from '../store/api/queries-api.ts';
import { isQuery, isQueryPlan, type Answer, type CosmosRequest } from './request.ts';

/** From this many bytes on, reading and planning a query takes more than some milliseconds. */
const LONG_TEXT = 16 * 1024;

const longTexts = new SlowLane(systemClocks.monotonicMs);

/**
 * Reads long texts of queries one at a time, and leaves as much time between them for other work.
 *
 * @param begin must read the text before it awaits anything
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
