/** Said at the end of a restore, unless it was told that the purge may go on. */
export const PURGE_PAUSED =
  'The purge is paused: set holds, floors and policies again that were lost, and then let it go on (epitaph purge resume).';
