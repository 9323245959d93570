import { isObject, numberOf } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { pure } from './builtin.ts';
import type { BuiltIns } from './builtin.ts';
import { parseDateTime } from './datetime-text.ts';

function check(test: (value: Value) => boolean) {
  return pure(1, 1, test);
}

/** Integers are those of 64 bits. As a double, the largest one, 2^63 - 1, is rounded up to this. */
const INTEGER_BOUND = 2 ** 63;

/** Checks of type. For undefined they return false, not undefined. */
export const typeFunctions: BuiltIns = {
  IS_ARRAY: check(Array.isArray),
  IS_BOOL: check((value) => typeof value === 'boolean'),
  IS_DATETIME: check((value) => typeof value === 'string' && parseDateTime(value) !== undefined),
  IS_DEFINED: check((value) => value !== undefined),
  IS_FINITE_NUMBER: check((value) => Number.isFinite(numberOf(value))),
  IS_INTEGER: check(
    (value) =>
      (typeof value === 'bigint' && value < INTEGER_BOUND) ||
      (Number.isInteger(value) && Math.abs(value as number) <= INTEGER_BOUND),
  ),
  IS_NULL: check((value) => value === null),
  IS_NUMBER: check((value) => numberOf(value) !== undefined),
  IS_OBJECT: check(isObject),
  IS_PRIMITIVE: check((value) => value === null || ['boolean', 'number', 'bigint', 'string'].includes(typeof value)),
  IS_STRING: check((value) => typeof value === 'string'),
};
