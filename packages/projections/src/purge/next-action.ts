/** What a pass knows when it asks what to do next. All of it is recounted from the read model after each batch. */
export interface PurgeSituation {
  readonly allowed: 'yes' | 'paused' | 'clock-held' | 'stopping';
  /** Expired items that are not recorded, among the run's candidates. */
  readonly overdue: number;
  /** Ended lives, and items of containers that are gone, whose erasure nothing known holds back. */
  readonly erasable: number;
}

export type PurgeAction =
  /** One batch of each that is set, side by side: what is erased was recorded in an earlier batch. */
  | { readonly do: 'work'; readonly record: boolean; readonly erase: boolean }
  | { readonly do: 'complete' }
  | { readonly do: 'wait'; readonly because: 'paused' | 'clock-held' | 'stopping' };

/**
 * The saga's rule, pure. Every reason to stop comes before any reason to go on. Only a life whose end is on record
 * is erasable, so that the record of why is never later than the loss.
 */
export function nextAction({ allowed, overdue, erasable }: PurgeSituation): PurgeAction {
  if (allowed !== 'yes') return { do: 'wait', because: allowed };
  if (overdue === 0 && erasable === 0) return { do: 'complete' };
  return { do: 'work', record: overdue > 0, erase: erasable > 0 };
}
