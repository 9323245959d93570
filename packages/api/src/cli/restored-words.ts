/** Printed at the end of a restore, unless the purge was allowed to go on. */
export const PURGE_PAUSED =
  'The purge is paused. Set the lost holds, floors and policies again, then resume it: epitaph purge resume.';

/** Printed at the end of a restore that has lost the secrets of containers. */
export const namesAreLost = (containers: number): string =>
  `Containers whose secret was lost with the keys: ${containers}. Items that were written to them after the copy can't be found by id any more.`;
