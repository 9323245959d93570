import { boundedText } from './bounds.ts';
import { partsOfTicks, TICKS_PER_DAY, floorDivide } from './datetime-text.ts';
import type { DateTimeParts } from './datetime-text.ts';

/** `\x` is x; a run of one letter is a specifier if it is known; everything else stands for itself. */
const TOKEN = /\\([^])|y{1,4}|M{1,4}|d{1,4}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|f{1,7}|F{1,7}|t{1,2}/g;

const MONTHS = 'January February March April May June July August September October November December'.split(' ');
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');

/**
 * Formats a moment by a pattern of .NET's custom date and time formats, in English and in UTC.
 *
 * @see https://learn.microsoft.com/azure/cosmos-db/nosql/query/datetimeformat
 */
export function formatByPattern(ticks: bigint, pattern: string): string {
  const parts = partsOfTicks(ticks);
  // 1970 began on a Thursday.
  const weekday = Number((((floorDivide(ticks, TICKS_PER_DAY) + 4n) % 7n) + 7n) % 7n);
  const text = pattern.replace(TOKEN, (specifier: string, escaped: string | undefined) =>
    escaped === undefined ? specified(specifier, parts, weekday) : escaped,
  );
  return boundedText(text);
}

function specified(specifier: string, parts: DateTimeParts, weekday: number): string {
  const { length } = specifier;
  const padded = (value: number): string => String(value).padStart(length, '0');
  const named = (names: readonly string[], index: number): string =>
    length === 3 ? (names[index] as string).slice(0, 3) : (names[index] as string);
  switch (specifier[0]) {
    case 'y':
      return padded(length > 2 ? parts.year : parts.year % 100);
    case 'M':
      return length > 2 ? named(MONTHS, parts.month - 1) : padded(parts.month);
    case 'd':
      return length > 2 ? named(DAYS, weekday) : padded(parts.day);
    case 'H':
      return padded(parts.hour);
    case 'h':
      return padded(parts.hour % 12 === 0 ? 12 : parts.hour % 12);
    case 'm':
      return padded(parts.minute);
    case 's':
      return padded(parts.second);
    case 't':
      return (parts.hour < 12 ? 'AM' : 'PM').slice(0, length);
    case 'f':
      return fraction(parts, length);
    default:
      return fraction(parts, length).replace(/0+$/, '');
  }
}

const fraction = ({ ticks }: DateTimeParts, digits: number): string => String(ticks).padStart(7, '0').slice(0, digits);
