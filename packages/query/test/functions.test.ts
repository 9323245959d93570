import { describe, expect, it } from 'vitest';
import { builtIns } from '../src/functions/index.ts';
import { rows, valueOf } from './run.ts';

const cases: Record<string, readonly (readonly [string, unknown])[]> = {
  string: [
    ["CONCAT('a', 'b', 'c')", 'abc'],
    ["CONCAT('a', 1)", undefined],
    ["CONTAINS('Abc', 'bc')", true],
    ["CONTAINS('Abc', 'BC')", false],
    ["CONTAINS('Abc', 'BC', true)", true],
    ["CONTAINS('Abc', 'BC', 1)", undefined],
    ["CONTAINS(undefined, 'x')", undefined],
    ["CONTAINS_ANY_CI('Abc', 'x', 'B')", true],
    ["CONTAINS_ANY_CI('Abc', undefined, 'B')", true],
    ["CONTAINS_ANY_CI('Abc', 'x', undefined)", undefined],
    ["CONTAINS_ALL_CS('Abc', 'A', 'x')", false],
    ["CONTAINS_ALL_CS('Abc', undefined, 'x')", false],
    ["CONTAINS_ALL_CS('Abc', undefined, 'A')", undefined],
    ["ContainsAnyCi('Abc', 'x', 'B')", true],
    ["STARTSWITH('abc', 'AB', true)", true],
    ["ENDSWITH('abc', 'bc')", true],
    ["INDEX_OF('AdventureWorks', 'Works', 5)", 9],
    ["INDEX_OF('AdventureWorks', 'Adventure', 5)", -1],
    ["LASTINDEXOF('abcdeabc', 'abc')", 5],
    ["LASTINDEXOF('abcdeabc', 'abc', 6)", 0],
    ["LASTINDEXOF('abcdeabc', 'abc', 7)", 5],
    ["LASTSUBSTRINGAFTER('/products/shoes/boots', '/')", 'boots'],
    ["LASTSUBSTRINGBEFORE('A-B-C', '-')", 'A-B'],
    ["SUBSTRINGAFTER('A-B-C', '-')", 'B-C'],
    ["SUBSTRINGBEFORE('A-B-C', '-')", 'A'],
    ["LEFT('abc', 2)", 'ab'],
    ["LEFT('abc', -1)", ''],
    ["LEFT('abc', 9)", 'abc'],
    ["LEFT('abc', 1.5)", undefined],
    ["RIGHT('abc', 2)", 'bc'],
    ["RIGHT('abc', 0)", ''],
    ["RIGHT('abc', -3)", ''],
    ["RIGHT('abc', 2147483648)", 'abc'],
    ["RIGHT('abc', 1.5)", undefined],
    ["LENGTH('abc')", 3],
    ['LENGTH([1])', undefined],
    ["LOWER('ABC') || UPPER('def')", 'abcDEF'],
    ["UPPER('straße ŉǆ')", 'STRAßE ŉǄ'],
    ["LOWER('ΟΔΟΣ İ 𐐀')", 'οδοσ İ 𐐨'],
    ["LTRIM('  a ')", 'a '],
    [String.raw`TRIM('\u0085\u3000\ufeff\u00a0')`, '\ufeff'],
    ["LTRIM('AdventureWorks', 'Adventure')", 'Works'],
    ["LTRIM('AdventureWorks', '')", 'AdventureWorks'],
    ["RTRIM(' a  ')", ' a'],
    ["TRIM('-_-AdventureWorks-_-', '-_')", 'AdventureWorks'],
    ["TRIM('-- AdventureWorks --', '-')", ' AdventureWorks '],
    ["REPLACE('banana', 'an', 'X')", 'bXXa'],
    ["REPLACE('banana', '', 'X')", 'banana'],
    ["REPLICATE('ab', 3)", 'ababab'],
    ["REPLICATE('ab', -1)", undefined],
    ["REPLICATE('a', 10001)", undefined],
    ["REPLICATE('', Infinity)", undefined],
    ["REVERSE('aé😀')", '😀éa'],
    ["StringEquals('a', 'A')", false],
    ["StringEquals('a', 'A', true)", true],
    ["StringJoin(['a', 'b'], '-')", 'a-b'],
    ["StringJoin(['a', 1], '-')", undefined],
    ["StringSplit('a-b', '-')", ['a', 'b']],
    ["StringSplit('ab', '')", ['ab']],
    ["StringSplit('', '')", ['']],
    ["StringToArray(' [1, 2] ')", [1, 2]],
    ["StringToArray('{}')", undefined],
    ["StringToBoolean('true')", true],
    ["StringToBoolean('TRUE')", undefined],
    ["StringToNull('null')", null],
    ["StringToNumber(' 1.5e3 ')", 1500],
    ["StringToNumber('0x1')", undefined],
    ["StringToNumber('1e999')", undefined],
    ['StringToObject(\'{"a": 1}\')', { a: 1 }],
    ["SUBSTRING('abcdef', 1, 2)", 'bc'],
    ["SUBSTRING('abc', 0, -1)", ''],
    ["SUBSTRING('abc', 9, 1)", ''],
    ["SUBSTRING('abc', -3, 5)", ''],
    ["SUBSTRING('abc', 0.5, 1)", undefined],
    ["SUBSTRING('abc', 0, 1.5)", undefined],
    ['ToString(1.5)', '1.5'],
    ["ToString('x')", 'x'],
    ['ToString([true, null])', '[true,null]'],
    ['ToString(undefined)', undefined],
    ['ToString(NaN)', 'NaN'],
    ['ToString(-Infinity)', '-Infinity'],
    ["REGEXMATCH('abcd', 'ABC', 'i')", true],
    ["REGEXMATCH('abcd', 'ABC')", false],
    ["REGEXMATCH('abcd', 'ab . d', 'x')", true],
    ["REGEXMATCH('a', 'a', 'g')", undefined],
    ["REGEXMATCH(1, 'a')", undefined],
  ],
  math: [
    ['ABS(-1)', 1],
    ["ABS('1')", undefined],
    ['ACOS(2)', undefined],
    ['ATN2(35.175643, 129.44)', 0.265344532064832],
    ['CEILING(-1.5)', -1],
    ['FLOOR(-1.5)', -2],
    ['DEGREES(PI())', 180],
    ['RADIANS(180)', Math.PI],
    ['EXP(0)', 1],
    ['LOG(8, 2)', 3],
    ['LOG(2, 10)', 0.301_029_995_663_981_2],
    ['LOG(1000, 10)', 3],
    ['LOG(0)', undefined],
    ['LOG10(1000)', 3],
    ['POWER(2, 10)', 1024],
    ['ROUND(-2.5)', -3],
    ['ROUND(2.4)', 2],
    ['SIGN(-3)', -1],
    ['SQRT(16) + SQUARE(3)', 13],
    ['SQRT(-1)', undefined],
    ['TRUNC(-2.9)', -2],
    ['SIN(0) + COS(0) + TAN(0) + ASIN(0) + ATAN(0)', 1],
    ['COT(0)', undefined],
    ['NumberBin(37, 5)', 35],
    ['NumberBin(-2.3)', -3],
    ['NumberBin(37.752, -100)', 100],
    ['NumberBin(1, 0)', undefined],
    ['IntAdd(20, 10)', 30],
    ['IntAdd(9007199254740991, 10)', 9_007_199_254_741_001n],
    ['IntAdd(1.5, 1)', undefined],
    ['IntSub(3, 5)', -2],
    ['IntMul(-3, 5)', -15],
    ['IntDiv(7, 2)', 3],
    ['IntDiv(7, 0)', undefined],
    ['IntMod(7, 4)', 3],
    ['IntBitAnd(15, 25)', 9],
    ['IntBitOr(56, 100)', 124],
    ['IntBitXor(56, 100)', 92],
    ['IntBitNot(65)', -66],
    ['IntBitwiseNot(65)', -66],
    ['IntBitLeftShift(16, 4)', 256],
    ['IntBitRightShift(-16, 4)', -1],
    ['IntBitLeftShift(1, 64)', undefined],
    ['RAND() < 1 AND RAND() >= 0', true],
  ],
  array: [
    ['ARRAY_CONCAT([1], [2], [3])', [1, 2, 3]],
    ['ARRAY_CONCAT([1], 2)', undefined],
    ["ARRAY_CONTAINS(['a', 'b'], 'b')", true],
    ['ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1})', false],
    ['ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, true)', true],
    ['ARRAY_CONTAINS([{a: 1}], {b: undefined}, true)', true],
    ['ARRAY_CONTAINS([1], undefined)', undefined],
    ['ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, undefined)', false],
    ['ARRAY_CONTAINS([1], 1, 1)', undefined],
    ["ARRAY_CONTAINS('abc', 'a')", undefined],
    ['ARRAY_CONTAINS_ANY([1, 2], 3, 2)', true],
    ['ARRAY_CONTAINS_ANY([1, 2], undefined, 2)', true],
    ['ARRAY_CONTAINS_ANY([1, 2], 3, undefined)', undefined],
    ['ARRAY_CONTAINS_ALL([1, 2], 3, 2)', false],
    ['ARRAY_CONTAINS_ALL([1, 2], undefined, 3)', false],
    ['ARRAY_CONTAINS_ALL([1, 2], 2, undefined)', undefined],
    ['ARRAY_LENGTH([1, 2])', 2],
    ['ARRAY_SLICE([1, 2, 3, 4], 1)', [2, 3, 4]],
    ['ARRAY_SLICE([1, 2, 3, 4], -2, 1)', [3]],
    ['ARRAY_SLICE([1, 2], -9, 1)', [1]],
    ['ARRAY_SLICE([1, 2], 0, -1)', []],
    ['ARRAY_SLICE([1, 2], 0.5)', undefined],
    ['ARRAY_SUM([1, 2, 3.5])', 6.5],
    ['ARRAY_AVG([1, 2])', 1.5],
    ["ARRAY_AVG(['a'])", undefined],
    ['ARRAY_AVG([])', undefined],
    ['ARRAY_MEDIAN([1, 2, 3, 4])', 2.5],
    ['ARRAY_MEDIAN([1, -2.7, 3, -4, undefined])', -0.8500000000000001],
    ["ARRAY_MIN([3, 'a', 1])", 1],
    ["ARRAY_MAX([3, 'a', 1])", 'a'],
    ["CHOOSE(1, 'a', 'b')", 'a'],
    ["CHOOSE(3, 'a', 'b')", undefined],
    ["CHOOSE(0, 'a', 'b')", undefined],
    ['ObjectToArray({a: 1})', [{ k: 'a', v: 1 }]],
    ["ObjectToArray({a: 1}, 'name', 'is')", [{ name: 'a', is: 1 }]],
    ['SetUnion([1, 2, 2], [2, 3])', [1, 2, 3]],
    ['SetIntersect([1, 2, {a: 1}], [{a: 1}, 2])', [{ a: 1 }, 2]],
    ['SetDifference([1, 2, 1], [2])', [1]],
    ['SetEqual([1, 2, 2], [2, 1])', true],
    ['SetUnion([1], 2)', undefined],
  ],
  type: [
    ['IS_ARRAY([])', true],
    ['IS_BOOL(false)', true],
    ['IS_DEFINED(undefined)', false],
    ['IS_DEFINED(null)', true],
    ['IS_NULL(null)', true],
    ['IS_NULL(undefined)', false],
    ['IS_NUMBER(1)', true],
    ["IS_NUMBER('1')", false],
    ['IS_FINITE_NUMBER(1)', true],
    ['IS_INTEGER(1.5)', false],
    ['IS_INTEGER(2)', true],
    ['IS_INTEGER(-9223372036854775808)', true],
    ['IS_INTEGER(9223372036854775807)', true],
    ['IS_INTEGER(18446744073709551615)', false],
    ['IS_OBJECT([])', false],
    ['IS_OBJECT({})', true],
    ['IS_PRIMITIVE(null)', true],
    ['IS_PRIMITIVE({})', false],
    ['IS_PRIMITIVE(undefined)', false],
    ["IS_STRING('')", true],
    ["IS_DATETIME('2024-02-30T00:00:00Z')", false],
    ["IS_DATETIME('2024-02-29T00:00:00Z')", true],
    ["IS_DATETIME('2024-02-29Z')", true],
    ["IIF(1 = 1, 'yes', 'no')", 'yes'],
    ["IIF('x', 'yes', 'no')", 'no'],
    ["iif(undefined, 'yes', 'no')", 'no'],
  ],
  date: [
    ["DateTimeAdd('mm', 1, '2024-01-31T01:02:03.1234567Z')", '2024-02-29T01:02:03.1234567Z'],
    ["DateTimeAdd('yyyy', -1, '2024-02-29')", '2023-02-28T00:00:00.0000000Z'],
    ["DateTimeAdd('hour', 25, '2023-12-31T00:00:00Z')", '2024-01-01T01:00:00.0000000Z'],
    ["DateTimeAdd('ns', 250, '2024-01-01')", '2024-01-01T00:00:00.0000002Z'],
    ["DateTimeAdd('yyyy', 9000, '2024-01-01')", undefined],
    ["DateTimeAdd('week', 1, '2024-01-01')", undefined],
    ["DateTimeAdd('dd', 1.5, '2024-01-01')", undefined],
    ["DateTimeAdd('dd', 1, 'yesterday')", undefined],
    ["DateTimeBin('2021-01-08T18:35:00.0000000', 'dd')", '2021-01-08T00:00:00.0000000Z'],
    ["DateTimeBin('2021-01-08T18:35:00.0000000', 'hh', 5)", '2021-01-08T15:00:00.0000000Z'],
    ["DateTimeBin('2021-01-08T18:35:00.0000000', 'dd', 7)", '2021-01-07T00:00:00.0000000Z'],
    [
      "DateTimeBin('2021-01-08T18:35:00.0000000', 'dd', 7, '1601-01-01T00:00:00.0000000')",
      '2021-01-04T00:00:00.0000000Z',
    ],
    ["DateTimeBin('2021-05-08', 'mm', 3)", '2021-04-01T00:00:00.0000000Z'],
    ["DateTimeBin('1969-12-31T23:00:00', 'yyyy', 10)", '1960-01-01T00:00:00.0000000Z'],
    ["DateTimeBin('2021-01-08', 'dd', 0)", undefined],
    ["DateTimeBin('2021-01-08', 'dd', 7, '1600-12-31')", undefined],
    ["DateTimeDiff('yyyy', '2019-02-04T16:00:00.0000000', '2018-03-05T05:00:00.0000000')", -1],
    ["DateTimeDiff('mm', '2019-02-04T16:00:00.0000000', '2018-03-05T05:00:00.0000000')", -11],
    ["DateTimeDiff('dd', '2018-03-05T05:00:00.0000000', '2019-02-04T16:00:00.0000000')", 336],
    ["DateTimeDiff('hh', '2018-03-05T05:00:00.0000000', '2019-02-04T16:00:00.0000000')", 8075],
    ["DateTimeDiff('ss', '2019-02-04T16:00:00.0000000', '2018-03-05T05:00:00.0000000')", -29_070_000],
    ["DateTimeDiff('yyyy', '2023-12-31T23:59:59', '2024-01-01')", 1],
    ["DateTimeFormat('2024-10-10 14:40:20', 'yyyyMMdd')", '20241010'],
    ["DateTimeFormat('2024-10-10 14:40:20', 'yyyy-MM-dd [HH:mm:ss]')", '2024-10-10 [14:40:20]'],
    [
      String.raw`DateTimeFormat('2024-10-10 14:40:20', 'To\\da\\y i\\s: yyyy-MM-ddTHH:mm:ss.fff')`,
      'Today is: 2024-10-10T14:40:20.000',
    ],
    ["DateTimeFormat('2024-10-10 14:40:20', 'ss.FFF')", '20.'],
    ["DateTimeFormat('2024-01-05T00:07:09.1230000Z', 'd/M/yy h:m:s.FFFFF tt')", '5/1/24 12:7:9.123 AM'],
    ["DateTimeFormat('1969-07-20T20:17:40Z', 'ddd dddd MMM MMMM hh t')", 'Sun Sunday Jul July 08 P'],
    ["DateTimeFormat('2024-13-10', 'yyyy')", undefined],
    ["DateTimeFormat('2024-10-10', 1)", undefined],
    ['DateTimeFromParts(2020, 9, 4)', '2020-09-04T00:00:00.0000000Z'],
    ['DateTimeFromParts(2017, 4, 20, 13, 15, 20, 3456789)', '2017-04-20T13:15:20.3456789Z'],
    ['DateTimeFromParts(2023, 2, 29)', undefined],
    ["DateTimePart('yyyy', '2020-01-02T03:04:05.6789123Z')", 2020],
    ["DateTimePart('ms', '2020-01-02T03:04:05.6789123Z')", 678],
    ["DateTimePart('mcs', '2020-01-02T03:04:05.6789123Z')", 678_912],
    ["DateTimePart('ns', '2020-01-02T03:04:05.6789123Z')", 678_912_300],
    ["DateTimePart('n', '2020-01-02T03:04:05.6789123Z')", 4],
    ["Year('2000-12-31T10:00:00') * 10000 + Month('2000-12-31') * 100 + Day('2000-12-31 10:00')", 20_001_231],
    ["Month('soon')", undefined],
    ["DateTimeToTicks('2020-01-02T03:04:05.6789123Z')", 15_779_342_456_789_123n],
    ["DateTimeToTimestamp('2020-07-09T23:20:13.4575530Z')", 1_594_336_813_457],
    ["DateTimeToTimestamp('1969-12-31T23:59:59.9999999Z')", -1],
    ['TicksToDateTime(15943368134575530)', '2020-07-09T23:20:13.4575530Z'],
    ['TimestampToDateTime(1594227912345)', '2020-07-08T17:05:12.3450000Z'],
    ['TimestampToDateTime(1e20)', undefined],
    ['TimestampToDateTime(1.5)', undefined],
  ],
  item: [
    ["DocumentId({_rid: 'AAAAAAAAAAACAQAAAAAAAA=='})", 258],
    ["DocumentId({_rid: 'AAAAAAAAAAA='})", undefined],
    ["DocumentId('AAAAAAAAAAACAQAAAAAAAA==')", undefined],
    ['DocumentId({_rid: [1]})', undefined],
  ],
  vector: [
    ['VectorDistance([1, 0], [0, 1])', 0],
    ['VectorDistance([3, 4], [6, 8])', 1],
    ["VectorDistance([1, 2], [3, 4], true, {distanceFunction: 'dotproduct'})", 11],
    ["VectorDistance([0, 0], [3, 4], false, {distanceFunction: 'euclidean', dataType: 'float32'})", 5],
    ['VectorDistance([1], [1, 2])', undefined],
    ["VectorDistance(['x'], [1])", undefined],
    ['VectorDistance([0], [1])', undefined],
  ],
  spatial: [
    ["ST_ISVALID({type: 'Point', coordinates: [31.9, -4.8]})", true],
    ["ST_ISVALID({type: 'Point', coordinates: [31.9, -132.8]})", false],
    ["ST_ISVALID({type: 'Polygon', coordinates: [[[0, 0], [0, 1], [1, 1], [1, 0]]]})", false],
    ["ST_ISVALIDDETAILED({type: 'Point', coordinates: [31.9, -4.8]})", { valid: true }],
    ["ST_ISVALIDDETAILED({type: 'Cube'}).valid", false],
    [
      "ST_ISVALIDDETAILED({type: 'Point', coordinates: [133, -184]}).reason",
      'Latitude values must be between -90 and 90 degrees.',
    ],
    [
      "ST_ISVALIDDETAILED({type: 'Point', coordinates: [-184, 33]}).reason",
      'Longitude values must be between -180 and 180 degrees.',
    ],
    ["ST_ISVALIDDETAILED({type: 'Point', coordinates: ['1', 2]}).reason", 'A position needs two numbers.'],
    ["ST_DISTANCE({type: 'Point', coordinates: [1, 2]}, {type: 'Point', coordinates: [1, 2]})", 0],
    ["ROUND(ST_DISTANCE({type: 'Point', coordinates: [0, 0]}, {type: 'Point', coordinates: [0, 1]}) / 1000)", 111],
    [
      "ROUND(ST_DISTANCE({type: 'Point', coordinates: [0, 1]}, {type: 'LineString', coordinates: [[-5, 0], [5, 0]]}) / 1000)",
      111,
    ],
    ["ST_DISTANCE({type: 'Point', coordinates: [0, 0]}, 'here')", undefined],
    ["ST_WITHIN({type: 'Point', coordinates: [0.5, 0.5]}, @square)", true],
    ["ST_WITHIN({type: 'Point', coordinates: [2, 0.5]}, @square)", false],
    ["ST_WITHIN({type: 'Polygon', coordinates: [[[0.2, 0.2], [0.4, 0.2], [0.4, 0.4], [0.2, 0.2]]]}, @square)", true],
    ["ST_WITHIN(@square, {type: 'Polygon', coordinates: [[[0.2, 0.2], [0.4, 0.2], [0.4, 0.4], [0.2, 0.2]]]})", false],
    ["ST_INTERSECTS({type: 'LineString', coordinates: [[-1, 0.5], [2, 0.5]]}, @square)", true],
    ["ST_INTERSECTS({type: 'LineString', coordinates: [[-1, 1.5], [2, 1.5]]}, @square)", false],
    ['ROUND(ST_AREA(@square) / 1e9)', 12],
  ],
};

