import type { ItemTimes } from '@epitaph/core/ttl/watermarks.ts';

/** Beyond all times: the `due` of an item whose own ttl of -1 says "never". */
export const NEVER_DUE = Number.MAX_SAFE_INTEGER;
/** The latest time that any item but those of ttl -1 can be due. */
export const LAST_DUE = NEVER_DUE - 1;

/** True, in SQL, of a row whose `due` is not what {@link dueOf} makes of the rest of it. */
export const isDueOtherwise = (differs: 'IS NOT' | 'IS DISTINCT FROM'): string =>
  `due ${differs} (CASE WHEN ttl IS NULL THEN NULL WHEN ttl = -1 THEN ${NEVER_DUE} ELSE ts + ttl END)`;

/** When an item's own ttl runs out, in seconds, as read models keep it; null for one without. */
export const dueOf = ({ ts, ttl }: ItemTimes): number | null =>
  ttl === null ? null : ttl === -1 ? NEVER_DUE : ts + ttl;
