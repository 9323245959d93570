import { describe, expect, it } from 'vitest';
import { jsonText, parseJson } from '../src/index.ts';
import type { Json } from '../src/index.ts';
import { rows, valueOf } from './run.ts';

const GREATEST = '9223372036854775807';
const LEAST = '-9223372036854775808';

describe('JSON', () => {
  it.each([
    GREATEST,
    LEAST,
    '18446744073709551615',
    '9223372036854775808',
    '9007199254740993',
    '-9007199254740993',
    '[1,9007199254740993]',
    '{"a":{"__proto__":1234567890123456789,"b":[\n1234567890123456788 ]},"c":0.5}',
    '{"a":"x 1234567890123456789, y","b":1e+21}',
  ])('keeps the digits of %s', (text) => {
    const read = parseJson(`[${text}]`) as readonly Json[];
    expect(jsonText(read[0])).toBe(text.replaceAll(/\n| (?=\])/g, ''));
  });

  it.each([
    ['18446744073709551616', 2 ** 64],
    ['-9223372036854775809', -(2 ** 63)],
    ['9007199254740991', 9_007_199_254_740_991],
    ['1234567890123456789.0', 1_234_567_890_123_456_800],
    ['1234567890123456e3', 1_234_567_890_123_456_000],
    ['0.1234567890123456789', 0.123_456_789_012_345_68],
  ])('has a double for %s', (text, value) => {
    expect(parseJson(`[${text}]`)).toEqual([value]);
  });
});

describe('doubles', () => {
  it.each([
    [1.989763852669747e18, '1989763852669746944'],
    [Number('-1.2345678901234567e18'), '-1234567890123456768'],
    [2 ** 53, '9007199254740992'],
    [-(2 ** 63), '-9223372036854775808'],
    [2 ** 63, '9223372036854775808'],
    [2 ** 64, '18446744073709552000'],
    [1e21, '1e+21'],
    [0.1234567890123456, '0.1234567890123456'],
    [123.1234567890123, '123.1234567890123'],
  ])('%d has text that is parsed as the same number: %s', (value, text) => {
    const shown = jsonText({ t: '1234567890123456,1234567890123456', a: [value, 1.5], v: value });
    expect(shown).toBe(`{"t":"1234567890123456,1234567890123456","a":[${text},1.5],"v":${text}}`);
    const { v } = parseJson(shown) as { readonly v: Json };
    const parameters = [
      { name: '@read', value: v },
      { name: '@v', value },
    ];
    expect(rows('SELECT VALUE [@read = @v, @read >= @v, @read <= @v]', [], parameters)).toEqual([[true, true, true]]);
    expect(rows('SELECT VALUE [ToString(@read), ToString(@v), ToString([@v])]', [], parameters)).toEqual([
      [text, text, `[${text}]`],
    ]);
  });

  it('that were computed have the same text in ToString and in answers, and are found by it', () => {
    expect(jsonText(valueOf('1e17 + 12'))).toBe('100000000000000016');
    expect(valueOf('ToString(1e17 + 12)')).toBe('100000000000000016');
    expect(valueOf('StringToNumber(ToString(1e17 + 12)) = 1e17 + 12')).toBe(true);
    expect(valueOf('ToString(100000000000000016 + 0) = ToString(100000000000000016)')).toBe(true);
  });
});

