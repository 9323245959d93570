import { describe, expect, it } from 'vitest';
import { parseQuery, planQuery, QueryError } from '../src/index.ts';
import { rows } from './run.ts';

function errorOf(sql: string): QueryError {
  try {
    rows(sql, [{ a: 1, list: [1, 2] }]);
  } catch (error) {
    if (error instanceof QueryError) return error;
    throw error;
  }
  throw new Error(`no error: ${sql}`);
}

describe('errors', () => {
  it('have the messages and places of Cosmos DB’s errors', () => {
    expect(errorOf('SELECT ^ FROM c').message).toBe(
      'Message: {"errors":[{"severity":"Error","location":{"start":7,"end":8},"code":"SC1001","message":"Syntax error, incorrect syntax near \'^\'."}]}',
    );
  });

  it.each([
    ['SELECT * FROM c WHERE', 21, 21, 'SC1002', 'Syntax error, unexpected end-of-file.'],
    ['', 0, 0, 'SC1002', 'Syntax error, unexpected end-of-file.'],
    ['SELECT * FROM root;', 18, 19, 'SC1010', "Syntax error, invalid token ';'."],
    ['SELECT * FROM 👻', 14, 16, 'SC1010', "Syntax error, invalid token '👻'."],
    ['SELECT VALUE @ FROM c', 13, 14, 'SC1010', "Syntax error, invalid token '@'."],
    ['SELECT "', 7, 8, 'SC1012', `Syntax error, invalid string literal token '"'.`],
    ["SELECT 'a\\", 7, 10, 'SC1012', "Syntax error, invalid string literal token ''a\\'."],
    ['SELECT BADFUNC(1) FROM c', 7, 14, 'SC2005', "'BADFUNC' is not a recognized built-in function name."],
    ['SELECT * FROM c WHERE STARTSWITH(c.a)', 22, 37, 'SC2050', 'The STARTSWITH function requires 2 to 3 argument(s).'],
    ['SELECT ABS(1, 2)', 7, 16, 'SC2050', 'The ABS function requires 1 argument(s).'],
    ['SELECT * FROM c GROUP BY c.a', 7, 8, 'SC2041', "'SELECT *' is not allowed with GROUP BY."],
    ['SELECT TOP 1.5 * FROM c', 11, 14, 'SC2060', 'The count value provided for a TOP clause must be an integer.'],
    [
      'SELECT TOP 4294967296 * FROM c',
      11,
      21,
      'SC2060',
      'The count value provided for a TOP clause must be an integer.',
    ],
    [
      'SELECT * FROM c OFFSET 0 LIMIT 4294967296',
      31,
      41,
      'SC2061',
      'The LIMIT count value exceeds the maximum allowed value.',
    ],
    [
      'SELECT * FROM c OFFSET 4294967296 LIMIT 1',
      23,
      33,
      'SC2062',
      'The OFFSET count value exceeds the maximum allowed value.',
    ],
    [
      'SELECT VALUE MAX(MIN(r)) FROM r',
      13,
      24,
      'SC2101',
      'Cannot perform an aggregate function on an expression containing an aggregate or a subquery.',
    ],
    [
      'SELECT c.a, c.list[0] FROM c GROUP BY c.a',
      12,
      21,
      'SC2102',
      "Property reference 'c.list[0]' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.",
    ],
    [
      'SELECT COUNT(1), c FROM c',
      17,
      18,
      'SC2102',
      "Property reference 'c' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.",
    ],
    [
      'SELECT TOP 2 * FROM c ORDER BY VectorDistance(c.v, [1]) ASC',
      31,
      55,
      'SC2210',
      'Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.',
    ],
    [
      'SELECT TOP 2 * FROM c ORDER BY VectorDistance(c.v, [1]) DESC',
      31,
      55,
      'SC2210',
      'Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.',
    ],
  ])('in %j are those of Cosmos DB', (sql, start, end, code, message) => {
    expect(errorOf(sql).errors).toEqual([{ severity: 'Error', location: { start, end }, code, message }]);
  });

  it.each([
    ['SELECT 1e999 FROM c', 7, 12],
    ['SELECT 1e999', 7, 12],
    ["SELECT '\\u12", 8, 12],
  ])('of %j point at the faulty part, and not beyond the end of the query', (sql, start, end) => {
    const message = `Syntax error, incorrect syntax near '${sql.slice(start, end)}'.`;
    expect(errorOf(sql).errors).toMatchObject([{ location: { start, end }, message }]);
  });

  it.each([
    ['selectttt', 'SC1001'],
    ['SELECT', 'SC1002'],
    ['SELECT FROM c', 'SC1001'],
    ['SELECT * FROM', 'SC1002'],
    ['SELECT * FROM c WHERE c.a =', 'SC1002'],
    ['SELECT * FROM c WHERE c.a == 1', 'SC1001'],
    ['SELECT * FROM c extra words', 'SC1001'],
    ['SELECT * FROM c; DROP', 'SC1010'],
    ["SELECT 'open", 'SC1012'],
    ["SELECT '\\x'", 'SC1001'],
    ["SELECT '\\u12'", 'SC1001'],
    ['SELECT /* open', 'SC1001'],
    ['SELECT 1a', 'SC1001'],
    ['SELECT 1e999', 'SC1001'],
    ['SELECT (1', 'SC1002'],
    ['SELECT [1', 'SC1002'],
    ['SELECT {a 1}', 'SC1001'],
    ['SELECT c.[0] FROM c', 'SC1001'],
    ['SELECT TOP x * FROM c', 'SC1001'],
    ['SELECT * FROM c OFFSET 1', 'SC1002'],
    ['SELECT * FROM c LIMIT 1', 'SC1001'],
    ['SELECT * FROM c GROUP c.a', 'SC1001'],
    ['SELECT TOP 1 * FROM c OFFSET 1 LIMIT 1', 'SC1001'],
    ["SELECT 1 LIKE 'a' ESCAPE 'bc'", 'SC1001'],
    ['SELECT VALUE x.a FROM c', 'SC2001'],
    ['SELECT VALUE c.a', 'SC2001'],
    ['SELECT VALUE families.a FROM families f', 'SC2001'],
    ['SELECT VALUE c.a FROM x IN c.list', 'SC2001'],
    ['SELECT VALUE C.a FROM c', 'SC2001'],
    ['SELECT VALUE (SELECT VALUE x FROM x IN nowhere.list) FROM c', 'SC2001'],
    ['SELECT * FROM c JOIN c IN c.list', 'SC2001'],
    ['SELECT NOSUCH(1)', 'SC2005'],
    ['SELECT constructor(1)', 'SC2005'],
    ['SELECT ABS()', 'SC2050'],
    ['SELECT *', 'SC2040'],
    ['SELECT * FROM c JOIN x IN c.list', 'SC2040'],
    ['SELECT TOP @p * FROM c', 'SC2060'],
    ["SELECT REGEXMATCH('a', '(?=a)')", 'SC2110'],
    ['SELECT udf.tax(c.a) FROM c', 'SC2201'],
    ["SELECT FullTextScore(c.a, 'x') FROM c", 'SC2110'],
    ["SELECT * FROM c ORDER BY FullTextScore(c.a, 'x')", 'SC2110'],
    ["SELECT RRF(FullTextScore(c.a, 'x'), FullTextScore(c.b, 'x')) FROM c", 'SC2005'],
    ["SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'x') DESC", 'SC1001'],
    ["SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 'x'), c.b", 'SC1001'],
    ['SELECT * FROM c ORDER BY RANK FullTextScore(c.a, c.b)', 'SC2110'],
    ['SELECT * FROM c ORDER BY RANK FullTextScore(c.a, 1)', 'SC2110'],
    ['SELECT * FROM c ORDER BY RANK c.a', 'SC2110'],
    ["SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.a, 'x'))", 'SC2050'],
    ["SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.a, 'x'), FullTextScore(c.b, 'x'), [1])", 'SC2110'],
    ["SELECT COUNT(1) FROM c ORDER BY RANK FullTextScore(c.a, 'x')", 'SC2201'],
    ['SELECT VALUE (SELECT VALUE x FROM x IN c.list) FROM c', 'SC2104'],
  ])('%j is %s', (sql, code) => {
    const error = errorOf(sql);
    expect(error.errors[0]?.code).toBe(code);
    expect(error.message).toBe(`Message: ${JSON.stringify({ errors: error.errors })}`);
  });

  it('tells with the service’s message where a score of texts may stand', () => {
    const words = 'The FullTextScore function is only allowed in the ORDER BY RANK clause.';
    expect(errorOf("SELECT FullTextScore(c.a, 'x') FROM c").message).toContain(words);
  });

  it('refuses a missing parameter if the caller needs all of them', () => {
    const plan = () => planQuery(parseQuery('SELECT * FROM c WHERE c.a = @p'), [], { needsParameters: true });
    expect(plan).toThrow("The parameter '@p' is used but not given.");
  });

  it('needs a time for the functions of the current time; its absence is a fault of the caller and not of the query', () => {
    expect(() => rows('SELECT GetCurrentTimestamp()')).toThrow('nowMs');
  });
});

