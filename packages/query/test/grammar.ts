import fc from 'fast-check';
import type { Json } from '../src/index.ts';

/** A query whose constants stand between these marks, so that they can be written in other ways. */
const OPEN = '«';
const CLOSE = '»';

/** The query without the marks. */
export const plain = (text: string): string => text.replaceAll(/[«»]/g, '');

/** The same with constants that are known only when the query runs. */
export const unfolded = (text: string): string =>
  text.replaceAll(/«([^»]*)»/g, (_, constant: string) => `IIF(RAND() >= 0, ${constant}, 0)`);

const words = ['', 'a', 'ab', 'B', 'a%b', 'x_y', '9', 'true', 'ü'];
const scalar = fc.constantFrom<Json>(null, true, false, -1, 0, 1, 2, 2.5, ...words);
const { value } = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 2, depthSize: 'small' },
    { weight: 3, arbitrary: scalar },
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('k', 'v', 'n'), tie('value'), { maxKeys: 2 }),
  ),
}));

const number = fc.integer({ min: -1, max: 5 });
/** Mostly of the types that the property's name suggests. */
const usually = <T extends Json>(usual: fc.Arbitrary<T>): fc.Arbitrary<Json> =>
  fc.oneof({ weight: 5, arbitrary: usual }, value);

export const documents: fc.Arbitrary<readonly { readonly [name: string]: Json }[]> = fc
  .array(
    fc.record(
      {
        n: usually(number),
        m: usually(number),
        s: usually(fc.constantFrom(...words)),
        b: usually(fc.boolean()),
        list: fc.array(usually(number), { maxLength: 4 }),
        objs: fc.array(fc.record({ k: fc.constantFrom(...words), v: number }), { maxLength: 3 }),
        o: fc.record({ x: number, y: fc.constantFrom(...words), z: value }),
      },
      { requiredKeys: [] },
    ),
    { maxLength: 6 },
  )
  .map((all) =>
    all.map((one, index): { readonly [name: string]: Json } => ({ id: `i${index}`, pk: `p${index % 3}`, ...one })),
  );

const pick = (...texts: readonly string[]): fc.Arbitrary<string> => fc.constantFrom(...texts);
/** A text with gaps that other texts fill. */
const text = (strings: TemplateStringsArray, ...parts: readonly fc.Arbitrary<string>[]): fc.Arbitrary<string> =>
  fc.tuple(...parts).map((found) => strings.reduce((before, after, index) => `${before}${found[index - 1]}${after}`));

const constant = scalar.map((one) => `${OPEN}${typeof one === 'string' ? `'${one}'` : JSON.stringify(one)}${CLOSE}`);
const ofNumber = pick('c.n', 'c.m', 'c["n"]', 'c.o.x', 'c.list[0]', 'c.objs[1].v');
const ofText = pick('c.s', 'c.o.y', 'c.id', 'c.pk', 'c.objs[0].k');
const ofList = pick('c.list', 'c.objs', 'c.o.z');
const path = fc.oneof(ofNumber, ofText, ofList, pick('c.b', 'c.o', 'c.missing'));

const shallow = { maxDepth: 2, depthSize: 'small' } as const;

