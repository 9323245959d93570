import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Json, jsonText, jsonTextAgain, parseJson } from '../src/index.ts';

const again = (text: string): string => jsonTextAgain(parseJson(text), text);

describe('the text that a value was parsed from', () => {
  it.each([
    // Numbers keep their spelling, which shows that the text was kept.
    '[1e2,12e-3]',
    '[1e2,0,-1,12.5,0.01,1200]',
    '[1e2,[],{},"",true,false,null]',
    '{"id":"a","pk":"Ünï 漢字 🙂 ","n":1e2,"9":{"b":"","1":2}}',
  ])('is kept if nothing of it can be left out: %s', (text) => {
    expect(again(text)).toBe(text);
  });

  it.each([
    ['{"a":1, "b":2}', '{"a":1,"b":2}'],
    ['{"a":1,"a":2}', '{"a":2}'],
    // A short number makes room for a part that may not stay.
    ['{"a":1,"b":           1e20,"a":2}', '{"a":2,"b":100000000000000000000}'],
    ['{"a":1,"b": 1e9,"a":2}', '{"a":2,"b":1000000000}'],
    ['{ "a":3e3}', '{"a":3000}'],
    ['[ 1e-3]', '[0.001]'],
    ['[ 1e22]', '[1e+22]'],
    ['[ -7e-7]', '[-7e-7]'],
    ['[1.0,-0]', '[1,0]'],
    [String.raw`["\u0041"]`, '["A"]'],
    [String.raw`[ "\u000A"]`, String.raw`["\n"]`],
    ['9007199254740993', '9007199254740993'],
    ['1e16', '10000000000000000'],
  ])('is replaced by new text otherwise: %s', (text, written) => {
    expect(again(text)).toBe(written);
  });

  const space = fc.constantFrom('', '', '', '', ' ', '\n');
  const number = fc.oneof(
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.constantFrom(1e3, 1e-3, 5e20),
  );
  const numberText = fc
    .tuple(number, fc.nat(3))
    .map(([value, way]) =>
      way === 0 && value !== 0
        ? value.toExponential().replace('e+', 'e').replace('.0e', 'e')
        : way === 1 && Number.isSafeInteger(value)
          ? `${value}.0`
          : JSON.stringify(value),
    );
  const name = fc.constantFrom('a', 'b', '1', '__proto__', '🙂', '"', '\\');
  const { text: anyText } = fc.letrec<{ text: string }>((tie) => ({
    text: fc.oneof(
      { depthSize: 'small' },
      numberText,
      fc.string({ unit: 'binary', maxLength: 4 }).map((text) => JSON.stringify(text)),
      fc.constantFrom('true', 'false', 'null'),
      fc.array(tie('text'), { maxLength: 4 }).map((elements) => `[${elements.join(',')}]`),
      fc
        .array(fc.tuple(name, space, tie('text')), { maxLength: 4 })
        .map((members) => `{${members.map(([of, gap, value]) => `${JSON.stringify(of)}:${gap}${value}`).join(',')}}`),
    ),
  }));

  const membersOf = (value: Json): number =>
    typeof value !== 'object' || value === null
      ? 0
      : Object.values(value).reduce<number>((sum, part) => sum + membersOf(part), 0) +
        (Array.isArray(value) ? 0 : Object.keys(value).length);

  it('has the same value, no name twice and no spaces, whatever it was before', () => {
    let kept = 0;
    fc.assert(
      fc.property(anyText, (text) => {
        const found = again(text);
        kept += found === text ? 1 : 0;
        expect(jsonText(parseJson(found))).toBe(jsonText(parseJson(text)));
        const bare = found.replaceAll(/"(?:[^"\\]|\\.)*"/g, '');
        expect(bare).not.toMatch(/\s/);
        expect(bare.split(':').length - 1).toBe(membersOf(parseJson(found)));
      }),
      { numRuns: 300 },
    );
    expect(kept).toBeGreaterThan(10);
  });
});
