/** Said at the end of a restore that was to pause the purge. */
export const PURGE_PAUSED =
  'The purge is paused: set holds and policies again that were lost, and then let it go on (epitaph purge resume).';
