import { Regex } from '../regex/regex.ts';
import { jsonText, parseJson } from '../values/json-text.ts';
import { containsText, lastPlaceOf, placeOf, splitText } from '../values/text-search.ts';
import { isObject, numberOf, wholeNumberOf } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { assertComparable, assertTextLength, boundedArray, boundedText, boundedValue } from './bounds.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';

/** Cosmos DB's own limit for the result of REPLICATE. */
const MAX_REPLICATED_LENGTH = 10_000;

/**
 * A text that is the same for strings that differ only in case. JavaScript converts "Σ" at the end of a word to another letter than
 * elsewhere, so a string ending in it would not be found in a longer one.
 */
const withoutCase = (text: string): string => text.toLowerCase().replaceAll('ς', 'σ');

/** A test of one string with another. Cosmos DB's third argument makes it ignore case. */
function stringTest(test: (text: string, other: string) => boolean): BuiltIn {
  return pure(2, 3, (text, other, ignoreCase) => {
    if (typeof text !== 'string' || typeof other !== 'string') return undefined;
    if (ignoreCase === undefined || ignoreCase === false) return test(text, other);
    return ignoreCase === true ? test(withoutCase(text), withoutCase(other)) : undefined;
  });
}

/** Whether one string contains any or all of the others: CONTAINS of each, combined by OR or AND. */
function containsMany(ignoreCase: boolean, decisive: boolean): BuiltIn {
  return pure(2, Number.POSITIVE_INFINITY, (text, ...others) => {
    if (typeof text !== 'string') return undefined;
    const fold = (value: string): string => (ignoreCase ? withoutCase(value) : value);
    assertComparable(text.length, others.length);
    const folded = fold(text);
    let unknown = false;
    for (const other of others) {
      if (typeof other !== 'string') unknown = true;
      else if (containsText(folded, fold(other), others.length) === decisive) return decisive;
    }
    return unknown ? undefined : !decisive;
  });
}

function map(convert: (text: string) => Value): BuiltIn {
  return pure(1, 1, (text) => (typeof text === 'string' ? convert(text) : undefined));
}

/** LEFT and RIGHT: a string and a whole number of characters. */
function part(take: (text: string, count: number) => string): BuiltIn {
  return pure(2, 2, (text, value) => {
    const count = wholeNumberOf(value);
    return typeof text === 'string' && count !== undefined ? take(text, Math.max(0, count)) : undefined;
  });
}

/**
 * LOWER and UPPER convert each character by itself, by rules that don't depend on language or neighbours. A character that becomes several
 * in the other case, like "ß", is not changed.
 *
 * @param single matches characters that JavaScript converts by other rules, although the length stays the same
 */
function inCase(convert: (text: string) => string, single: RegExp, one = convert): BuiltIn {
  return map((text) => {
    const converted = convert(text);
    if (converted.length === text.length && !single.test(text)) return converted;
    return Array.from(text, (character) => {
      const other = one(character);
      return other.length === character.length ? other : character;
    }).join('');
  });
}

/** Converts by the rules of .NET's invariant culture, which Cosmos DB uses by its documentation. */
function upperOf(character: string): string {
  // Converted back, these would become "i" and "s".
  if (character === 'ı' || character === 'ſ') return character;
  // Greek vowels with iota subscript have upper-case characters of their own. JavaScript would write the iota as a second character.
  if (/[ᾀ-ᾇᾐ-ᾗᾠ-ᾧ]/.test(character)) return String.fromCodePoint(character.codePointAt(0)! + 8);
  if (/[ᾳῃῳ]/.test(character)) return String.fromCodePoint(character.codePointAt(0)! + 9);
  return character.toUpperCase();
}

