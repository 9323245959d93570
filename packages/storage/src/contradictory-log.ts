import { WHEN_DAMAGED } from '@epitaph/core/upcast.ts';

/**
 * What to do about read models that don't take what the log has, though they were made from nothing else: to make them
 * again would end in the same way.
 */
export const whenContradictory = (position?: number): string =>
  `the event log is damaged: what it has${position === undefined ? '' : ` at ${position}`} does not go with what it has before that. ${WHEN_DAMAGED}`;