const square = {
  type: 'Polygon',
  coordinates: [
    [
      [0, 0],
      [1, 0],
      [1, 1],
      [0, 1],
      [0, 0],
    ],
  ],
};

describe.each(Object.entries(cases))('%s functions', (_group, table) => {
  it.each(table)('%s is %o', (expression, expected) => {
    const [value] = rows(`SELECT VALUE ${expression}`, [], [{ name: '@square', value: square }]);
    if (typeof expected === 'number') expect(value).toBeCloseTo(expected, 12);
    else expect(value).toEqual(expected);
  });
});

describe('an argument that may be left out', () => {
  it.each([
    "CONTAINS('a', 'A', undefined)",
    "TRIM(' a ', undefined)",
    "INDEX_OF('a', 'a', undefined)",
    'LOG(2, undefined)',
    'ARRAY_SLICE([1, 2], 0, undefined)',
    "DateTimeBin('2021-01-08', 'dd', undefined)",
    "ObjectToArray({a: 1}, undefined, 'v')",
  ])('is undefined in %s, and so is the result', (expression) => {
    expect(valueOf(expression)).toBeUndefined();
  });

  it('may be undefined for some documents only', () => {
    const documents = [{ last: 1 }, {}];
    expect(rows('SELECT ARRAY_SLICE([1, 2], 0, c.last) AS some FROM c', documents)).toEqual([{ some: [1] }, {}]);
  });
});

