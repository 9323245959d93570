import type { Value } from '../values.ts';
import { formatDateTime, TICKS_PER_MS } from './datetime-text.ts';

const dateTime = (nowMs: number): Value => formatDateTime(BigInt(Math.floor(nowMs)) * TICKS_PER_MS);
const ticks = (nowMs: number): Value => Math.floor(nowMs) * 10_000;
const timestamp = (nowMs: number): Value => Math.floor(nowMs);

/**
 * The functions of the current time. It is the caller's, and the same for a whole evaluation, so the static variants,
 * which promise just that, are the same functions.
 */
export const clockFunctions: ReadonlyMap<string, (nowMs: number) => Value> = new Map([
  ['GETCURRENTDATETIME', dateTime],
  ['GETCURRENTDATETIMESTATIC', dateTime],
  ['GETCURRENTTICKS', ticks],
  ['GETCURRENTTICKSSTATIC', ticks],
  ['GETCURRENTTIMESTAMP', timestamp],
  ['GETCURRENTTIMESTAMPSTATIC', timestamp],
]);
