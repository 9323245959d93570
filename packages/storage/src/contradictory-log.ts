import { WHEN_DAMAGED } from '@epitaph/core/upcast.ts';

/**
 * A message for the case that the log's events can't be applied to read models that were made from this log alone. Making them again
 * would fail in the same way, so the log itself is damaged.
 */
export const whenContradictory = (position?: number): string =>
  `the event log is damaged: what it has${position === undefined ? '' : ` at ${position}`} does not go with what it has before that. ${WHEN_DAMAGED}`;
