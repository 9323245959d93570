import { expect, it } from 'vitest';
import { containsText, lastPlaceOf, placeOf, splitText } from '../src/values/text-search.ts';
import { rows } from './run.ts';

/** A text of a million random letters, the same each time. */
function letters(kinds: number): string {
  let state = 1;
  return Array.from({ length: 1_000_000 }, () => {
    state = (state * 48_271) % 2_147_483_647;
    return String.fromCharCode(97 + (state % kinds));
  }).join('');
}

it.each([1, 2, 3])(
  'long texts within long ones of %i letters are found where JavaScript’s engine finds them',
  (kinds) => {
    const text = letters(kinds);
    for (const sought of [
      text.slice(70, 270),
      text.slice(-200),
      `${text.slice(500, 700)}-`,
      `-${text.slice(0, 200)}`,
    ]) {
      // In texts of one letter, the engine would need a minute to search for an absent text.
      const absent = sought.includes('-');
      expect(containsText(text, sought)).toBe(!absent);
      expect(placeOf(text, sought)).toBe(absent ? -1 : text.indexOf(sought));
      expect(placeOf(text, sought, 100)).toBe(absent ? -1 : text.indexOf(sought, 100));
      expect(lastPlaceOf(text, sought)).toBe(absent ? -1 : text.lastIndexOf(sought));
      if (!absent) expect(splitText(text, sought)).toEqual(text.split(sought));
    }
  },
);

it.each([
  ['CONTAINS(c.text, c.first)', false],
  ['CONTAINS(c.text, c.last, true)', false],
  ['CONTAINS_ANY_CS(c.text, c.first, c.last)', false],
  ['INDEX_OF(c.text, c.first)', -1],
  ['LASTINDEXOF(c.text, c.last)', -1],
  ['LENGTH(REPLACE(c.text, c.first, c.last))', 800_000],
  ['ARRAY_LENGTH(STRINGSPLIT(c.text, c.first))', 1],
  ['IS_DEFINED(SubstringAfter(c.text, c.first))', false],
  ['IS_DEFINED(LastSubstringBefore(c.text, c.last))', false],
  ["c.text LIKE '%' || c.first || '%'", false],
  ['RegexMatch(c.text, LEFT(c.first, 2000))', false],
  ['LENGTH(TRIM(c.text, c.first))', 0],
  ['LENGTH(TRIM(c.text, c.others))', 800_000],
  ['ARRAY_CONTAINS(c.list, c.list[0])', true],
])('%s takes no time proportional to the product of two lengths', (call, expected) => {
  const half = 'a'.repeat(400_000);
  const others = String.fromCharCode(...Array.from({ length: 20_000 }, (_, n) => 0x4000 + n));
  const list = Array.from({ length: 1_000 }, (_, a) => ({ a }));
  const document = { text: half + half, first: `b${half}`, last: `${half}b`, others: others.repeat(20), list };
  expect(rows(`SELECT VALUE ${call} FROM c`, [document])).toEqual([expected]);
});

it('an object with very many properties is not searched for in very many others', () => {
  const wide = Object.fromEntries(Array.from({ length: 20_000 }, (_, n) => [`k${n}`, n]));
  const list = Array.from({ length: 20_000 }, (_, k0) => ({ k0 }));
  expect(() => rows('SELECT VALUE ARRAY_CONTAINS(c.list, c.wide) FROM c', [{ wide, list }])).toThrow('SC3001');
  expect(() => rows('SELECT VALUE ARRAY_CONTAINS(c.list, {k0: c.wide}) FROM c', [{ wide, list }])).toThrow('SC3001');
  expect(rows('SELECT VALUE ARRAY_CONTAINS(c.list, {k0: 7}) FROM c', [{ list }])).toEqual([true]);
});
