import type { Value } from '../values.ts';
import { addToDateTime } from './datetime.ts';
import { formatDateTime, TICKS_PER_MS } from './datetime-text.ts';

/** A function of the current time, in milliseconds since the epoch, and of its arguments. */
export interface ClockFunction {
  readonly argumentCount: number;
  readonly call: (nowMs: number, ...args: Value[]) => Value;
}

const dateTime = (nowMs: number): Value => formatDateTime(BigInt(Math.floor(nowMs)) * TICKS_PER_MS);
const ticks = (nowMs: number): Value => Math.floor(nowMs) * 10_000;
const timestamp = (nowMs: number): Value => Math.floor(nowMs);
const ago = (nowMs: number, unit: Value, count: Value): Value =>
  typeof count === 'number' ? addToDateTime(unit, -count, dateTime(nowMs)) : undefined;

/**
 * The functions of the current time. It is the caller's, and the same for a whole evaluation, so the static variants,
 * which promise just that, are the same functions.
 */
export const clockFunctions: ReadonlyMap<string, ClockFunction> = new Map([
  ['AGO', { argumentCount: 2, call: ago }],
  ['GETCURRENTDATETIME', { argumentCount: 0, call: dateTime }],
  ['GETCURRENTDATETIMESTATIC', { argumentCount: 0, call: dateTime }],
  ['GETCURRENTTICKS', { argumentCount: 0, call: ticks }],
  ['GETCURRENTTICKSSTATIC', { argumentCount: 0, call: ticks }],
  ['GETCURRENTTIMESTAMP', { argumentCount: 0, call: timestamp }],
  ['GETCURRENTTIMESTAMPSTATIC', { argumentCount: 0, call: timestamp }],
  ['NOW', { argumentCount: 0, call: dateTime }],
]);
