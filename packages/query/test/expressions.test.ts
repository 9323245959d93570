import { describe, expect, it } from 'vitest';
import { rows, valueOf } from './run.ts';

describe('literals', () => {
  it.each([
    ["'it\\'s'", "it's"],
    ['"say \\"no\\""', 'say "no"'],
    ["'\\u00e9\\n\\t\\/\\\\'", 'é\n\t/\\'],
    ['0x1F', 31],
    ['1.5e3', 1500],
    ['.5', 0.5],
    ['-7', -7],
    ['- 7', -7],
    ['TRUE', true],
    ['null', null],
    ['undefined', undefined],
    ['[1, undefined, "x"]', [1, 'x']],
    ['{a: 1, \'b c\': [true], "d": undefined}', { a: 1, 'b c': [true] }],
    ['1 -- a comment\n + 1', 2],
    ['1 /* another\n one */ + 1', 2],
  ])('%s is %j', (expression, expected) => {
    expect(valueOf(expression)).toEqual(expected);
  });
});

describe('operators', () => {
  it.each([
    ['1 + 2 * 3', 7],
    ['(1 + 2) * 3', 9],
    ['7 % 4 - 10 / 4', 0.5],
    ['10 - 3 - 2', 5],
    ['1 / 0', undefined],
    ["1 + '1'", undefined],
    ['6 & 3 | 8 ^ 1', 11],
    ['~5', -6],
    ['1 << 4', 16],
    ['-16 >> 2', -4],
    ['-1 >>> 28', 15],
    ["'a' || 'b' = 'ab'", true],
    ["'a' || 1", undefined],
    ['5 & 1 = 1', true],
    ['1 | 2 + 3', 6],
    ['1 + 2 | 3', 3],
    ['7 & 2 * 3', 6],
    ["'a' || 'b' || 'c' = 'abc'", true],
    ['1 << 2 + 1', 8],
    ['4 = 1 << 2', undefined],
    ['1 < 2 = true', true],
    ['true = 1 < 2', undefined],
    ['undefined ?? null ?? 1', null],
    ['undefined ?? undefined ?? 1', 1],
    ['true ? 1 : 2', 1],
    ["'x' ? 1 : 2", 2],
    ['undefined ? 1 : false ? 2 : 3', 3],
    ['NOT true', false],
    ['NOT (1 = 2)', true],
    ['NOT 1 = 2', undefined],
    ['NOT true = false', true],
    ['NOT 1 IN (2)', undefined],
    ['NOT true IN (true)', false],
    ['NOT false AND false', false],
    ["NOT 'a' LIKE 'b'", undefined],
    ["NOT 'a' NOT LIKE 'b'", undefined],
    ['NOT undefined', undefined],
    ['NOT 1', undefined],
  ])('%s is %j', (expression, expected) => {
    expect(valueOf(expression)).toEqual(expected);
  });
});

describe('comparisons', () => {
  it.each([
    ["1 = '1'", false],
    ["1 != '1'", true],
    ["1 <> '1'", true],
    ['null = null', true],
    ['null = false', false],
    ['undefined = undefined', undefined],
    ['undefined != 1', undefined],
    ["1 < '1'", undefined],
    ['null < 1', undefined],
    ['null <= null', true],
    ['false < true', true],
    ["'a' < 'b'", true],
    ["'B' < 'a'", true],
    ['{a: 1, b: [2]} = {b: [2], a: 1}', true],
    ['[1, 2] = [2, 1]', false],
    ['[1] < [2]', undefined],
    ['{a: 1} > {a: 0}', undefined],
    ['2 BETWEEN 1 AND 2', true],
    ['2 NOT BETWEEN 1 AND 2', false],
    ["'b' BETWEEN 'a' AND 'c'", true],
    ['false OR 2 BETWEEN 1 AND 2 AND true', true],
    ["2 BETWEEN 'a' AND 3", undefined],
    ["5 BETWEEN 'a' AND 3", false],
    ["1 IN ('1', 1)", true],
    ['1 NOT IN (1, 2)', false],
    ["'x' IN (1)", false],
    ['undefined IN (1)', undefined],
    ['[1] IN ([1], 2)', true],
  ])('%s is %j', (expression, expected) => {
    expect(valueOf(expression)).toEqual(expected);
  });

  it.each([
    [(inner: string) => `(${inner} BETWEEN false AND true)`, true],
    [(inner: string) => `(2 BETWEEN ${inner} AND 3)`, undefined],
    [(inner: string) => `(${inner} IN (true, 1))`, true],
  ])(
    'evaluates a compared value once, at any depth, because 100 nested ones would otherwise never end (%#)',
    (around, expected) => {
      let expression = '(c.n = 1)';
      for (let depth = 0; depth < 100; depth++) expression = around(expression);
      expect(rows(`SELECT VALUE [${expression}] FROM c`, [{ n: 1 }])).toEqual([
        expected === undefined ? [] : [expected],
      ]);
    },
  );
});

