import { WHEN_DAMAGED } from '@epitaph/core/upcast.ts';

/**
 * A message for the case that the log's events can't be applied to read models that were made from this log alone. Making them again
 * would fail in the same way, so the log itself is damaged.
 */
export const whenContradictory = (position?: number): string =>
  `the event log is damaged: ${position === undefined ? 'an event' : `the event at ${position}`} contradicts earlier ones. ${WHEN_DAMAGED}`;
