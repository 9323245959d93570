import { JsonParser } from './json-parser.ts';
import { isWholeNumberName, namesOf } from './name-order.ts';
import type { Json } from './values.ts';

/** The range of 64-bit integers, signed or unsigned. */
const LEAST = -(2n ** 63n);
const GREATEST = 2n ** 64n - 1n;

/** An integer that a double can't represent has at least so many digits. */
const LONG = 16;
const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/**
 * False if `JSON.parse` certainly loses nothing of the large numbers in a JSON text. A run of LONG digits covers one of every LONG places,
 * so only these are checked. Digits inside strings are found too, which only costs time.
 */
function mayHaveLongIntegers(json: string): boolean {
  for (let place = LONG - 1; place < json.length; place += LONG) {
    if (!isDigit(json.charCodeAt(place))) continue;
    let start = place;
    while (isDigit(json.charCodeAt(start - 1))) start -= 1;
    while (isDigit(json.charCodeAt(place + 1))) place += 1;
    // Digits of a fraction, of which vectors have many, or at the begin of a string, are not those of an integer.
    const before = json[start - 1];
    if (place - start + 1 >= LONG && before !== '.' && before !== '"') return true;
  }
  return false;
}

/**
 * The value of an integer: a number if that is exact, otherwise a bigint. An integer of more than 64 bits becomes a double, as a number
 * with a fraction does.
 */
export function integerValue(digits: string | bigint): number | bigint {
  const rounded = Number(digits);
  if (Number.isSafeInteger(rounded)) return rounded;
  const exact = BigInt(digits);
  return exact >= LEAST && exact <= GREATEST ? exact : rounded;
}

const INTEGER = /^-?\d+$/;
const numberValue = (digits: string): number | bigint => (INTEGER.test(digits) ? integerValue(digits) : Number(digits));

/** Matches a name with an escape, from its last escape on. */
const ESCAPED_NAME = /\\.[^"\\]*"\s*:/;

const LARGE_NUMBER = 1;
const WHOLE_NUMBER_NAME = 2;

/**
 * The properties of a value because of which JSON.parse or JSON.stringify may lose something: numbers that a double can't count exactly,
 * including bigints; and names that are whole numbers, which JavaScript puts first. Inspecting the value takes a tenth of the time of
 * searching its text, which takes as long as parsing.
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

/** Whether a value has, or may have, numbers that `JSON.parse` would change. */
export const hasLargeNumbers = (value: unknown): boolean => (traitsOf(value) & LARGE_NUMBER) !== 0;

/** Whether `JSON.parse` may have lost something when it made the value. */
function isLossy(json: string, value: unknown): boolean {
  const traits = traitsOf(value);
  return (
    (traits & WHOLE_NUMBER_NAME) !== 0 ||
    ((traits & LARGE_NUMBER) !== 0 && mayHaveLongIntegers(json)) ||
    (json.includes('\\') && ESCAPED_NAME.test(json))
  );
}

/**
 * Parses JSON without loss of 64-bit integers, of names and of their order. An integer that a double can't represent becomes a bigint.
 * `jsonText` writes names in the same order.
 *
 * @throws SyntaxError if the text is not valid JSON
 */
export function parseJson(json: string): Json {
  const value = JSON.parse(json) as Json;
  return isLossy(json, value) ? (new JsonParser(json, numberValue).value() as Json) : value;
}

const { rawJSON } = JSON as unknown as { readonly rawJSON: (text: string) => unknown };

/** Whether a value is a double that, as text, would be parsed as a 64-bit integer. */
const isLongDouble = (value: unknown): value is number =>
  Number.isInteger(value) &&
  !Number.isSafeInteger(value) &&
  (value as number) >= -(2 ** 63) &&
  (value as number) < 2 ** 64;

const digitsOf = (value: unknown): unknown =>
  typeof value === 'bigint' || isLongDouble(value) ? rawJSON(String(integerValue(BigInt(value)))) : value;

const asDigits = (_: string, value: unknown): unknown => digitsOf(value);

/**
 * The least length of a value's JSON; NaN if it has a number that can be shorter than `JSON.stringify` writes it, such as 1000 or 0.001.
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
  // Each entry counts a comma or the closing bracket.
  return Math.max(length, 2);
}

/**
 * Writes a value as JSON. Bigints are written as numbers. A large double is written so that `parseJson` reads the same value again, as
 * the rounded digits of `JSON.stringify` would be those of another integer. Names are in the order in which `parseJson` found them.
 */
export function jsonText(value: unknown): string {
  const traits = traitsOf(value);
  if (traits === 0) return JSON.stringify(value);
  return (traits & WHOLE_NUMBER_NAME) === 0 ? JSON.stringify(value, asDigits) : inOrder(value);
}

/**
 * Writes a value that `parseJson` has read from a text. The text itself is returned if nothing in it could be left out, such as white space
 * or duplicate names. Its length shows that, in less time than writing it again.
 */
export const jsonTextAgain = (value: unknown, text: string): string =>
  leastLength(value) === text.length ? text : jsonText(value);

/** Writes a value as JSON, with names in their remembered order. */
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