describe('integers that no double can hold', () => {
  it.each([
    ['9007199254740993', 9_007_199_254_740_993n],
    [LEAST, -(2n ** 63n)],
    ['18446744073709551615', 18_446_744_073_709_551_615n],
    ['18446744073709551615 > 18446744073709551614', true],
    ['18446744073709551615 < 18446744073709551616', true],
    ['IS_INTEGER(18446744073709551615)', false],
    ['IntBitXor(18446744073709551615, 1)', -2],
    ['-18446744073709551615', -(2 ** 64)],
    ['0xFFFFFFFFFFFFFFFF', 18_446_744_073_709_551_615n],
    ['0X20000000000001 = 9007199254740993', true],
    ['0x10000000000000000', 2 ** 64],
    ['9007199254740993 = 9007199254740992', false],
    ['9007199254740993 = 9007199254740993', true],
    ['1152921504606846976 = 1.152921504606846976e18', true],
    ['9007199254740993 > 9007199254740992.0', true],
    ['9007199254740993 > 5 AND 5 < 9007199254740993', true],
    ['9007199254740993 BETWEEN 9007199254740993 AND 9007199254740994', true],
    ['9007199254740993 IN (9007199254740992, 9007199254740994)', false],
    ['ARRAY_CONTAINS([9007199254740993, 1], 9007199254740993)', true],
    ['9007199254740993 + 1', 9_007_199_254_740_992],
    ['9007199254740993 = "9007199254740993"', false],
    ['IS_NUMBER(9007199254740993) AND IS_INTEGER(9007199254740993) AND IS_PRIMITIVE(9007199254740993)', true],
    ['ToString([9007199254740993])', '[9007199254740993]'],
    ['StringToNumber("[9007199254740993]") ?? StringToArray("[9007199254740993]")[0]', 9_007_199_254_740_993n],
    ['IntBitXor(9007199254740993, 1)', 9_007_199_254_740_992n],
    ['TicksToDateTime(15779342456789123)', '2020-01-02T03:04:05.6789123Z'],
    ['ABS(-9007199254740993)', 9_007_199_254_740_992],
    ['{"n": 9007199254740993}.n', 9_007_199_254_740_993n],
    ['StringToNumber("9007199254740993")', 9_007_199_254_740_993n],
    ['StringToNumber("-9007199254740993 ")', -9_007_199_254_740_993n],
    [`SUBSTRING("abc", 1, ${GREATEST})`, 'bc'],
    [`LEFT("abc", ${GREATEST}) || RIGHT("abc", ${LEAST})`, 'abc'],
    [`ARRAY_SLICE([1, 2], ${LEAST}, ${GREATEST})`, [1, 2]],
    [`INDEX_OF("abc", "c", ${GREATEST})`, -1],
    [`LASTINDEXOF("abc", "c", ${GREATEST})`, 2],
    [`REPLICATE("", ${GREATEST})`, ''],
  ])('%s is %o', (expression, expected) => {
    expect(valueOf(expression)).toEqual(expected);
  });

  const documents = ['9007199254740994', '9007199254740993', '7', '9007199254740992.0', '9007199254740993'].map(
    (n, id) => parseJson(`{"id":"${id}","n":${n}}`),
  );

  it('are ordered, distinguished and grouped by all of their digits', () => {
    expect(rows('SELECT VALUE c.id FROM c ORDER BY c.n', documents)).toEqual(['2', '3', '1', '4', '0']);
    expect(rows('SELECT DISTINCT VALUE c.n FROM c', documents)).toHaveLength(4);
    expect(rows('SELECT COUNT(1) AS count, c.n FROM c GROUP BY c.n', documents)).toContainEqual({
      count: 2,
      n: 9_007_199_254_740_993n,
    });
    expect(rows('SELECT VALUE MAX(c.n) FROM c', documents)).toEqual([9_007_199_254_740_994n]);
    expect(rows('SELECT VALUE SUM(c.n) FROM c WHERE c.n < 8', documents)).toEqual([7]);
  });

  it('are found by a literal and by a parameter', () => {
    const value = 9_007_199_254_740_993n;
    const found = ['1', '4'];
    expect(rows('SELECT VALUE c.id FROM c WHERE c.n = 9007199254740993', documents)).toEqual(found);
    expect(rows('SELECT VALUE c.id FROM c WHERE c.n = @n', documents, [{ name: '@n', value }])).toEqual(found);
    expect(rows('SELECT VALUE c.id FROM c WHERE c.n > 100', documents)).toHaveLength(4);
  });
});