describe('numbers that JSON has not', () => {
  it('are constants', () => {
    expect(valueOf('[IS_NUMBER(NaN), IS_FINITE_NUMBER(Infinity), 1 < Infinity]')).toEqual([true, false, true]);
    expect(valueOf('StringToNumber(NaN)')).toBeUndefined();
  });

  it('are given by name', () => {
    expect(valueOf('{a: [NaN, -Infinity], b: {c: Infinity}, d: 1}')).toEqual({
      a: ['NaN', '-Infinity'],
      b: { c: 'Infinity' },
      d: 1,
    });
  });

  it('leave their names to aliases', () => {
    expect(rows('SELECT VALUE NaN.a FROM NaN', [{ a: 1 }])).toEqual([1]);
  });
});

describe('the current time', () => {
  const context = { nowMs: 1_594_336_813_457 };
  it.each([
    ['GetCurrentDateTime()', '2020-07-09T23:20:13.4570000Z'],
    ['GetCurrentDateTimeStatic()', '2020-07-09T23:20:13.4570000Z'],
    ['GetCurrentTicks()', 15_943_368_134_570_000],
    ['GetCurrentTicksStatic()', 15_943_368_134_570_000],
    ['GetCurrentTimestamp()', 1_594_336_813_457],
    ['GetCurrentTimestampStatic()', 1_594_336_813_457],
    ['Now()', '2020-07-09T23:20:13.4570000Z'],
    ["Now('hh', 24)", '2020-07-10T23:20:13.4570000Z'],
    ["Now('hh')", undefined],
    ["Ago('hh', 24)", '2020-07-08T23:20:13.4570000Z'],
    ["Ago('mm', -1)", '2020-08-09T23:20:13.4570000Z'],
    ["Ago('fortnight', 1)", undefined],
    ["Ago('dd', 'one')", undefined],
  ])('%s comes from the caller', (expression, expected) => {
    expect(valueOf(expression, context)).toBe(expected);
  });
});

describe('every function', () => {
  const names = [...builtIns.keys()];
  it.each(names)('%s takes any values without failing, and its name in any case', (name) => {
    const builtIn = builtIns.get(name);
    const values = [
      'undefined',
      'null',
      'true',
      '-1.5',
      '3',
      "''",
      "'a'",
      '[]',
      '[1, 2]',
      '{}',
      '{a: 1}',
      'NaN',
      'Infinity',
    ];
    const count = Math.min(builtIn?.maxArguments ?? 0, 3);
    const mixed = name.split('').map((letter, index) => (index % 2 === 0 ? letter.toLowerCase() : letter));
    for (let round = 0; round < values.length ** count; round += 7) {
      const chosen = Array.from(
        { length: count },
        (_, place) => values[Math.floor(round / values.length ** place) % values.length],
      );
      const args = [...chosen, ...Array.from({ length: Math.max(0, (builtIn?.minArguments ?? 0) - count) }, () => '1')];
      const result = rows(`SELECT VALUE ${mixed.join('')}(${args.join(', ')})`);
      expect(result.length).toBeLessThanOrEqual(1);
      expect(JSON.parse(JSON.stringify(result))).toEqual(result);
    }
  });
});
