import { MAX_TIME_MS } from '@epitaph/core/clock.ts';

const ISO_TIME = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

/**
 * Reads an instant as people and scripts write it: `2026-11-21T10:00:00Z`, with an offset, a date alone (midnight
 * UTC), or milliseconds since the Unix epoch.
 *
 * A time of day without `Z` or an offset is refused: it would mean another instant on another machine.
 *
 * @returns milliseconds since the epoch, or undefined for anything else
 */
export function parseInstant(text: string): number | undefined {
  if (/^\d{1,15}$/.test(text)) {
    const atMs = Number(text);
    return atMs <= MAX_TIME_MS ? atMs : undefined;
  }
  if (!ISO_TIME.test(text) || !isCalendarDay(text)) return undefined;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) || atMs < 0 || atMs > MAX_TIME_MS ? undefined : atMs;
}

/** The engine would read 30 February as 2 March. */
function isCalendarDay(text: string): boolean {
  const day = text.slice(0, 10);
  const atMs = Date.parse(day);
  return !Number.isNaN(atMs) && new Date(atMs).toISOString().startsWith(day);
}
