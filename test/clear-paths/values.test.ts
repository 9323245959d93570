import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { clearCondition, clearValue, unknownEntries } from '@epitaph/projections/items/clear-values.ts';
import { compareValues, evaluate, type Json, parseQuery, planQuery } from '@epitaph/query';

const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 6 }),
  fc.array(fc.integer({ min: 0, max: 0xff_ff }), { maxLength: 4 }).map((units) => String.fromCharCode(...units)),
  fc
    .tuple(fc.constantFrom('a'.repeat(127), 'a'.repeat(128)), fc.string({ maxLength: 3 }))
    .map((parts) => parts.join('')),
);
const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer({ min: -3, max: 3 }),
  fc.constantFrom(-0, 5e-324, -5e-324, Number.MAX_VALUE, -Number.MAX_VALUE),
);
const scalar: fc.Arbitrary<Json> = fc.oneof(text, number, fc.boolean(), fc.constant(null));
const OPERATORS = ['=', '<', '<=', '>', '>='] as const;

/** Whether an item with a value satisfies a condition. */
function isFound(value: Json, condition: ReturnType<typeof clearCondition>): boolean {
  const copied = clearValue(value);
  return condition.some(({ from, to }) => copied !== undefined && copied >= from && copied <= to);
}

describe('the copy of a value', () => {
  it('is ordered like the values, within each type and across types', () => {
    fc.assert(
      fc.property(scalar, scalar, (left, right) => {
        const [one, other] = [clearValue(left)!, clearValue(right)!];
        const order = one < other ? -1 : one > other ? 1 : 0;
        // Text beyond the part that is copied makes no difference.
        if (order !== 0) expect(Math.sign(compareValues(left, right))).toBe(order);
        else if (typeof left !== 'string' || left.length < 128) expect(compareValues(left, right)).toBe(0);
      }),
      { numRuns: 3_000 },
    );
  });

  it('exists for scalars only, and has the first 128 characters of a text', () => {
    for (const value of [undefined, [], {}, ['a']]) expect(clearValue(value)).toBe(undefined);
    expect(clearValue('x'.repeat(500))).toBe(clearValue('x'.repeat(128)));
    expect(clearValue('x'.repeat(127))).not.toBe(clearValue('x'.repeat(128)));
  });
});

describe('a condition on copies', () => {
  it('leaves every document that the query language finds, and none of another type', () => {
    let found = 0;
    fc.assert(
      fc.property(scalar, fc.constantFrom(...OPERATORS), scalar, (value, op, constant) => {
        const plan = planQuery(parseQuery(`SELECT VALUE 1 FROM c WHERE c.v ${op} @c`), [
          { name: '@c', value: constant },
        ]);
        const condition = clearCondition(0, op, [constant]);
        const isWanted = [...evaluate(plan, [{ v: value }])].length > 0;
        if (isWanted) {
          found += 1;
          expect(isFound(value, condition)).toBe(true);
        }
        const type = (of: Json) => (of === null ? 'null' : typeof of);
        if (type(value) !== type(constant)) expect(isFound(value, condition)).toBe(false);
        // Beyond these it leaves only values equal to the bound, and texts longer than their copies.
        if (isFound(value, condition) && !isWanted && typeof value !== 'string') {
          expect(compareValues(value, constant)).toBe(0);
        }
      }),
      { numRuns: 3_000 },
    );
    expect(found).toBeGreaterThan(100);
  });

  it('with several values leaves what any of them finds', () => {
    const condition = clearCondition(3, 'in', ['a', 1, null]);
    for (const value of ['a', 1, null]) expect(isFound(value, condition)).toBe(true);
    for (const value of ['b', 2, false, '1']) expect(isFound(value, condition)).toBe(false);
    expect(condition.every(({ path }) => path === 3)).toBe(true);
  });

  it('always leaves an item whose content could not be read', () => {
    for (const condition of [clearCondition(1, 'in', []), clearCondition(1, '<', [5]), clearCondition(1, '=', ['a'])]) {
      const [, entry] = unknownEntries(2);
      expect(
        condition.some(({ path, from, to }) => path === entry!.path && entry!.value >= from && entry!.value <= to),
      ).toBe(true);
    }
  });
});
