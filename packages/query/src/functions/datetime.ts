import { integerValue } from '../values/json-text.ts';
import { exactIntegerOf } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';
import { formatByPattern } from './datetime-pattern.ts';
import {
  daysInMonth,
  floorDivide,
  formatDateTime,
  parseDateTime,
  partsOfTicks,
  TICKS_PER_DAY,
  TICKS_PER_MS,
  TICKS_PER_SECOND,
  ticksOfParts,
} from './datetime-text.ts';
import type { DateTimeParts } from './datetime-text.ts';

type Unit = 'year' | 'month' | 'day' | 'hour' | 'minute' | 'second' | 'millisecond' | 'microsecond' | 'nanosecond';

const UNIT_NAMES: ReadonlyMap<string, Unit> = new Map(
  Object.entries({
    year: ['yyyy', 'yy'],
    month: ['mm', 'm'],
    day: ['dd', 'd'],
    hour: ['hh'],
    minute: ['mi', 'n'],
    second: ['ss', 's'],
    millisecond: ['ms'],
    microsecond: ['mcs'],
    nanosecond: ['ns'],
  }).flatMap(([unit, short]) => [unit, ...short].map((name): [string, Unit] => [name, unit as Unit])),
);

/** Units of a fixed length, in ticks. A nanosecond is missing: it is a hundredth of a tick. */
const UNIT_TICKS: ReadonlyMap<Unit, bigint> = new Map<Unit, bigint>([
  ['day', TICKS_PER_DAY],
  ['hour', 3_600n * TICKS_PER_SECOND],
  ['minute', 60n * TICKS_PER_SECOND],
  ['second', TICKS_PER_SECOND],
  ['millisecond', TICKS_PER_MS],
  ['microsecond', 10n],
]);

function unitOf(value: Value): Unit | undefined {
  return typeof value === 'string' ? UNIT_NAMES.get(value.toLowerCase()) : undefined;
}

function ticksOf(value: Value): bigint | undefined {
  return typeof value === 'string' ? parseDateTime(value) : undefined;
}

function integerOf(value: Value): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;
}

/** Adds months and stays in the month: a month after January 31 is the last day of February. */
function addMonths(ticks: bigint, months: number): bigint | undefined {
  const parts = partsOfTicks(ticks);
  const total = parts.year * 12 + parts.month - 1 + months;
  const year = Math.floor(total / 12);
  const month = total - year * 12 + 1;
  if (year < 1 || year > 9999) return undefined;
  return ticksOfParts({ ...parts, year, month, day: Math.min(parts.day, daysInMonth(year, month)) });
}

/** DateTimeAdd: undefined if the unit, the count or the time is invalid, and for results beyond the years 1 to 9999. */
export function addToDateTime(unitName: Value, count: Value, dateTime: Value): Value {
  const unit = unitOf(unitName);
  const amount = integerOf(count);
  const ticks = ticksOf(dateTime);
  if (unit === undefined || amount === undefined || ticks === undefined) return undefined;
  const length = UNIT_TICKS.get(unit);
  let result: bigint | undefined;
  if (unit === 'year' || unit === 'month') {
    result = addMonths(ticks, unit === 'year' ? amount * 12 : amount);
  } else {
    // A tick is 100 ns. Smaller parts are lost, as in any DateTime with 7 digits.
    result = ticks + (length === undefined ? BigInt(amount) / 100n : BigInt(amount) * length);
  }
  return result === undefined ? undefined : formatDateTime(result);
}

/** DateTimeDiff: how many times a unit begins between two moments. This is not the length of the time between them. */
function difference(unitName: Value, start: Value, end: Value): Value {
  const unit = unitOf(unitName);
  const from = ticksOf(start);
  const to = ticksOf(end);
  if (unit === undefined || from === undefined || to === undefined) return undefined;
  if (unit === 'nanosecond') return Number((to - from) * 100n);
  const length = UNIT_TICKS.get(unit);
  if (length !== undefined) return Number(floorDivide(to, length) - floorDivide(from, length));
  const a = partsOfTicks(from);
  const b = partsOfTicks(to);
  return unit === 'year' ? b.year - a.year : (b.year - a.year) * 12 + b.month - a.month;
}