/** Expressions over a document `c`, by the type that they mostly have. */
export const expressions = fc.letrec<{ number: string; text: string; list: string; truth: string; any: string }>(
  (tie) => ({
    number: fc.oneof(
      shallow,
      ofNumber,
      number.map((one) => `${OPEN}${one}${CLOSE}`),
      text`(${tie('number')} ${pick('+', '-', '*', '/', '%', '&', '|', '^')} ${tie('number')})`,
      text`${pick('ABS', 'FLOOR', 'ROUND', 'SIGN')}(${tie('number')})`,
      text`LENGTH(${tie('text')})`,
      text`ARRAY_LENGTH(${tie('list')})`,
      text`INDEX_OF(${tie('text')}, ${tie('text')})`,
      text`(SELECT VALUE ${pick('COUNT', 'SUM', 'MIN', 'MAX', 'AVG')}(z) FROM z IN ${ofList})`,
      text`(${tie('truth')} ? ${tie('number')} : ${tie('number')})`,
      text`(${tie('number')} ?? ${tie('number')})`,
    ),
    text: fc.oneof(
      shallow,
      ofText,
      fc.constantFrom(...words).map((one) => `${OPEN}'${one}'${CLOSE}`),
      text`${pick('UPPER', 'LOWER', 'REVERSE', 'TRIM')}(${tie('text')})`,
      text`(${tie('text')} || ${tie('text')})`,
      text`CONCAT(${tie('text')}, ${tie('text')})`,
      text`SUBSTRING(${tie('text')}, ${tie('number')}, ${tie('number')})`,
      text`TOSTRING(${tie('any')})`,
      text`REPLACE(${tie('text')}, ${tie('text')}, ${tie('text')})`,
    ),
    list: fc.oneof(
      shallow,
      ofList,
      text`[${tie('any')}, ${tie('any')}]`,
      text`ARRAY(SELECT VALUE z FROM z IN ${ofList} WHERE z ${pick('=', '>', '!=')} ${constant})`,
      text`ARRAY_SLICE(${tie('list')}, ${tie('number')})`,
      text`SetUnion(${tie('list')}, ${tie('list')})`,
      text`StringSplit(${tie('text')}, ${tie('text')})`,
      text`REGEXEXTRACTALL(${tie('text')}, ${pick("'a|b'", "'[^a](.)'", "'.*?'")}, '', ${pick('0', '1')})`,
    ),
    truth: fc.oneof(
      shallow,
      pick('c.b', 'c.n'),
      text`(${tie('any')} ${pick('=', '!=', '<', '<=', '>', '>=')} ${tie('any')})`,
      text`(${path} ${pick('=', '!=', '<', '>=')} ${constant})`,
      text`(${tie('truth')} ${pick('AND', 'OR')} ${tie('truth')})`,
      text`(NOT ${tie('truth')})`,
      text`${pick('IS_DEFINED', 'IS_NULL', 'IS_NUMBER', 'IS_STRING', 'IS_ARRAY', 'IS_PRIMITIVE')}(${tie('any')})`,
      text`${pick('CONTAINS', 'STARTSWITH', 'ENDSWITH')}(${tie('text')}, ${tie('text')}, ${pick('true', 'false')})`,
      text`(${path} LIKE ${pick("'a%'", "'%b%'", "'_b'", "'[a-b]%'", "'%'")})`,
      text`(${path} IN (${constant}, ${constant}))`,
      text`(${tie('any')} BETWEEN ${constant} AND ${constant})`,
      text`EXISTS(SELECT VALUE z FROM z IN ${ofList} WHERE z = ${tie('any')})`,
      text`ARRAY_CONTAINS(${tie('list')}, ${tie('any')})`,
      text`REGEXMATCH(${tie('text')}, ${pick("'^a'", "'b$'", "'[A-C]'", "'.*'")}, 'i')`,
    ),
    any: fc.oneof(
      shallow,
      path,
      constant,
      tie('number'),
      tie('text'),
      tie('list'),
      tie('truth'),
      text`{'a': ${tie('any')}, 'b': ${tie('any')}}`,
      text`CHOOSE(${tie('number')}, ${tie('any')}, ${tie('any')})`,
    ),
  }),
);

const { any, number: aNumber, truth } = expressions;
const aggregate = text`${pick('COUNT', 'SUM', 'MIN', 'MAX', 'AVG', 'MAKELIST', 'MAKESET')}(${any})`;
const where = fc.oneof(fc.constant(''), text`WHERE ${truth}`);
const bounds = pick('', '', 'OFFSET 1 LIMIT 2', 'OFFSET 0 LIMIT 3');
const order = fc.oneof(
  fc.constant(''),
  text`ORDER BY ${path} ${pick('', 'ASC', 'DESC')}, ${aNumber} ${pick('', 'DESC')}`,
);
const from = fc.oneof(
  pick(
    'c',
    'c JOIN x IN c.list',
    'c JOIN x IN c.objs JOIN y IN c.list',
    'c JOIN x IN (SELECT VALUE w FROM w IN c.objs)',
  ),
  text`(SELECT * FROM e ${pick('', 'WHERE e.n > 0', 'WHERE e.s != e.n')}) AS c`,
  text`(SELECT VALUE e FROM e ORDER BY e.n, e.id ${pick('', 'OFFSET 0 LIMIT 3')}) AS c`,
);

/** Queries with all clauses over documents `c`. */
export const queries = fc.oneof(
  text`SELECT VALUE ${any} FROM ${from} ${where} ${order} ${bounds}`,
  text`SELECT ${any} AS f, ${any} AS g FROM ${from} ${where} ${order} ${bounds}`,
  text`SELECT DISTINCT VALUE ${any} FROM ${from} ${where} ${order} ${bounds}`,
  text`SELECT TOP 2 VALUE ${any} FROM ${from} ${where} ${order}`,
  text`SELECT VALUE ${aggregate} FROM ${from} ${where}`,
  text`SELECT ${aggregate} AS f, ${aggregate} AS g FROM ${from} ${where}`,
  fc
    .tuple(any, aggregate, from, where, pick('', 'ASC', 'DESC'), bounds)
    .filter(([key]) => !key.startsWith(OPEN))
    .map(
      ([key, other, source, filter, direction, bound]) =>
        `SELECT ${key} AS k, ${other} AS f FROM ${source} ${filter} GROUP BY ${key} ${direction === '' ? '' : `ORDER BY ${key} ${direction}`} ${bound}`,
    ),
);
