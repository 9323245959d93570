import type { ItemTimes } from '@epitaph/core/ttl/watermarks.ts';

/** The `due` of an item whose own ttl is -1, "never": later than all times. */
export const NEVER_DUE = Number.MAX_SAFE_INTEGER;
/** The latest `due` that an item with another ttl can have. */
export const LAST_DUE = NEVER_DUE - 1;

/** A condition in SQL for rows whose `due` is not the one that {@link dueOf} computes. */
export const isDueOtherwise = (differs: 'IS NOT' | 'IS DISTINCT FROM'): string =>
  `due ${differs} (CASE WHEN ttl IS NULL THEN NULL WHEN ttl = -1 THEN ${NEVER_DUE} ELSE ts + ttl END)`;

/** The time at which an item's own ttl ends, in seconds, as read models store it; null for an item without a ttl. */
export const dueOf = ({ ts, ttl }: ItemTimes): number | null =>
  ttl === null ? null : ttl === -1 ? NEVER_DUE : ts + ttl;
