/** Printed at the end of a restore, unless the purge was allowed to go on. */
export const PURGE_PAUSED =
  'The purge is paused. Set the lost holds, floors and policies again, then resume it: epitaph purge resume.';

/** Printed at the end of a restore that has lost the secrets of containers. */
export const namesAreLost = (containers: number): string =>
  `Containers that lost their secret with the keys: ${containers}. Items that were written to them since can no longer be looked up by id.`;