describe('three-valued logic', () => {
  const truth = { true: true, false: false, undefined } as const;
  const names = ['true', 'false', 'undefined'] as const;
  const cases = names.flatMap((a) => names.map((b) => [a, b] as const));
  it.each(cases)('%s AND %s, %s OR %s follow the truth table', (a, b) => {
    const both = [truth[a], truth[b]];
    const and = both.includes(false) ? false : both.includes(undefined) ? undefined : true;
    const or = both.includes(true) ? true : both.includes(undefined) ? undefined : false;
    expect(valueOf(`${a} AND ${b}`)).toBe(and);
    expect(valueOf(`${a} OR ${b}`)).toBe(or);
    // The same, if the operands are known only with the documents.
    const document = [{ ...(a === 'undefined' ? {} : { a: truth[a] }), ...(b === 'undefined' ? {} : { b: truth[b] }) }];
    expect(rows('SELECT VALUE c.a AND c.b FROM c', document)[0]).toBe(and);
    expect(rows('SELECT VALUE c.a OR c.b FROM c', document)[0]).toBe(or);
    expect(rows('SELECT VALUE 1 FROM c WHERE c.a AND c.b', document)).toHaveLength(and === true ? 1 : 0);
    expect(rows('SELECT VALUE 1 FROM c WHERE NOT (c.a OR c.b)', document)).toHaveLength(or === false ? 1 : 0);
  });

  it('counts a number in AND as undefined', () => {
    expect(valueOf('true AND 1')).toBe(undefined);
    expect(valueOf('false AND 1')).toBe(false);
  });
});

describe('LIKE', () => {
  it.each([
    ['abc', 'a%', true],
    ['abc', '%c', true],
    ['abc', '%b%', true],
    ['abc', '%', true],
    ['', '%', true],
    ['abc', 'abc', true],
    ['abc', 'ab', false],
    ['abc', 'a_c', true],
    ['ac', 'a_c', false],
    ['abc', 'a[a-c]c', true],
    ['abc', 'a[^b]c', false],
    ['a-c', 'a[x-]c', true],
    ['a]c', 'a[x-]c', false],
    ['n', '[a-zc-e]', true],
    ['n', '[m-ob-da-c]', true],
    ['l', '[m-oa-ka-c]', false],
    ['b', '[z-a]', false],
    ['b', '[^z-a]', true],
    ['b', '[]b', false],
    ['aXbXc', 'a%b%c', true],
    ['aXbXcd', 'a%b%c', false],
    ['aab', '%ab', true],
    ['ABC', 'abc', false],
    ['a[c', 'a[c', true],
    ['axb', '_%_', true],
    ['ab', 'a%%b', true],
  ])('%j LIKE %j is %j', (text, pattern, expected) => {
    expect(valueOf(`${JSON.stringify(text)} LIKE ${JSON.stringify(pattern)}`)).toBe(expected);
  });

  it('accepts an escape character, and is undefined for anything but strings', () => {
    expect(valueOf("'20%' LIKE '%!%' ESCAPE '!'")).toBe(true);
    expect(valueOf("'200' LIKE '%!%' ESCAPE '!'")).toBe(false);
    expect(valueOf("'ab' NOT LIKE 'b%'")).toBe(true);
    expect(valueOf("1 LIKE '%'")).toBe(undefined);
  });

  it('takes no more steps than pattern times text, however many % there are', () => {
    const document = { text: 'a'.repeat(5_000) };
    const pattern = `${'%a'.repeat(50)}%b_`;
    expect(rows('SELECT VALUE c.text LIKE @p FROM c', [document], [{ name: '@p', value: pattern }])).toEqual([false]);
  });

  it('parses a pattern once, however many brackets are open, and finds a character in a set by binary search', () => {
    const set = String.fromCharCode(...Array.from({ length: 20_000 }, (_, n) => 0x4000 + 2 * n).reverse());
    const document = { open: '['.repeat(1_000_000), set: `%[${set}]`, text: 'a'.repeat(500_000) };
    expect(rows('SELECT VALUE [c.text LIKE c.open, c.text LIKE c.set] FROM c', [document])).toEqual([[false, false]]);
    const other = { text: '\u4002', set: `[${set}]`, but: `[^${set}]` };
    expect(rows('SELECT VALUE [c.text LIKE c.set, c.text LIKE c.but] FROM c', [other])).toEqual([[true, false]]);
  });
});

describe('paths', () => {
  const document = { a: { 'b c': [10, { d: 'x' }], length: 1 }, list: [1, 2], text: 'abc', __proto__x: 1 };
  it.each([
    ['c.a["b c"][1].d', 'x'],
    ["c['a']['b c'][0]", 10],
    ['c.a["b" || " c"][0]', 10],
    ['c.a.length', 1],
    ['c.list.length', undefined],
    ['c.list["0"]', undefined],
    ['c.list[2]', undefined],
    ['c.list[0.5]', undefined],
    ['c.list[-1]', undefined],
    ['c.text[0]', undefined],
    ['c.text.length', undefined],
    ['c.toString', undefined],
    ['c.constructor', undefined],
    ['c.__proto__', undefined],
    ['c.missing.deeper.still', undefined],
    ['c.text.x', undefined],
    ['{a: [1, 2]}.a[1]', 2],
  ])('%s is %j', (path, expected) => {
    expect(rows(`SELECT VALUE ${path} FROM c`, [document])[0]).toEqual(expected);
  });

  it('treats a property named __proto__ as an ordinary one', () => {
    const odd = JSON.parse('{"__proto__": {"x": 1}, "id": "a"}') as { id: string };
    const [row] = rows('SELECT c.__proto__, c["__proto__"].x AS x FROM c', [odd]);
    expect(JSON.stringify(row)).toBe('{"__proto__":{"x":1},"x":1}');
    expect(JSON.stringify(rows("SELECT VALUE {'__proto__': 5}")[0])).toBe('{"__proto__":5}');
    expect(rows('SELECT VALUE c.x FROM c', [odd])).toEqual([]);
  });
});