describe('limits', () => {
  const nested = (open: string, inner: string, close: string, count: number): string =>
    `SELECT VALUE ${open.repeat(count)}${inner}${close.repeat(count)}`;

  it.each([
    ['parentheses', nested('(', '1', ')', 100_000)],
    ['brackets', nested('[', '1', ']', 100_000)],
    ['braces', nested('{a:', '1', '}', 50_000)],
    ['signs', nested('- ', '1', '', 100_000)],
    ['NOT', nested('NOT ', 'true', '', 50_000)],
    ['functions', nested('ABS(', '1', ')', 50_000)],
    ['subqueries', nested('(SELECT VALUE ', '1', ')', 10_000)],
    ['ternaries', nested('true ? 1 : ', '1', '', 20_000)],
    ['a sum', nested('', `1${' + 1'.repeat(60_000)}`, '', 1)],
    ['a path', `SELECT VALUE c${'.a'.repeat(100_000)} FROM c`],
    ['comparisons', nested('', `1${' = 1'.repeat(60_000)}`, '', 1)],
  ])('%s nested too deeply are refused', (_what, sql) => {
    expect(errorOf(sql).errors[0]?.code).toBe('SC3001');
  });

  it('accepts deep nesting within the limits', () => {
    expect(rows(nested('(', '1', ')', 150))).toEqual([1]);
    expect(rows(`SELECT VALUE 1${' + 1'.repeat(400)}`)).toEqual([401]);
  });

  it('takes a long chain of conditions', () => {
    const chain = Array.from({ length: 5_000 }, (_, n) => `c.a = ${n}`).join(' OR ');
    expect(rows(`SELECT VALUE c.a FROM c WHERE ${chain}`, [{ a: 4_999 }, { a: 5_000 }])).toEqual([4_999]);
    const list = Array.from({ length: 20_000 }, (_, n) => n).join(',');
    expect(rows(`SELECT VALUE c.a FROM c WHERE c.a IN (${list})`, [{ a: 19_999 }, { a: 20_000 }])).toEqual([19_999]);
  });

  it('accepts as many values as a query’s text has room for', () => {
    const ones = Array<string>(130_000).fill('1').join();
    expect(rows(`SELECT VALUE ARRAY_LENGTH([${ones}]) FROM c`, [{}])).toEqual([130_000]);
    expect(rows(`SELECT ${ones} FROM c`, [{}]).length).toBe(1);
    const ids = Array.from({ length: 300_000 }, (_, n) => `${n}`);
    const sql = "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id) OR c.id = 'x'";
    expect(rows(sql, [{ id: '299999' }, { id: 'x' }, { id: 'y' }], [{ name: '@ids', value: ids }])).toEqual([
      '299999',
      'x',
    ]);
  });

  it.each([
    ['a long value in a chain', `[${Array<string>(40_000).fill('c.n').join()}]${' ?? 1'.repeat(490)}`],
    ['one in many arrays', `${'['.repeat(190)}${Array<string>(40_000).fill('c.n').join()}${']'.repeat(190)}`],
  ])('finds the keys of groups quickly in %s', (_what, expression) => {
    const before = process.threadCpuUsage().user;
    expect(rows(`SELECT VALUE ${expression} FROM c GROUP BY c.n`, [{ n: 1 }]).length).toBe(1);
    // It used to take seconds.
    expect(process.threadCpuUsage().user - before).toBeLessThan(1_500_000);
  });

  it('refuses a text that is too long', () => {
    expect(() => parseQuery(`SELECT '${'x'.repeat(300_000)}'`)).toThrow('SC3020');
    expect(() => parseQuery('SELECT 1 + 1', { maxLength: 5 })).toThrow(
      'SC3020","message":"The SQL query text exceeded the maximum limit of 5 characters.',
    );
    expect(() => parseQuery('SELECT ((1))', { maxDepth: 2 })).toThrow('SC3001');
  });

  it('refuses texts and arrays that grow without bound', () => {
    let text = "REPLICATE('x', 10000)";
    for (let level = 0; level < 12; level += 1) text = `REPLACE(${text}, 'x', 'xx')`;
    expect(errorOf(`SELECT VALUE LENGTH(${text})`).errors[0]?.code).toBe('SC3001');
    expect(rows("SELECT VALUE REPLICATE('xx', 10000)")).toEqual([]);
  });
});
