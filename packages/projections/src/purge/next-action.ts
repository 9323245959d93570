/** What a pass knows when it asks what to do next. All of it is recounted from the read model after each batch. */
export interface PurgeSituation {
  readonly allowed: 'yes' | 'paused' | 'clock-held' | 'stopping';
  /** Expired items that are not recorded, among the run's candidates. */
  readonly overdue: number;
  /** Ended lives, and items of containers that are gone, whose erasure nothing known holds back. */
  readonly erasable: number;
}

export type PurgeAction =
  | { readonly do: 'record-expiries' }
  | { readonly do: 'erase' }
  | { readonly do: 'complete' }
  | { readonly do: 'wait'; readonly because: 'paused' | 'clock-held' | 'stopping' };

/**
 * The saga's rule, pure. Every reason to stop comes before any reason to go on, and what has expired is recorded
 * before anything is erased: the record of why must never be later than the loss.
 */
export function nextAction(situation: PurgeSituation): PurgeAction {
  if (situation.allowed !== 'yes') return { do: 'wait', because: situation.allowed };
  if (situation.overdue > 0) return { do: 'record-expiries' };
  if (situation.erasable > 0) return { do: 'erase' };
  return { do: 'complete' };
}
