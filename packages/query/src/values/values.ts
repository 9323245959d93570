/** A JSON value. Integers that a double can't represent are bigints; all other numbers are numbers. */
export type Json = null | boolean | number | bigint | string | Json[] | { [key: string]: Json };

/** A JSON value, or Cosmos DB's "undefined": the result of reading a property that does not exist. */
export type Value = Json | undefined;

export type JsonObject = { [key: string]: Json };

/** Whether a value is an object and not an array or null. */
export function isObject(value: Value): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Sets a property of a result. `__proto__` is an ordinary name in JSON, but an assignment would change the object's prototype.
 */
export function setProperty(target: JsonObject, name: string, value: Json): void {
  if (name === '__proto__') {
    Object.defineProperty(target, name, {
      value,
      enumerable: true,
      configurable: true,
      writable: true,
    });
  } else {
    target[name] = value;
  }
}

export const isNumeric = (value: unknown): value is number | bigint =>
  typeof value === 'number' || typeof value === 'bigint';

/** The value for computations, which use doubles; undefined if the value is no number. */
export function numberOf(value: Value): number | undefined {
  if (typeof value === 'number') return value;
  return typeof value === 'bigint' ? Number(value) : undefined;
}

/** The value as a position or a count: the nearest double of a whole number; undefined for other values. */
export function wholeNumberOf(value: Value): number | undefined {
  const number = numberOf(value);
  return Number.isInteger(number) ? number : undefined;
}

/** The exact value of a whole number; undefined for other values. */
export function exactIntegerOf(value: Value): bigint | undefined {
  return typeof value === 'bigint' || Number.isInteger(value) ? BigInt(value as number | bigint) : undefined;
}

/** Compares numbers exactly, also a double with a bigint. */
function numericOrder(a: number | bigint, b: number | bigint): number {
  if (a < b) return -1;
  return a > b ? 1 : 0;
}

function typeRank(value: Value): number {
  switch (typeof value) {
    case 'undefined':
      return 0;
    case 'boolean':
      return value ? 3 : 2;
    case 'number':
    case 'bigint':
      return 4;
    case 'string':
      return 5;
    default:
      if (value === null) return 1;
      return Array.isArray(value) ? 6 : 7;
  }
}

/**
 * Cosmos DB's ORDER BY order: undefined, null, false, true, numbers, strings, arrays, objects. Arrays compare
 * element by element; objects, which Cosmos DB leaves unordered, by their properties in order of name, so that the
 * order is total and the same on every run.
 */
export function compareValues(a: Value, b: Value): number {
  if (a === b) return 0;
  if (typeof a === 'number' && typeof b === 'number') return a < b ? -1 : 1;
  const rank = typeRank(a);
  const rankDifference = rank - typeRank(b);
  if (rankDifference !== 0) return rankDifference;
  if (rank === 4) return numericOrder(a as number | bigint, b as number | bigint);
  if (rank === 5) return (a as string) < (b as string) ? -1 : 1;
  if (Array.isArray(a) && Array.isArray(b)) {
    const shared = Math.min(a.length, b.length);
    for (let index = 0; index < shared; index += 1) {
      const difference = compareValues(a[index], b[index]);
      if (difference !== 0) return difference;
    }
    return a.length - b.length;
  }
  if (isObject(a) && isObject(b)) return compareObjects(a, b);
  return 0;
}

/**
 * Compares objects by the first property, in order of name, that differs. The properties are not sorted for it, as there may be very many.
 */
function compareObjects(a: JsonObject, b: JsonObject): number {
  const namesOfA = Object.keys(a);
  const namesOfB = Object.keys(b);
  let first: string | undefined;
  /** Undefined if only one of the objects has the property. */
  let difference: number | undefined;
  for (const name of namesOfA) {
    if (first !== undefined && name > first) continue;
    const here = Object.hasOwn(b, name) ? compareValues(a[name], b[name]) : undefined;
    if (here !== 0) [first, difference] = [name, here];
  }
  for (const name of namesOfB) {
    if ((first === undefined || name < first) && !Object.hasOwn(a, name)) [first, difference] = [name, undefined];
  }
  if (first === undefined) return 0;
  if (difference !== undefined) return difference;
  // The property is compared with the next property of the other object, if it has one.
  const alone = first;
  const isOfA = Object.hasOwn(a, alone);
  const hasNext = (isOfA ? namesOfB : namesOfA).some((name) => name > alone);
  return isOfA === hasNext ? -1 : 1;
}

/** Deep equality of JSON values. The order of properties does not matter. */
export function equalValues(a: Value, b: Value): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) {
    return isNumeric(a) && isNumeric(b) && numericOrder(a, b) === 0;
  }
  if (Array.isArray(a)) {
    if (!Array.isArray(b) || a.length !== b.length) return false;
    for (let index = 0; index < a.length; index += 1) {
      if (!equalValues(a[index], b[index])) return false;
    }
    return true;
  }
  if (Array.isArray(b)) return false;
  const names = Object.keys(a);
  if (names.length !== Object.keys(b).length) return false;
  for (const name of names) {
    if (!Object.hasOwn(b, name) || !equalValues(a[name], b[name])) return false;
  }
  return true;
}

/**
 * The operators `=` and `!=` as in Cosmos DB: undefined if a side is undefined, otherwise a boolean. Values of different types are not
 * equal.
 */
export function equality(a: Value, b: Value): boolean | undefined {
  if (a === undefined || b === undefined) return undefined;
  return equalValues(a, b);
}

/**
 * The sign of a range comparison; undefined if Cosmos DB does not define it: between different types, and for arrays and objects.
 */
export function rangeOrder(a: Value, b: Value): number | undefined {
  if (isNumeric(a)) return isNumeric(b) ? numericOrder(a, b) : undefined;
  if (typeof a === 'string' || typeof a === 'boolean') {
    if (typeof a !== typeof b) return undefined;
    const other = b as typeof a;
    if (a === other) return 0;
    return a < other ? -1 : 1;
  }
  return a === null && b === null ? 0 : undefined;
}

/** A key for a number. It is the same for a bigint and a double that are equal. */
const numericKey = (value: number | bigint): string =>
  Number.isInteger(value) ? String(BigInt(value)) : String(value);

/** A text that is equal for equal values and different for different ones: the key of DISTINCT and GROUP BY. */
export function stableKey(value: Value): string {
  if (value === undefined) return 'u';
  if (typeof value === 'bigint' || (typeof value === 'number' && !Number.isSafeInteger(value)))
    return numericKey(value);
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(stableKey).join(',')}]`;
  const parts = Object.keys(value)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${stableKey(value[name])}`);
  return `{${parts.join(',')}}`;
}

/** JSON has no NaN and no infinities, so arithmetic that gives one is undefined. */
export function finite(value: number): Value {
  return Number.isFinite(value) ? value : undefined;
}