function partOf(unitName: Value, dateTime: Value): Value {
  const unit = unitOf(unitName);
  const ticks = ticksOf(dateTime);
  if (unit === undefined || ticks === undefined) return undefined;
  const parts = partsOfTicks(ticks);
  switch (unit) {
    case 'millisecond':
      return Math.floor(parts.ticks / 10_000);
    case 'microsecond':
      return Math.floor(parts.ticks / 10);
    case 'nanosecond':
      return parts.ticks * 100;
    default:
      return parts[unit];
  }
}

/** The functions DAY, MONTH and YEAR. */
const partNamed = (unit: Unit): BuiltIn => pure(1, 1, (dateTime) => partOf(unit, dateTime));

function format(dateTime: Value, pattern: Value): Value {
  const ticks = ticksOf(dateTime);
  return ticks === undefined || typeof pattern !== 'string' ? undefined : formatByPattern(ticks, pattern);
}

/** The earliest origin of bins. Windows counts time from this date. */
const FIRST_ORIGIN = parseDateTime('1601-01-01') as bigint;

/** DateTimeBin: the beginning of the bin that contains a moment. Bins are counted from the origin. */
function bin(dateTime: Value, unitName: Value, size: Value = 1, origin: Value = '1970-01-01'): Value {
  const ticks = ticksOf(dateTime);
  const unit = unitOf(unitName);
  const count = integerOf(size);
  const start = ticksOf(origin);
  if (ticks === undefined || unit === undefined || count === undefined || count <= 0 || start === undefined) {
    return undefined;
  }
  if (start < FIRST_ORIGIN) return undefined;
  if (unit === 'year' || unit === 'month') {
    const a = partsOfTicks(start);
    const b = partsOfTicks(ticks);
    const months = unit === 'year' ? count * 12 : count;
    let passed = (b.year - a.year) * 12 + b.month - a.month;
    const began = addMonths(start, passed);
    if (began !== undefined && began > ticks) passed -= 1;
    const result = addMonths(start, Math.floor(passed / months) * months);
    return result === undefined ? undefined : formatDateTime(result);
  }
  const length = UNIT_TICKS.get(unit);
  const width = length === undefined ? BigInt(count) / 100n : BigInt(count) * length;
  if (width === 0n) return formatDateTime(ticks);
  return formatDateTime(start + floorDivide(ticks - start, width) * width);
}

function fromParts(...args: Value[]): Value {
  const numbers = [0, 1, 2, 3, 4, 5, 6].map((index) => integerOf(args[index] ?? 0));
  if (args.some((value) => value === undefined) || numbers.includes(undefined)) return undefined;
  const [year, month, day, hour, minute, second, ticks] = numbers as number[];
  const result = ticksOfParts({ year, month, day, hour, minute, second, ticks } as DateTimeParts);
  return result === undefined ? undefined : formatDateTime(result);
}

function convert(compute: (ticks: bigint) => bigint): BuiltIn {
  return pure(1, 1, (dateTime) => {
    const ticks = ticksOf(dateTime);
    return ticks === undefined ? undefined : integerValue(compute(ticks));
  });
}

function fromNumber(ticksPerUnit: bigint): BuiltIn {
  return pure(1, 1, (value) => {
    const count = exactIntegerOf(value);
    return count === undefined ? undefined : formatDateTime(count * ticksPerUnit);
  });
}

export const dateTimeFunctions: BuiltIns = {
  DATETIMEADD: pure(3, 3, addToDateTime),
  DATETIMEBIN: pure(2, 4, bin),
  DATETIMEDIFF: pure(3, 3, difference),
  DATETIMEFORMAT: pure(2, 2, format),
  DATETIMEFROMPARTS: pure(3, 7, fromParts),
  DATETIMEPART: pure(2, 2, partOf),
  DATETIMETOTICKS: convert((ticks) => ticks),
  DATETIMETOTIMESTAMP: convert((ticks) => floorDivide(ticks, TICKS_PER_MS)),
  DAY: partNamed('day'),
  MONTH: partNamed('month'),
  TICKSTODATETIME: fromNumber(1n),
  TIMESTAMPTODATETIME: fromNumber(TICKS_PER_MS),
  YEAR: partNamed('year'),
};
