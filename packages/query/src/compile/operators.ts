import { boundedText, isShort } from '../functions/bounds.ts';
import type { BinaryOperator } from '../language/ast.ts';
import { askTime, askTimeToCompare, type Compiled, type CompiledTest, type Frame, sizeMade } from '../run/frame.ts';
import { FOLDED_CHARACTERS, node, type Node } from '../run/node.ts';
import { equality, finite, numberOf, rangeOrder, type Value } from '../values/values.ts';

const ARITHMETIC: Readonly<Record<string, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '%': (a, b) => a % b,
  '&': (a, b) => a & b,
  '|': (a, b) => a | b,
  '^': (a, b) => a ^ b,
  '<<': (a, b) => a << b,
  '>>': (a, b) => a >> b,
  '>>>': (a, b) => a >>> b,
};

const RANGE_TESTS: Readonly<Record<string, (order: number) => boolean>> = {
  '<': (order) => order < 0,
  '<=': (order) => order <= 0,
  '>': (order) => order > 0,
  '>=': (order) => order >= 0,
};

const MIRRORED: Readonly<Record<string, BinaryOperator>> = {
  '=': '=',
  '!=': '!=',
  '<': '>',
  '<=': '>=',
  '>': '<',
  '>=': '<=',
};

/** Whether a value is a scalar that `===` compares correctly. A large integer is not: it may be equal to a bigint. */
export function isPlainScalar(value: Value): value is null | boolean | number | string {
  if (typeof value === 'number') return !Number.isInteger(value) || Number.isSafeInteger(value);
  return value === null || typeof value === 'boolean' || typeof value === 'string';
}

/** A fast path for a comparison with a constant on the right, by far the most frequent operation. */
function compareWithConstant(operator: string, run: Compiled, other: Value): Compiled | undefined {
  if (!isPlainScalar(other) || !isShort(other, FOLDED_CHARACTERS)) return undefined;
  if (operator === '=' || operator === '!=') {
    const whenEqual = operator === '=';
    return (frame) => {
      const value = run(frame);
      return value === undefined ? undefined : (value === other) === whenEqual;
    };
  }
  if (typeof other !== 'number' && typeof other !== 'string') return undefined;
  const type = typeof other;
  const long = type === 'number' ? 'bigint' : type;
  switch (operator) {
    case '<':
      return (frame) => {
        const value = run(frame);
        return typeof value === type || typeof value === long ? (value as typeof other) < other : undefined;
      };
    case '<=':
      return (frame) => {
        const value = run(frame);
        return typeof value === type || typeof value === long ? (value as typeof other) <= other : undefined;
      };
    case '>':
      return (frame) => {
        const value = run(frame);
        return typeof value === type || typeof value === long ? (value as typeof other) > other : undefined;
      };
    case '>=':
      return (frame) => {
        const value = run(frame);
        return typeof value === type || typeof value === long ? (value as typeof other) >= other : undefined;
      };
    default:
      return undefined;
  }
}

export function compileBinary(operator: BinaryOperator, left: Node, right: Node): Compiled {
  const a = left.run;
  const b = right.run;
  if (operator === '??') {
    return (frame) => {
      const value = a(frame);
      return value === undefined ? b(frame) : value;
    };
  }
  if (operator === '||') {
    return (frame) => {
      const { made } = frame.work;
      const first = a(frame);
      const second = b(frame);
      askTime(frame, first);
      const text = typeof first === 'string' && typeof second === 'string' ? boundedText(first + second) : undefined;
      frame.work.keepOf(made, sizeMade(text));
      return text;
    };
  }
  const mirrored = MIRRORED[operator];
  if (mirrored !== undefined) {
    const quick =
      (right.constant && compareWithConstant(operator, a, right.constant.value)) ??
      (left.constant && compareWithConstant(mirrored, b, left.constant.value));
    if (quick !== undefined) return quick;
    const equals = (frame: Frame): boolean | undefined => {
      const first = a(frame);
      const second = b(frame);
      askTimeToCompare(frame, first, second);
      return equality(first, second);
    };
    if (operator === '=') return equals;
    if (operator === '!=') {
      return (frame) => {
        const equal = equals(frame);
        return equal === undefined ? undefined : !equal;
      };
    }
    const test = RANGE_TESTS[operator] as (order: number) => boolean;
    return (frame) => {
      const first = a(frame);
      const second = b(frame);
      askTimeToCompare(frame, first, second);
      const order = rangeOrder(first, second);
      return order === undefined ? undefined : test(order);
    };
  }
  const compute = ARITHMETIC[operator] as (x: number, y: number) => number;
  return (frame) => {
    const x = numberOf(a(frame));
    const y = numberOf(b(frame));
    return x === undefined || y === undefined ? undefined : finite(compute(x, y));
  };
}

export function compileLogical(operator: 'AND' | 'OR', operands: readonly Compiled[]): Compiled {
  // AND is false as soon as one operand is false, OR is true as soon as one is true. Values that aren't booleans count as undefined.
  const decisive = operator === 'OR';
  return (frame) => {
    let unknown = false;
    for (let index = 0; index < operands.length; index += 1) {
      const value = (operands[index] as Compiled)(frame);
      if (value === decisive) return decisive;
      if (typeof value !== 'boolean') unknown = true;
    }
    return unknown ? undefined : !decisive;
  };
}

/** Runs tests one after the other, until one has the decisive result. */
export function decided(tests: readonly CompiledTest[], decisive: boolean): CompiledTest {
  return (frame) => {
    for (let index = 0; index < tests.length; index += 1) {
      if ((tests[index] as CompiledTest)(frame) === decisive) return decisive;
    }
    return !decisive;
  };
}

export function allOf(tests: readonly CompiledTest[]): CompiledTest | undefined {
  return tests.length > 1 ? decided(tests, false) : tests[0];
}

export function compileUnary(operator: string, operand: Node): Node {
  const { run } = operand;
  if (operator === 'NOT') {
    return node(
      (frame) => {
        const value = run(frame);
        return typeof value === 'boolean' ? !value : undefined;
      },
      [operand],
    );
  }
  const compute = (value: number): number => (operator === '-' ? -value : operator === '~' ? ~value : value);
  return node(
    (frame) => {
      const value = numberOf(run(frame));
      return value === undefined ? undefined : compute(value);
    },
    [operand],
  );
}
