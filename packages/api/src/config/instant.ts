import { MAX_TIME_MS } from '@epitaph/core/clock.ts';

const ISO_TIME =
  /^(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d{2}):(\d{2})))?$/;
const MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Parses an instant as people and scripts write it: `2026-11-21T10:00:00Z`, with an offset, a date alone (midnight UTC), or milliseconds
 * since the Unix epoch. Digits beyond milliseconds are cut off.
 *
 * A time of day without `Z` or an offset is refused, because it would mean different instants on different machines. A number with too few
 * digits for recent milliseconds is refused too (in March 1973 they had twelve): `2024` is meant as a year, and ten digits are seconds,
 * such as `_ts`. Read as milliseconds they would be moments of 1970, and an auditor would be shown a period in which nothing happened. 0 is
 * accepted as the beginning of time.
 *
 * @returns milliseconds since the epoch, or undefined for anything else
 */
export function parseInstant(text: string): number | undefined {
  const atMs = /^(?:0|\d{12,15})$/.test(text) ? Number(text) : parseIsoTime(text);
  return atMs === undefined || atMs < 0 || atMs > MAX_TIME_MS ? undefined : atMs;
}

function parseIsoTime(text: string): number | undefined {
  const match = ISO_TIME.exec(text);
  if (match === null) return undefined;
  const number = (group: number): number => Number(match[group] ?? 0);
  const [year, month, day] = [number(1), number(2), number(3)];
  const [hours, minutes, seconds, offsetHours, offsetMinutes] = [
    number(4),
    number(5),
    number(6),
    number(9),
    number(10),
  ];
  const days = daysIn(year, month);
  if (days === undefined || day < 1 || day > days) return undefined;
  if (hours > 23 || minutes > 59 || seconds > 59 || offsetHours > 23 || offsetMinutes > 59) return undefined;
  const milliseconds = Number((match[7] ?? '').padEnd(3, '0').slice(0, 3));
  const offset = (match[8] === '-' ? -1 : 1) * (offsetHours * 60 + offsetMinutes);
  const minutesOfDay = hours * 60 + minutes - offset;
  return ((daysBefore(year, month) + day - 1) * 1440 + minutesOfDay) * 60_000 + seconds * 1000 + milliseconds;
}

const isLeap = (year: number): boolean => year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);

function daysIn(year: number, month: number): number | undefined {
  return month === 2 && isLeap(year) ? 29 : MONTH_DAYS[month - 1];
}

/** Days from 1970-01-01 to the first day of a month. */
function daysBefore(year: number, month: number): number {
  const past = year - 1;
  const leapDays = Math.floor(past / 4) - Math.floor(past / 100) + Math.floor(past / 400) - 477;
  let days = (year - 1970) * 365 + leapDays;
  for (let earlier = 1; earlier < month; earlier += 1) days += daysIn(year, earlier)!;
  return days;
}
