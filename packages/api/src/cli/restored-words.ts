/** Said at the end of a restore, unless it was told that the purge may go on. */
export const PURGE_PAUSED =
  'The purge is paused. Set the holds, floors and policies again that were lost; then let it go on: epitaph purge resume.';

/** Said at the end of one that has lost secrets of containers. */
export const namesAreLost = (containers: number): string =>
  `Containers whose names were lost with the keys: ${containers}. What was written to them since can no longer be looked up by its id.`;
