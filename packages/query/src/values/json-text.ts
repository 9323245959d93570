import { JsonParser } from './json-parser.ts';
import { isWholeNumberName, namesOf } from './name-order.ts';
import type { Json } from './values.ts';

/** Of integers of 64 bits, with a sign or without. */
const LEAST = -(2n ** 63n);
const GREATEST = 2n ** 64n - 1n;

/** Digits that an integer has at least which no double holds. */
const LONG = 16;
const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/**
 * False for JSON with large numbers of which `JSON.parse` loses nothing. So many digits in a row stand on one of each so
 * many places, so no others are looked at. Digits within a string are found, too, and cost time alone.
 */
function mayHaveLongIntegers(json: string): boolean {
  for (let place = LONG - 1; place < json.length; place += LONG) {
    if (!isDigit(json.charCodeAt(place))) continue;
    let start = place;
    while (isDigit(json.charCodeAt(start - 1))) start -= 1;
    while (isDigit(json.charCodeAt(place + 1))) place += 1;
    // Those of a fraction, which vectors are full of, and of a string that begins with them are not an integer's.
    const before = json[start - 1];
    if (place - start + 1 >= LONG && before !== '.' && before !== '"') return true;
  }
  return false;
}

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

const INTEGER = /^-?\d+$/;
const numberValue = (digits: string): number | bigint => (INTEGER.test(digits) ? integerValue(digits) : Number(digits));

/** From the last escape of a name on. */
const ESCAPED_NAME = /\\.[^"\\]*"\s*:/;

const LARGE_NUMBER = 1;
const WHOLE_NUMBER_NAME = 2;

/**
 * What a value has of which JSON may be read or written with a loss: numbers beyond what doubles count to, bigints
 * included, and names that are whole numbers, which JavaScript puts first. To look into the value takes a tenth of the time
 * that it takes to search its text for them, which would be as much again as to parse it.
 */
function traitsOf(value: unknown): number {
  let found = 0;
  const inside: object[] = [];
  const look = (part: unknown): void => {
    if (typeof part === 'object') {
      if (part !== null) inside.push(part);
    } else if (typeof part === 'number' ? Math.abs(part) > Number.MAX_SAFE_INTEGER : typeof part === 'bigint') {
      found |= LARGE_NUMBER;
    }
  };
  look(value);
  for (let part = inside.pop(); part !== undefined; part = inside.pop()) {
    if (Array.isArray(part)) {
      for (const element of part as readonly unknown[]) look(element);
      continue;
    }
    let isFirst = true;
    for (const name in part) {
      if (isFirst && isDigit(name.charCodeAt(0)) && isWholeNumberName(name)) found |= WHOLE_NUMBER_NAME;
      isFirst = false;
      look((part as Readonly<Record<string, unknown>>)[name]);
    }
  }
  return found;
}

/** Whether it has numbers that are not what `JSON.parse` would make of them, or may have. */
export const hasLargeNumbers = (value: unknown): boolean => (traitsOf(value) & LARGE_NUMBER) !== 0;

/** Whether `JSON.parse` may have lost something when it read the value. */
function isLossy(json: string, value: unknown): boolean {
  const traits = traitsOf(value);
  return (
    (traits & WHOLE_NUMBER_NAME) !== 0 ||
    ((traits & LARGE_NUMBER) !== 0 && mayHaveLongIntegers(json)) ||
    (json.includes('\\') && ESCAPED_NAME.test(json))
  );
}

/**
 * Parses JSON without loss to integers of 64 bits, of which those that no double holds are bigints, to names, and to their
 * order, which `jsonText` writes them in.
 *
 * @throws SyntaxError for what is not valid
 */
export function parseJson(json: string): Json {
  const value = JSON.parse(json) as Json;
  return isLossy(json, value) ? (new JsonParser(json, numberValue).value() as Json) : value;
}

const { rawJSON } = JSON as unknown as { readonly rawJSON: (text: string) => unknown };

/** Whether it is a double that, as text, would be taken for an integer of 64 bits. */
const isLongDouble = (value: unknown): value is number =>
  Number.isInteger(value) &&
  !Number.isSafeInteger(value) &&
  (value as number) >= -(2 ** 63) &&
  (value as number) < 2 ** 64;

const digitsOf = (value: unknown): unknown =>
  typeof value === 'bigint' || isLongDouble(value) ? rawJSON(String(integerValue(BigInt(value)))) : value;

const asDigits = (_: string, value: unknown): unknown => digitsOf(value);

/**
 * How long JSON of a value is at least; NaN where a number may be written in fewer characters than `JSON.stringify` takes for
 * it, as 1000 and 0.001 may.
 */
function leastLength(value: unknown): number {
  if (typeof value === 'string') return value.length + 2;
  if (typeof value === 'number') {
    const isShort = Number.isSafeInteger(value) ? value % 1000 !== 0 || value === 0 : Math.abs(value) >= 0.01;
    return isShort && Math.abs(value) <= Number.MAX_SAFE_INTEGER ? `${value}`.length : Number.NaN;
  }
  if (typeof value !== 'object') return value === true ? 4 : value === false ? 5 : Number.NaN;
  if (value === null) return 4;
  let length = 1;
  if (Array.isArray(value)) {
    for (const element of value as readonly unknown[]) length += leastLength(element) + 1;
  } else {
    for (const name in value) {
      length += name.length + 4 + leastLength((value as Readonly<Record<string, unknown>>)[name]);
    }
  }
  // A comma after all but the last, and the other bracket.
  return Math.max(length, 2);
}

/**
 * JSON of a value that may hold bigints, which are numbers like others there. Doubles are the numbers that they are when it
 * is read with `parseJson`: `JSON.stringify` rounds a large one to digits that a double has, but an integer has others.
 * Names are in the order that `parseJson` found them in.
 */
export function jsonText(value: unknown): string {
  const traits = traitsOf(value);
  if (traits === 0) return JSON.stringify(value);
  return (traits & WHOLE_NUMBER_NAME) === 0 ? JSON.stringify(value, asDigits) : inOrder(value);
}

/**
 * The same of a value that `parseJson` has read from a text, which is given back if nothing in it could be left out: no space
 * between, no name that comes twice. Its length tells, in less time than it takes to write it again.
 */
export const jsonTextAgain = (value: unknown, text: string): string =>
  leastLength(value) === text.length ? text : jsonText(value);

/** The same text, but for the order of names. */
function inOrder(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value, asDigits) ?? 'null';
  if (Array.isArray(value)) return `[${value.map(inOrder).join(',')}]`;
  const members: string[] = [];
  for (const name of namesOf(value)) {
    const member = (value as Readonly<Record<string, unknown>>)[name];
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${inOrder(member)}`);
  }
  return `{${members.join(',')}}`;
}
