/** What a pass knows of a container when it asks what to do next. Counted anew from the read model each time. */
export interface PurgeSituation {
  readonly allowed: 'yes' | 'paused' | 'clock-held' | 'stopping';
  /** Expired items among the run's candidates whose expiry is not recorded. */
  readonly overdue: number;
  /** Ended lives, and items of deleted containers, whose erasure nothing is known to prevent. */
  readonly erasable: number;
}

/**
 * `work`: record and erase what there is, at the same time, because the ends of what is erased were recorded before.
 * `complete`: nothing is left to do. `wait`: nothing may be done now.
 */
export type PurgeAction = 'work' | 'complete' | 'wait';

/**
 * The rule of the process manager, as a pure function. Every reason to stop comes before any reason to go on. Only a
 * life whose end is recorded is erasable, so that the reason is always recorded before the content is lost.
 */
export function nextAction({ allowed, overdue, erasable }: PurgeSituation): PurgeAction {
  if (allowed !== 'yes') return 'wait';
  return overdue === 0 && erasable === 0 ? 'complete' : 'work';
}
