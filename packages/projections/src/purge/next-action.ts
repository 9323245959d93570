/** What a pass knows when it asks what to do next in a container. All of it is recounted from the read model each time. */
export interface PurgeSituation {
  readonly allowed: 'yes' | 'paused' | 'clock-held' | 'stopping';
  /** Expired items that are not recorded, among the run's candidates. */
  readonly overdue: number;
  /** Ended lives, and items of containers that are gone, whose erasure nothing known holds back. */
  readonly erasable: number;
}

/**
 * To record and to erase what there is, side by side: what is erased was recorded before. Or nothing is left to do, or
 * nothing may be done now.
 */
export type PurgeAction = 'work' | 'complete' | 'wait';

/**
 * The saga's rule, pure. Every reason to stop comes before any reason to go on. Only a life whose end is on record
 * is erasable, so that the record of why is never later than the loss.
 */
export function nextAction({ allowed, overdue, erasable }: PurgeSituation): PurgeAction {
  if (allowed !== 'yes') return 'wait';
  return overdue === 0 && erasable === 0 ? 'complete' : 'work';
}
