import { integerValue } from '../values/json-text.ts';
import { finite, exactIntegerOf, numberOf } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { pure } from './builtin.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';

function ofNumber(compute: (x: number) => number): BuiltIn {
  return pure(1, 1, (value) => {
    const x = numberOf(value);
    return x === undefined ? undefined : finite(compute(x));
  });
}

function ofNumbers(compute: (x: number, y: number) => number): BuiltIn {
  return pure(2, 2, (first, second) => {
    const x = numberOf(first);
    const y = numberOf(second);
    return x === undefined || y === undefined ? undefined : finite(compute(x, y));
  });
}

/**
 * Rounds half away from zero, unlike Math.round: ROUND(-2.5) is -3. The second argument is the number of digits after the point; negative
 * numbers count digits before it. The function's documentation does not mention it, but Microsoft's editor and labs use it.
 */
function round(value: Value, given: Value = 0): Value {
  const x = numberOf(value);
  const digits = numberOf(given);
  if (x === undefined || digits === undefined || !Number.isInteger(digits)) return undefined;
  const scale = 10 ** Math.abs(digits);
  const scaled = digits < 0 ? Math.abs(x) / scale : Math.abs(x) * scale;
  // A number this large has no digits after that many, and the scaled value may be more than a double can hold.
  if (scaled >= Number.MAX_SAFE_INTEGER) return x;
  const rounded = Math.round(scaled);
  // The scale may be infinite, and zero times infinity is NaN.
  if (x === 0 || rounded === 0) return 0;
  return finite(Math.sign(x) * (digits < 0 ? rounded * scale : rounded / scale));
}

/** Integer functions compute in 64 bits and wrap around. They are undefined if a number is not an integer. */
function ofIntegers(compute: (x: bigint, y: bigint) => bigint | undefined): BuiltIn {
  return pure(2, 2, (first, second) => {
    const x = exactIntegerOf(first);
    const y = exactIntegerOf(second);
    if (x === undefined || y === undefined) return undefined;
    const result = compute(BigInt.asIntN(64, x), BigInt.asIntN(64, y));
    return result === undefined ? undefined : integerValue(BigInt.asIntN(64, result));
  });
}

/** A shift by a negative number or by 64 and more has no defined result. */
function shift(compute: (x: bigint, y: bigint) => bigint): BuiltIn {
  return ofIntegers((x, y) => (y < 0n || y > 63n ? undefined : compute(x, y)));
}

function logarithm(value: Value, given: Value): Value {
  const x = numberOf(value);
  if (x === undefined) return undefined;
  if (given === undefined) return finite(Math.log(x));
  const base = numberOf(given);
  if (base === 10) return finite(Math.log10(x));
  return base === undefined ? undefined : finite(Math.log(x) / Math.log(base));
}

function numberBin(value: Value, given: Value = 1): Value {
  const x = numberOf(value);
  const size = numberOf(given);
  if (x === undefined || size === undefined) return undefined;
  return finite(Math.floor(x / size) * size);
}

export const mathFunctions: BuiltIns = {
  ABS: ofNumber(Math.abs),
  ACOS: ofNumber(Math.acos),
  ASIN: ofNumber(Math.asin),
  ATAN: ofNumber(Math.atan),
  ATN2: ofNumbers(Math.atan2),
  CEILING: ofNumber(Math.ceil),
  COS: ofNumber(Math.cos),
  COT: ofNumber((x) => 1 / Math.tan(x)),
  DEGREES: ofNumber((x) => (x * 180) / Math.PI),
  EXP: ofNumber(Math.exp),
  FLOOR: ofNumber(Math.floor),
  INTADD: ofIntegers((x, y) => x + y),
  INTBITAND: ofIntegers((x, y) => x & y),
  INTBITLEFTSHIFT: shift((x, y) => x << y),
  INTBITNOT: pure(1, 1, (value) => {
    const x = exactIntegerOf(value);
    return x === undefined ? undefined : integerValue(BigInt.asIntN(64, ~x));
  }),
  INTBITOR: ofIntegers((x, y) => x | y),
  INTBITRIGHTSHIFT: shift((x, y) => x >> y),
  INTBITXOR: ofIntegers((x, y) => x ^ y),
  INTDIV: ofIntegers((x, y) => (y === 0n ? undefined : x / y)),
  INTMOD: ofIntegers((x, y) => (y === 0n ? undefined : x % y)),
  INTMUL: ofIntegers((x, y) => x * y),
  INTSUB: ofIntegers((x, y) => x - y),
  LOG: pure(1, 2, logarithm),
  LOG10: ofNumber(Math.log10),
  NUMBERBIN: pure(1, 2, numberBin),
  PI: pure(0, 0, () => Math.PI),
  POWER: ofNumbers((x, y) => x ** y),
  RADIANS: ofNumber((x) => (x * Math.PI) / 180),
  RAND: { minArguments: 0, maxArguments: 0, create: () => () => Math.random(), pure: false },
  ROUND: pure(1, 2, round),
  SIGN: ofNumber(Math.sign),
  SIN: ofNumber(Math.sin),
  SQRT: ofNumber(Math.sqrt),
  SQUARE: ofNumber((x) => x * x),
  TAN: ofNumber(Math.tan),
  TRUNC: ofNumber(Math.trunc),
};
