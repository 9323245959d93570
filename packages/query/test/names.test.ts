import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonText, parseJson } from '../src/index.ts';
import type { Json } from '../src/index.ts';
import { rows } from './run.ts';

const again = (json: string): string => jsonText(parseJson(json));

describe('names that are integers', () => {
  it.each([
    '{"z":1,"2":"b","1":"a","01":"c","4294967295":"d","4294967294":"e","y":1}',
    '{"$type":"System.Collections.Generic.Dictionary","10":{"$type":"Order","7":[],"lines":[{"b":1,"0":2}]},"9":null}',
    '[{"a":{"1":9007199254740993,"0":1.5},"0":-0.5}]',
    '{"a":1,"4294967294":2}',
    '{"a\\"2":{},"__proto__":{"x":true,"1":false},"":"\\"1\\":","0":[[{"b":"\\\\","3":1}]]}',
  ])('stay where they were written: %s', (json) => {
    expect(again(json)).toBe(json);
  });

  it('have the place of the first and the value of the last if a name occurs twice', () => {
    expect(again('{"z":{"b":1,"1":2},"1":0,"z":{"1":3,"b":[{"y":1,"0":1}]}}')).toBe(
      '{"z":{"1":3,"b":[{"y":1,"0":1}]},"1":0}',
    );
  });

  it('keep the order that they have in the document, or in the query', () => {
    const document = parseJson('{"id":"a","by":{"z":1,"2":"b","1":{"y":1,"0":2}},"5":1}') as { [name: string]: Json };
    const texts = (query: string) => rows(query, [document]).map(jsonText);
    expect(texts('SELECT * FROM c')).toEqual([jsonText(document)]);
    expect(texts('SELECT c.by, c["5"] FROM c')).toEqual(['{"by":{"z":1,"2":"b","1":{"y":1,"0":2}},"5":1}']);
    expect(texts('SELECT VALUE {"b": c.id, "2": c.by["1"], "1": c.none, "0": 1} FROM c')).toEqual([
      '{"b":"a","2":{"y":1,"0":2},"0":1}',
    ]);
    expect(texts('SELECT VALUE {"b": Infinity, "2": [c.by["1"], NaN]} FROM c')).toEqual([
      '{"b":"Infinity","2":[{"y":1,"0":2},"NaN"]}',
    ]);
    expect(texts('SELECT VALUE ObjectToArray(c.by, "k", "v")[0].k FROM c')).toEqual(['"z"']);
    expect(texts('SELECT VALUE StringToObject(\'{"b":1,"0":2}\') FROM c')).toEqual(['{"b":1,"0":2}']);
  });
});

it('can be next to undefined values, which are left out as in any other object', () => {
  expect(jsonText({ a: undefined, b: [undefined], '1': 2 })).toBe('{"1":2,"b":[null]}');
});

describe('names with escapes', () => {
  // Before 26.12, Node.js takes the first name for the second in the same place if it met that before:
  // https://github.com/nodejs/node/issues/63785
  it.each(
    [
      [String.raw`\"`, String.raw`\\`],
      [String.raw`\n`, String.raw`\\`],
      [String.raw`\\`, String.raw`\\`],
      [String.raw`\n\n`, String.raw`\\n`],
      [String.raw`x\ny`, String.raw`x\\n`],
      [String.raw`\u0001b`, String.raw`\\u`],
    ].map(([name, other], place) => [name, other, place]),
  )('%s is parsed correctly after %s in the same place', (name, other, place) => {
    JSON.parse(`{"${place}th":[],"${other}":0}`);
    const json = `{"${place}th":1,"${name}":{"x":9007199254740993}}`;
    expect(again(json)).toBe(json);
    const short = `{"${place}th":1,"${name}":2}`;
    expect(again(short)).toBe(short);
  });

  it('may have unnecessary escapes', () => {
    JSON.parse(String.raw`{"h":1,"\\":2}`);
    expect(parseJson(String.raw`{"h":1,"\u00e9":2}`)).toEqual({ h: 1, é: 2 });
    expect(parseJson(String.raw`{"h":1,"\/" :2}`)).toEqual({ h: 1, '/': 2 });
    expect(again(String.raw`{"b":"\"","\u0031" :2}`)).toBe(String.raw`{"b":"\"","1":2}`);
  });
});

describe('JSON of any names and values', () => {
  const names = [
    'a',
    '2',
    '1',
    '0',
    '01',
    '4294967295',
    '$type',
    '"',
    '\\',
    '\n',
    'a"2',
    'é',
    '',
    '__proto__',
    ' 5',
    '-1',
  ];
  const { value } = fc.letrec<{ value: string; scalar: string; array: string; object: string }>((tie) => ({
    value: fc.oneof({ maxDepth: 5, depthSize: 'large' }, tie('scalar'), tie('array'), tie('object')),
    scalar: fc.constantFrom(
      '1',
      '-2.5',
      'true',
      'null',
      '9007199254740993',
      '"x"',
      '"\\\\"',
      '"{\\"2\\":1}"',
      '""',
      '1e+21',
    ),
    array: fc.array(tie('value'), { maxLength: 3 }).map((items) => `[·${items.join('·,·')}·]`),
    object: fc
      .uniqueArray(fc.tuple(fc.constantFrom(...names), tie('value')), { maxLength: 4, selector: ([name]) => name })
      .map((members) => `{·${members.map(([name, of]) => `${JSON.stringify(name)}·:·${of}`).join('·,·')}·}`),
  }));

  it('is unchanged after it is read and written', () => {
    fc.assert(
      fc.property(value, fc.constantFrom('', ' ', '\r\n\t'), (written, blank) => {
        expect(again(written.replaceAll('·', blank))).toBe(written.replaceAll('·', ''));
      }),
      { numRuns: 2000 },
    );
  });
});
