const MONTHS = 'janfebmaraprmayjunjulaugsepoctnovdec';
const IMF_FIXDATE = /^[a-z]{3}, (\d{1,2}) ([a-z]{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) (?:gmt|utc)$/i;

/**
 * Reads `Tue, 24 Nov 2026 10:00:00 GMT`, the only form of a date that HTTP clients may send today (RFC 9110, 5.6.7),
 * and the variants of some clients' runtimes: days of one digit, and `UTC` (`time.RFC1123` of the Go client's change
 * feed). The day of the week is not checked.
 *
 * @returns milliseconds since the Unix epoch, or undefined for anything else
 */
export function parseHttpDate(text: string): number | undefined {
  const match = IMF_FIXDATE.exec(text);
  if (match === null) return undefined;
  const at = MONTHS.indexOf(match[2]!.toLowerCase());
  if (at < 0 || at % 3 !== 0) return undefined;
  const [day, year, hours, minutes, seconds] = [match[1], match[3], match[4], match[5], match[6]].map(Number) as [
    number,
    number,
    number,
    number,
    number,
  ];
  if (day < 1 || day > 31 || hours > 23 || minutes > 59 || seconds > 60) return undefined;
  return (((daysFromEpoch(year, at / 3 + 1, day) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000;
}

/**
 * Days from 1970-01-01 in the proleptic Gregorian calendar. Years begin in March here, so that the leap day is the
 * last.
 */
function daysFromEpoch(year: number, month: number, day: number): number {
  const marchYear = month > 2 ? year : year - 1;
  const era = Math.floor(marchYear / 400);
  const yearOfEra = marchYear - era * 400;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}
