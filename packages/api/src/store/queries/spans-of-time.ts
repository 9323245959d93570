import { secondBounds } from '@epitaph/core/ttl/watermarks.ts';
import type { OrderedStart, Pushdown } from '@epitaph/query';
import { clearConditionsOf } from './clear-filters.ts';
import type { Run } from './query-run.ts';

/**
 * How many times more items a span has than the span before. Work on spans that were too small is a fraction of the
 * rest.
 */
const WIDER = 16;
/** The most items for which a span is looked up. */
const MOST_ITEMS = 100_000;

type Span = Pushdown['ts'];

/**
 * Spans of `_ts`, in seconds, for a page in the order of `_ts`. Each begins where the page begins, and all items
 * outside the span come after those in it. The spans grow, and the last one has all items.
 *
 * @param rows the number of rows that the page needs
 */
export async function* spansOf(run: Run, start: OrderedStart | undefined, rows: number): AsyncGenerator<Span, Span> {
  const { plan, pushdown, moment } = run;
  const { number } = moment.within;
  const beginning = start?.keys[0];
  if (plan.byTs === undefined || start?.near !== undefined) return pushdown.ts;
  if (start !== undefined && typeof beginning !== 'number') return pushdown.ts;
  const isDescending = plan.byTs === 'descending';
  const bounds = [pushdown.ts, beginning === undefined ? undefined : fromPlace(beginning as number, isDescending)];
  const min = Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, ...bounds.flatMap((bound) => bound?.min ?? [])));
  const max = Math.min(Number.MAX_SAFE_INTEGER, ...bounds.flatMap((bound) => bound?.max ?? []));
  if (isOfContainer(run)) {
    const [visibleAfter] = secondBounds(moment.marks);
    const place = {
      after: Math.max(visibleAfter, min - 1),
      upTo: max,
      from: isDescending ? 'newest' : 'oldest',
    } as const;
    // A filter may exclude any item of the span, and so may the range.
    const isEach = pushdown.complete && run.scope.range === undefined;
    for (let items = isEach ? rows : rows * WIDER; items <= MOST_ITEMS; items *= WIDER) {
      const ts = await moment.items.readModel.tsAt(number, { ...place, behind: items - 1 });
      if (ts === undefined) break;
      yield isDescending ? { min: ts, max } : { min, max: ts };
    }
  }
  return bounds.every((bound) => bound === undefined) ? undefined : { min, max };
}

const fromPlace = (ts: number, isDescending: boolean): Span =>
  isDescending ? { max: Math.floor(ts) } : { min: Math.ceil(ts) };

/** Whether the run examines items of the whole container, selected by nothing but their times. */
function isOfContainer({ scope, keys, pushdown, moment }: Run): boolean {
  const { definition } = moment.within.state;
  const isNarrow = scope.partitionKey !== undefined || scope.prefix !== undefined || keys !== undefined;
  return !isNarrow && pushdown.ids === undefined && clearConditionsOf(pushdown, definition) === undefined;
}
