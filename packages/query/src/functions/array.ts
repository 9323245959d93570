import { namesOf } from '../values/name-order.ts';
import {
  compareValues,
  equalValues,
  finite,
  isObject,
  numberOf,
  setProperty,
  stableKey,
  wholeNumberOf,
} from '../values/values.ts';
import type { Json, JsonObject, Value } from '../values/values.ts';
import { assertComparable, boundedArray, boundedValue, charactersOf } from './bounds.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';

function concatenate(...arrays: Value[]): Value {
  const result: Json[] = [];
  for (const array of arrays) {
    if (!Array.isArray(array)) return undefined;
    for (const item of array) result.push(item);
    boundedArray(result);
  }
  return result;
}

/** A partial match: an object matches if it has the wanted properties, whatever else it has. */
function matchesPartly(item: Value, needle: Json): boolean {
  if (!isObject(needle)) return equalValues(item, needle);
  return (
    isObject(item) &&
    Object.keys(needle).every((name) => Object.hasOwn(item, name) && equalValues(item[name], needle[name]))
  );
}

/** The number of properties of the widest object in a value. */
function widthOf(value: Value): number {
  if (typeof value !== 'object' || value === null) return 0;
  const values = Object.values(value);
  return values.reduce<number>((most, each) => Math.max(most, widthOf(each)), Array.isArray(value) ? 0 : values.length);
}

const isDeep = (value: Value): boolean => typeof value === 'object' && value !== null;

/**
 * Checks the work of a search: objects and arrays are compared deeply.
 *
 * @throws QueryError if there is too much to compare
 */
function assertSearchable(array: readonly Json[], needles: readonly Value[]): void {
  const deep = needles.filter(isDeep);
  if (deep.length === 0) return;
  assertComparable(charactersOf(boundedValue(array as Json[])), deep.length);
  // The properties of a wanted object are counted for each object that it is compared with.
  assertComparable(
    array.length,
    deep.reduce<number>((sum, needle) => sum + widthOf(needle), 0),
  );
}

function contains(array: Value, needle: Value, partial: Value = false): Value {
  if (!Array.isArray(array) || needle === undefined || typeof partial !== 'boolean') return undefined;
  assertSearchable(array, [needle]);
  return partial ? array.some((item) => matchesPartly(item, needle)) : array.some((item) => equalValues(item, needle));
}

/**
 * Up to this many values are searched one after the other. If there are more, those that are no objects or arrays are searched in a set.
 */
const FEW_NEEDLES = 8;

/** ARRAY_CONTAINS_ANY and ARRAY_CONTAINS_ALL, whose values are given as arguments. */
function containsMany(test: 'some' | 'every'): BuiltIn {
  return pure(2, Number.POSITIVE_INFINITY, (array, ...needles) => {
    if (!Array.isArray(array)) return undefined;
    assertSearchable(array, needles);
    const known = needles.filter((needle) => needle !== undefined);
    const others = new Set(known.length < FEW_NEEDLES ? [] : array.filter((item) => !isDeep(item)).map(setKeyOf));
    const isIn = (needle: Json): boolean =>
      isDeep(needle) || known.length < FEW_NEEDLES
        ? array.some((item) => equalValues(item, needle))
        : others.has(setKeyOf(needle));
    const found = known[test](isIn);
    // An undefined value may be in the array or not. So if the other values don't decide the result, it is undefined.
    return known.length < needles.length && found === (test === 'every') ? undefined : found;
  });
}

function slice(array: Value, givenStart: Value, givenCount: Value = Number.MAX_SAFE_INTEGER): Value {
  const start = wholeNumberOf(givenStart);
  const count = wholeNumberOf(givenCount);
  if (!Array.isArray(array) || start === undefined || count === undefined) return undefined;
  const from = start < 0 ? Math.max(0, array.length + start) : start;
  return array.slice(from, from + Math.max(0, count));
}

/** CHOOSE counts from 1. */
function choose(...args: Value[]): Value {
  const [index, ...values] = args;
  return typeof index === 'number' && Number.isInteger(index) && index >= 1 ? values[index - 1] : undefined;
}

