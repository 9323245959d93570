import type { Value } from '../values/values.ts';
import { formatDateTime, TICKS_PER_MS } from './datetime-text.ts';
import { addToDateTime } from './datetime.ts';

/** A function of the current time, in milliseconds since the epoch, and of its arguments. */
export interface ClockFunction {
  readonly minArguments: number;
  readonly maxArguments: number;
  readonly call: (nowMs: number, ...args: Value[]) => Value;
}

const dateTime = (nowMs: number): Value => formatDateTime(BigInt(Math.floor(nowMs)) * TICKS_PER_MS);
const ticks = (nowMs: number): Value => Math.floor(nowMs) * 10_000;
const timestamp = (nowMs: number): Value => Math.floor(nowMs);
const now = (nowMs: number, ...args: Value[]): Value =>
  args.length === 0 ? dateTime(nowMs) : addToDateTime(args[0], args[1], dateTime(nowMs));
const ago = (nowMs: number, unit: Value, count: Value): Value =>
  typeof count === 'number' ? addToDateTime(unit, -count, dateTime(nowMs)) : undefined;

/**
 * The functions of the current time. The caller gives the time, which is the same for a whole evaluation. The static variants promise
 * just that, so they are the same functions.
 */
export const clockFunctions: ReadonlyMap<string, ClockFunction> = new Map([
  ['AGO', { minArguments: 2, maxArguments: 2, call: ago }],
  ['GETCURRENTDATETIME', { minArguments: 0, maxArguments: 0, call: dateTime }],
  ['GETCURRENTDATETIMESTATIC', { minArguments: 0, maxArguments: 0, call: dateTime }],
  ['GETCURRENTTICKS', { minArguments: 0, maxArguments: 0, call: ticks }],
  ['GETCURRENTTICKSSTATIC', { minArguments: 0, maxArguments: 0, call: ticks }],
  ['GETCURRENTTIMESTAMP', { minArguments: 0, maxArguments: 0, call: timestamp }],
  ['GETCURRENTTIMESTAMPSTATIC', { minArguments: 0, maxArguments: 0, call: timestamp }],
  ['NOW', { minArguments: 0, maxArguments: 2, call: now }],
]);
