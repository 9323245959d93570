/**
 * Dates and times as Cosmos DB writes them, `2024-02-29T12:34:56.1234567Z`, always UTC. In memory they are ticks of
 * 100 ns since 1970, in a bigint, since a number can't hold those of today. The calendar is computed here and not by
 * Date, which has milliseconds only.
 */
const FORMAT = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,7}))?)?)?Z?$/;

export const TICKS_PER_MS = 10_000n;
export const TICKS_PER_SECOND = 10_000_000n;
export const TICKS_PER_DAY = 864_000_000_000n;

export interface DateTimeParts {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
  /** The fraction of the second, in ticks of 100 ns. */
  readonly ticks: number;
}

/** Days from 1970-01-01 to a date of the proleptic Gregorian calendar. */
function daysSinceEpoch(year: number, month: number, day: number): number {
  // In years that begin in March, the leap day is the last day. An era of 400 years has 146,097 days.
  const shiftedYear = month <= 2 ? year - 1 : year;
  const era = Math.floor(shiftedYear / 400);
  const yearOfEra = shiftedYear - era * 400;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}

function dateOfDays(days: number): { year: number; month: number; day: number } {
  const shifted = days + 719_468;
  const era = Math.floor(shifted / 146_097);
  const dayOfEra = shifted - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1_460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const shiftedMonth = Math.floor((5 * dayOfYear + 2) / 153);
  const day = dayOfYear - Math.floor((153 * shiftedMonth + 2) / 5) + 1;
  const month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9;
  return { year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, day };
}

export function daysInMonth(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return [4, 6, 9, 11].includes(month) ? 30 : 31;
}

/** The ticks of a date and time; undefined if there is no such moment in the years 1 to 9999. */
export function ticksOfParts(parts: DateTimeParts): bigint | undefined {
  const { year, month, day, hour, minute, second, ticks } = parts;
  const valid =
    year >= 1 &&
    year <= 9999 &&
    month >= 1 &&
    month <= 12 &&
    day >= 1 &&
    day <= daysInMonth(year, month) &&
    hour >= 0 &&
    hour < 24 &&
    minute >= 0 &&
    minute < 60 &&
    second >= 0 &&
    second < 60 &&
    ticks >= 0 &&
    ticks < 10_000_000;
  if (!valid) return undefined;
  const seconds = hour * 3_600 + minute * 60 + second;
  return BigInt(daysSinceEpoch(year, month, day)) * TICKS_PER_DAY + BigInt(seconds) * TICKS_PER_SECOND + BigInt(ticks);
}

/** The largest multiple of `size` that is not above `ticks`, divided by `size`. */
export function floorDivide(ticks: bigint, size: bigint): bigint {
  const quotient = ticks / size;
  return ticks % size < 0n ? quotient - 1n : quotient;
}

export function partsOfTicks(ticks: bigint): DateTimeParts {
  const days = floorDivide(ticks, TICKS_PER_DAY);
  const rest = Number(ticks - days * TICKS_PER_DAY);
  const seconds = Math.floor(rest / 10_000_000);
  return {
    ...dateOfDays(Number(days)),
    hour: Math.floor(seconds / 3_600),
    minute: Math.floor(seconds / 60) % 60,
    second: seconds % 60,
    ticks: rest % 10_000_000,
  };
}

const FIRST_TICKS = BigInt(daysSinceEpoch(1, 1, 1)) * TICKS_PER_DAY;
const END_TICKS = BigInt(daysSinceEpoch(10_000, 1, 1)) * TICKS_PER_DAY;

/** The text of a moment; undefined outside the years 1 to 9999. */
export function formatDateTime(ticks: bigint): string | undefined {
  if (ticks < FIRST_TICKS || ticks >= END_TICKS) return undefined;
  const parts = partsOfTicks(ticks);
  const two = (value: number): string => String(value).padStart(2, '0');
  const date = `${String(parts.year).padStart(4, '0')}-${two(parts.month)}-${two(parts.day)}`;
  const time = `${two(parts.hour)}:${two(parts.minute)}:${two(parts.second)}`;
  return `${date}T${time}.${String(parts.ticks).padStart(7, '0')}Z`;
}

/** Parses `YYYY-MM-DD[Thh:mm[:ss[.fffffff]]][Z]`, also with a space instead of `T`; undefined if it is another text or no real moment. */
export function parseDateTime(text: string): bigint | undefined {
  const match = FORMAT.exec(text);
  if (match === null) return undefined;
  return ticksOfParts({
    year: Number(match[1]),
    month: Number(match[2]),
    day: Number(match[3]),
    hour: Number(match[4] ?? 0),
    minute: Number(match[5] ?? 0),
    second: Number(match[6] ?? 0),
    ticks: Number((match[7] ?? '').padEnd(7, '0')),
  });
}