/** TRIM, LTRIM and RTRIM. They remove spaces, or, with a second argument, every character that occurs in it. */
function trim(fromStart: boolean, fromEnd: boolean): BuiltIn {
  return pure(1, 2, (text, characters) => {
    if (typeof text !== 'string') return undefined;
    if (characters !== undefined && typeof characters !== 'string') return undefined;
    const given = new Set(characters?.split(''));
    const dropped = (character: string | undefined): boolean =>
      character !== undefined && (characters === undefined ? /\p{White_Space}/u.test(character) : given.has(character));
    let start = 0;
    let end = text.length;
    if (fromStart) while (start < end && dropped(text[start])) start += 1;
    if (fromEnd) while (end > start && dropped(text[end - 1])) end -= 1;
    return text.slice(start, end);
  });
}

/** Parses JSON of one type; undefined if the text is not JSON, or of another type. */
function parser(isWanted: (value: Value) => boolean): BuiltIn {
  return map((text) => {
    try {
      const value = parseJson(text);
      return isWanted(value) ? value : undefined;
    } catch {
      return undefined;
    }
  });
}

/** The part of a text before or after another text; undefined if that does not occur. */
function around(last: boolean, before: boolean): BuiltIn {
  return pure(2, 2, (text, other) => {
    if (typeof text !== 'string' || typeof other !== 'string') return undefined;
    const index = last ? lastPlaceOf(text, other) : placeOf(text, other);
    if (index === -1) return undefined;
    return before ? text.slice(0, index) : text.slice(index + other.length);
  });
}

function concatenate(...texts: Value[]): Value {
  let result = '';
  for (const text of texts) {
    if (typeof text !== 'string') return undefined;
    result += text;
  }
  return boundedText(result);
}

function replace(text: Value, found: Value, replacement: Value): Value {
  if (typeof text !== 'string' || typeof found !== 'string' || typeof replacement !== 'string') {
    return undefined;
  }
  if (found === '') return text;
  const parts = splitText(text, found);
  assertTextLength(text.length + (parts.length - 1) * (replacement.length - found.length));
  return parts.join(replacement);
}

function replicate(text: Value, given: Value): Value {
  const count = numberOf(given);
  if (typeof text !== 'string' || count === undefined || !Number.isFinite(count)) return undefined;
  const times = Math.trunc(count);
  return times < 0 || text.length * times > MAX_REPLICATED_LENGTH ? undefined : text.repeat(times);
}

function substring(text: Value, givenStart: Value, givenLength: Value): Value {
  const start = wholeNumberOf(givenStart);
  const length = wholeNumberOf(givenLength);
  if (typeof text !== 'string' || start === undefined || length === undefined) return undefined;
  return start < 0 ? '' : text.slice(start, start + Math.max(0, length));
}

function indexOf(text: Value, other: Value, given: Value): Value {
  if (typeof text !== 'string' || typeof other !== 'string') return undefined;
  if (given === undefined) return placeOf(text, other);
  const start = numberOf(given);
  if (start === undefined) return undefined;
  return start < 0 || start > text.length ? -1 : placeOf(text, other, Math.trunc(start));
}

/** LASTINDEXOF. The third argument is the last position that a match may include. */
function lastIndexOf(text: Value, other: Value, given: Value): Value {
  if (typeof text !== 'string' || typeof other !== 'string') return undefined;
  if (given === undefined) return lastPlaceOf(text, other);
  const end = numberOf(given);
  return end !== undefined ? lastPlaceOf(text.slice(0, Math.max(0, end + 1)), other) : undefined;
}

function toText(value: Value): Value {
  if (value === undefined || typeof value === 'string') return value;
  // Numbers are written as in answers, so that equal ones have the same text. NaN and the infinities, which JSON lacks, are named.
  const isNamed = typeof value === 'number' && !Number.isFinite(value);
  return boundedText(isNamed ? String(value) : jsonText(boundedValue(value)));
}

function join(array: Value, separator: Value): Value {
  if (!Array.isArray(array) || typeof separator !== 'string') return undefined;
  let length = 0;
  for (const item of array) {
    if (typeof item !== 'string') return undefined;
    length += item.length + separator.length;
  }
  assertTextLength(length);
  return array.join(separator);
}