function objectToArray(object: Value, keyName: Value = 'k', valueName: Value = 'v'): Value {
  if (!isObject(object) || typeof keyName !== 'string' || typeof valueName !== 'string') return undefined;
  return namesOf(object).map((name) => {
    const entry: JsonObject = {};
    setProperty(entry, keyName, name);
    setProperty(entry, valueName, object[name] as Json);
    return entry;
  });
}

type SetKey = string | number | boolean | null;
type ValueSet = ReadonlyMap<SetKey, Json>;

/** A key that is the same for equal values only. Most numbers are their own key, since there may be very many. */
function setKeyOf(item: Json): SetKey {
  if (typeof item === 'string') return `"${item}`;
  if (typeof item === 'boolean' || item === null) return item;
  // An integer that is not safe may equal a bigint, so both need the same key.
  return typeof item === 'number' && (Number.isSafeInteger(item) || !Number.isInteger(item)) ? item : stableKey(item);
}

/** The distinct values of some arrays, in the order of their first occurrence. */
function asSet(...arrays: (readonly Json[])[]): ValueSet {
  const set = new Map<SetKey, Json>();
  for (const array of arrays) {
    for (const item of boundedValue(array as Json[])) {
      const key = setKeyOf(item);
      if (!set.has(key)) set.set(key, item);
    }
  }
  return set;
}

function ofArrays(combine: (a: readonly Json[], b: readonly Json[]) => Value): BuiltIn {
  const call = (a: Value, b: Value): Value => (Array.isArray(a) && Array.isArray(b) ? combine(a, b) : undefined);
  return { ...pure(2, 2, call), unitsPerCharacter: 8 };
}

const ofSets = (combine: (a: ValueSet, b: ValueSet) => Value): BuiltIn =>
  ofArrays((a, b) => combine(asSet(a), asSet(b)));

/** A function of an array of numbers. It is undefined if the array is empty or contains other values. */
function ofNumbers(compute: (numbers: number[]) => number): BuiltIn {
  return pure(1, 1, (array) => {
    if (!Array.isArray(array) || array.length === 0) return undefined;
    const numbers = array.map(numberOf).filter((item) => item !== undefined);
    return numbers.length === array.length ? finite(compute(numbers)) : undefined;
  });
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, item) => total + item, 0);

function median(numbers: number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] as number;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] as number)) / 2;
}

function extreme(sign: 1 | -1): BuiltIn {
  return pure(1, 1, (array) => {
    if (!Array.isArray(array) || array.some((item) => typeof item === 'object' && item !== null)) return undefined;
    return array.reduce<Value>(
      (best, item) => (best === undefined || compareValues(item, best) * sign < 0 ? item : best),
      undefined,
    );
  });
}

export const arrayFunctions: BuiltIns = {
  ARRAY_AVG: ofNumbers((numbers) => sum(numbers) / numbers.length),
  ARRAY_CONCAT: pure(2, Number.POSITIVE_INFINITY, concatenate),
  ARRAY_CONTAINS: { ...pure(2, 3, contains), undefinedIsLeftOut: true },
  ARRAY_CONTAINS_ALL: containsMany('every'),
  ARRAY_CONTAINS_ANY: containsMany('some'),
  ARRAY_LENGTH: pure(1, 1, (array) => (Array.isArray(array) ? array.length : undefined)),
  ARRAY_MAX: extreme(-1),
  ARRAY_MEDIAN: ofNumbers(median),
  ARRAY_MIN: extreme(1),
  ARRAY_SLICE: pure(2, 3, slice),
  ARRAY_SUM: ofNumbers(sum),
  CHOOSE: pure(2, Number.POSITIVE_INFINITY, choose),
  OBJECTTOARRAY: pure(1, 3, objectToArray),
  SETDIFFERENCE: ofSets((a, b) => [...a].filter(([key]) => !b.has(key)).map(([, item]) => item)),
  SETEQUAL: ofSets((a, b) => a.size === b.size && [...a.keys()].every((key) => b.has(key))),
  // The result has the order of the second array, as in Cosmos DB.
  SETINTERSECT: ofSets((a, b) => [...b].filter(([key]) => a.has(key)).map(([, item]) => item)),
  SETUNION: ofArrays((a, b) => boundedArray([...asSet(a, b).values()])),
};
