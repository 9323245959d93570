import type { Json } from './values.ts';

const LEAST = -(2n ** 63n);
const GREATEST = 2n ** 63n - 1n;

/** Finds integers that a double may not hold; what looks like one in a string is found, too, and costs time alone. */
const MANY_DIGITS = /[[:,\s-]\d{16,19}[\s,\]}]/;

/** False for JSON of which `JSON.parse` loses nothing. */
export const mayHaveLongIntegers = (json: string): boolean => MANY_DIGITS.test(json);

/**
 * The value of an integer: a number where that tells it from its neighbours, otherwise a bigint. Beyond 64 bits it is a
 * double, as every number with a fraction is.
 */
export function integerValue(digits: string | bigint): number | bigint {
  const rounded = Number(digits);
  if (Number.isSafeInteger(rounded)) return rounded;
  const exact = BigInt(digits);
  return exact >= LEAST && exact <= GREATEST ? exact : rounded;
}

type Reviver = (name: string, value: unknown, context: { readonly source?: string }) => unknown;

const parseWith = JSON.parse as (json: string, reviver: Reviver) => unknown;

const exactly: Reviver = (_, value, { source }) =>
  typeof value === 'number' && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source)
    ? integerValue(source)
    : value;

/** Parses JSON without loss to integers of 64 bits: those that no double holds are bigints. */
export const parseJson = (json: string): Json =>
  (mayHaveLongIntegers(json) ? parseWith(json, exactly) : JSON.parse(json)) as Json;

const { rawJSON } = JSON as unknown as { readonly rawJSON: (text: string) => unknown };

const asDigits = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? rawJSON(String(value)) : value);

/** The same for what is only made text again, by whatever makes it: these integers are written as they were. */
export const parseJsonToShow = (json: string): unknown =>
  mayHaveLongIntegers(json)
    ? parseWith(json, (name, value, context) => asDigits(name, exactly(name, value, context)))
    : JSON.parse(json);

/** JSON of a value that may hold bigints, which are numbers like others there. */
export function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    // Thrown for a bigint. To look for one first would take longer than the text does.
    if (!(error instanceof TypeError)) throw error;
    return JSON.stringify(value, asDigits);
  }
}