/** A function of a text and a regular expression, followed by Cosmos DB's modifiers and other optional arguments. */
function withRegex(maxArguments: number, call: (regex: Regex, text: string, given: Value) => Value): BuiltIn {
  return {
    minArguments: 2,
    maxArguments,
    pure: true,
    unitsPerCharacter: 8,
    takesLong: true,
    create: () => {
      // The pattern is nearly always the same for all rows.
      let lastPattern: string | undefined;
      let lastModifiers: string | undefined;
      let regex: Regex | undefined;
      return (text, pattern, modifiers = '', given) => {
        if (typeof pattern !== 'string' || typeof modifiers !== 'string') return undefined;
        if (pattern !== lastPattern || modifiers !== lastModifiers) {
          regex = Regex.compile(pattern, modifiers);
          lastPattern = pattern;
          lastModifiers = modifiers;
        }
        return typeof text === 'string' && regex !== undefined ? call(regex, text, given) : undefined;
      };
    },
  };
}

type Extracted = ReturnType<Regex['extract']>;

/** The text of a group in the matches of a regular expression; of the whole match if no group is given. */
function extraction(answer: (found: Extracted) => Value): BuiltIn {
  return withRegex(4, (regex, text, given) => {
    const group = given === undefined ? 0 : wholeNumberOf(given);
    if (group === undefined || group < 0 || group > regex.groups) return undefined;
    return answer(regex.extract(text, group));
  });
}

function allOf(found: Extracted): Value {
  const all: string[] = [];
  for (const text of found) if (text !== undefined) boundedArray(all).push(text);
  return all;
}

export const stringFunctions: BuiltIns = {
  CONCAT: pure(2, Number.POSITIVE_INFINITY, concatenate),
  CONTAINS: stringTest((text, other) => containsText(text, other)),
  CONTAINS_ALL_CI: containsMany(true, false),
  CONTAINS_ALL_CS: containsMany(false, false),
  CONTAINS_ANY_CI: containsMany(true, true),
  CONTAINS_ANY_CS: containsMany(false, true),
  ENDSWITH: stringTest((text, other) => text.endsWith(other)),
  INDEX_OF: pure(2, 3, indexOf),
  LASTINDEXOF: pure(2, 3, lastIndexOf),
  LASTSUBSTRINGAFTER: around(true, false),
  LASTSUBSTRINGBEFORE: around(true, true),
  LEFT: part((text, count) => text.slice(0, count)),
  LENGTH: map((text) => text.length),
  // JavaScript converts Σ at the end of a word to another letter.
  LOWER: inCase((text) => text.toLowerCase(), /Σ/),
  LTRIM: trim(true, false),
  REGEXEXTRACT: extraction((found) => found.next().value),
  REGEXEXTRACTALL: extraction(allOf),
  REGEXMATCH: withRegex(3, (regex, text) => regex.matches(text)),
  REPLACE: pure(3, 3, replace),
  REPLICATE: pure(2, 2, replicate),
  REVERSE: map((text) => Array.from(text).toReversed().join('')),
  RIGHT: part((text, count) => text.slice(Math.max(0, text.length - count))),
  RTRIM: trim(false, true),
  STARTSWITH: stringTest((text, other) => text.startsWith(other)),
  STRINGEQUALS: stringTest((text, other) => text === other),
  STRINGJOIN: pure(2, 2, join),
  STRINGSPLIT: pure(2, 2, (text, separator) => {
    if (typeof text !== 'string' || typeof separator !== 'string') return undefined;
    return separator === '' ? [text] : splitText(text, separator);
  }),
  STRINGTOARRAY: parser(Array.isArray),
  STRINGTOBOOLEAN: parser((value) => typeof value === 'boolean'),
  STRINGTONULL: parser((value) => value === null),
  STRINGTONUMBER: parser((value) => Number.isFinite(numberOf(value))),
  STRINGTOOBJECT: parser(isObject),
  SUBSTRING: pure(3, 3, substring),
  SUBSTRINGAFTER: around(false, false),
  SUBSTRINGBEFORE: around(false, true),
  TOSTRING: pure(1, 1, toText),
  TRIM: trim(true, true),
  UPPER: inCase((text) => text.toUpperCase(), /[ıſ]/, upperOf),
};
