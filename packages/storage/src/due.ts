import type { ItemTimes, Watermarks } from '@epitaph/core/ttl/watermarks.ts';

/** Beyond all times: the `due` of an item whose own ttl of -1 says "never". */
export const NEVER_DUE = Number.MAX_SAFE_INTEGER;
/** The latest time that any item but those of ttl -1 can be due. */
export const LAST_DUE = NEVER_DUE - 1;

/** When an item's own ttl runs out, in seconds, as read models keep it; null for one without. */
export const dueOf = ({ ts, ttl }: ItemTimes): number | null =>
  ttl === null ? null : ttl === -1 ? NEVER_DUE : ts + ttl;

/**
 * When the longest overdue of some items expired, in milliseconds; null for none.
 *
 * @param oldestTs of those without a ttl of their own, in seconds
 * @param oldestDue of those with one
 */
export function oldestOverdueMs(
  oldestTs: number | null,
  oldestDue: number | null,
  { itemMs, defaultMs }: Watermarks,
): number | null {
  const oldest: number[] = [];
  if (oldestDue !== null) oldest.push(oldestDue * 1000);
  // By how much the default's items are overdue depends on the policy; the watermark is its measure.
  if (oldestTs !== null) oldest.push(oldestTs * 1000 + (itemMs - defaultMs));
  return oldest.length === 0 ? null : Math.min(...oldest);
}
