import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Regex } from '../src/regex/regex.ts';

const matches = (pattern: string, text: string, modifiers = ''): boolean | undefined =>
  Regex.compile(pattern, modifiers)?.matches(text);

describe('regular expressions', () => {
  const patterns = [
    'abc',
    'a.c',
    '^ab',
    'bc$',
    '^$',
    'a|b|',
    '(ab|cd)+',
    'a*b?c+',
    'a{2}',
    'a{2,}',
    'a{1,3}b',
    '[abc]',
    '[^abc]',
    '[a-c]x',
    '[a\\-c]',
    '[]a]',
    '\\d+',
    '\\w\\W',
    '\\s\\S',
    '\\bab\\b',
    'a\\Bb',
    '(?:a|b)c',
    '(?<name>a)b',
    'a+?b',
    '\\.',
    '\\x61',
    '\\u0062',
    '[\\d_]+$',
    '(a|)b',
    '((a)(b))*c',
    'a{0}b',
    '(a*)*b',
    '(^a|b$)',
    'x{,2}',
    '[\\w.]+@\\w+',
  ];
  const texts = [
    '',
    'abc',
    'ab',
    'aabbcc',
    'cdab',
    'ab cd',
    'a-c',
    'x.y',
    'aaa',
    'b',
    '12_a',
    'foo.bar@baz',
    ']',
    'a\nb',
    'ABC',
    'x{,2}',
    'aB\tz',
  ];

  it.each(patterns.filter((pattern) => pattern !== '[]a]'))('/%s/ matches what JavaScript says it does', (pattern) => {
    for (const modifiers of ['', 'i', 'm', 's', 'ims']) {
      const native = new RegExp(pattern, modifiers);
      for (const text of texts) {
        expect([modifiers, text, matches(pattern, text, modifiers)]).toEqual([modifiers, text, native.test(text)]);
      }
    }
  });

  it.each(['κως', 'κωσ', 'ΚΩΣ', 'κω[ςa]', 'κω[^ς]', 'κω[ρ-τ]'])('/%s/i treats the three sigmas as equal', (pattern) => {
    for (const text of ['κως', 'κωσ', 'ΚΩΣ', 'κωa', 'κωb']) {
      expect([text, matches(pattern, text, 'i')]).toEqual([text, new RegExp(pattern, 'i').test(text)]);
    }
  });

  it('agrees with JavaScript on random patterns and texts', () => {
    const atom = fc.constantFrom('a', 'b', '.', '[ab]', '[^a]', '\\w', '^', '$', '\\b', '(?:ab|a)', '(b|)');
    const piece = fc
      .tuple(atom, fc.constantFrom('', '', '*', '+', '?', '{1,2}'))
      .map(([text, times]) => (['^', '$', '\\b'].includes(text) ? text : text + times));
    const pattern = fc.array(fc.oneof(piece, fc.constant('|')), { maxLength: 6 }).map((pieces) => pieces.join(''));
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c', ' ', 'A'), maxLength: 8 });
    fc.assert(
      fc.property(pattern, text, fc.constantFrom('', 'i'), (source, input, modifiers) => {
        expect(matches(source, input, modifiers)).toBe(new RegExp(source, modifiers).test(input));
      }),
      { numRuns: 500 },
    );
  });

  /** The matches of JavaScript's engine, whole or of a group. */
  const natively = (pattern: string, text: string, group: number): (string | undefined)[] =>
    Array.from(text.matchAll(new RegExp(pattern, 'g')), (match) => match[group]);
  const extracted = (pattern: string, text: string, group: number): (string | undefined)[] => [
    ...Regex.compile(pattern, '')!.extract(text, group),
  ];

  it.each(patterns.filter((pattern) => pattern !== '[]a]'))(
    '/%s/ finds the same matches as JavaScript, in the same order',
    (pattern) => {
      for (const text of texts) {
        expect([text, extracted(pattern, text, 0)]).toEqual([text, natively(pattern, text, 0)]);
      }
    },
  );

  it('prefers the same match as JavaScript, for random patterns with lazy quantifiers and groups', () => {
    const atom = fc.constantFrom('a', 'b', '.', '[ab]', '[^a]', '(?:ab|a)', '(?:a|ab)');
    const piece = fc
      .tuple(atom, fc.constantFrom('', '', '*', '+', '?', '{1,2}', '*?', '+?', '??', '{1,2}?'))
      .map(([text, times]) => text + times);
    const pieces = fc.array(piece, { maxLength: 3 }).map((some) => some.join(''));
    const pattern = fc.tuple(
      pieces,
      fc.constantFrom('a|ab', 'ab|a|', 'b+', 'a*?b?', '.'),
      pieces,
      fc.constantFrom('', '?', '??'),
    );
    const text = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 10 });
    fc.assert(
      fc.property(pattern, text, fc.constantFrom(0, 1), ([before, group, after, times], input, number) => {
        // Engines differ in whether an optional group that may be empty is empty or left out.
        fc.pre(times === '' || !/^a\*|\|$/.test(group));
        const source = `${before}(${group})${times}${after}`;
        expect([source, extracted(source, input, number)]).toEqual([source, natively(source, input, number)]);
      }),
      { numRuns: 1_000 },
    );
  });

  it('skips spaces and comments with x', () => {
    expect(matches('a b # the end\n c', 'abc', 'x')).toBe(true);
    expect(matches('a b', 'ab')).toBe(false);
    expect(matches('[]a]', ']')).toBe(true);
  });

  it.each([
    ['alnum', /[0-9A-Za-z]/],
    ['alpha', /[A-Za-z]/],
    ['ascii', /[^\u0080-\uffff]/],
    ['blank', /[ \t]/],
    ['cntrl', /[^ -~\u0080-\uffff]/],
    ['digit', /[0-9]/],
    ['graph', /[!-~]/],
    ['lower', /[a-z]/],
    ['print', /[ -~]/],
    ['punct', /[!-/:-@[-`{-~]/],
    ['space', /[\t-\r ]/],
    ['upper', /[A-Z]/],
    ['word', /\w/],
    ['xdigit', /[0-9A-Fa-f]/],
  ])('has the class [:%s:] in sets, like PCRE', (name, expected) => {
    for (let code = 0; code < 300; code++) {
      const text = String.fromCharCode(code);
      const is = expected.test(text);
      const found = [`[[:${name}:]]`, `[[:^${name}:]]`, `[^[:${name}:]]`].map((pattern) => matches(pattern, text));
      expect([code, ...found]).toEqual([code, is, !is, !is]);
    }
  });

  it.each([
    ['^[[:alpha:]_-][[:alnum:]_-]*$', 'a-1_b', true],
    ['^[[:alpha:]_-][[:alnum:]_-]*$', '1a', false],
    ['[[:digit:][:punct:]]', 'a!', true],
    ['[[:upper:]]', 'a', true, 'i'],
    ['[^[:upper:]]', 'a', false, 'i'],
    // None of these is a class.
    ['^[:a]$', ':', true],
    ['^[[:a]$', '[', true],
    ['^[[:a[:digit:]]$', '5', true],
    ['^[[.]]$', '.]', true],
  ])('/%s/ on "%s" is %s', (pattern, text, expected, modifiers = '') => {
    expect(matches(pattern, text, modifiers)).toBe(expected);
  });

  it.each(['^(a+)+$', '(a|a)*b', '(a*)*b', '(.*)*x', '(a|aa)+$'])(
    '/%s/ is fast on a text made to be slow',
    (pattern) => {
      expect(matches(pattern, `${'a'.repeat(20_000)}!`)).toBe(false);
      expect(extracted(pattern, `${'a'.repeat(20_000)}!`, 1)).toEqual([]);
    },
  );

  it('are compiled quickly if they repeat nothing very often', () => {
    expect(matches('^(((((){9999}){9999}){9999}){9999}){9999}b', 'b')).toBe(true);
    expect(matches('^((){3}){2,}((|){2}){0}$', '')).toBe(true);
  });

  it.each([
    '(',
    ')',
    '[a',
    '*a',
    '\\',
    'a{3,2}',
    '[b-a]',
    'a|(b',
    '(?:',
    '[:alpha:]',
    '[[:alpa:]]',
    '[[.a.]]',
    '[[=a=]]',
    '[a-[:digit:]]',
  ])('/%s/ is invalid, and undefined', (pattern) => {
    expect(matches(pattern, 'a')).toBeUndefined();
  });

  it.each([
    'a**',
    'a*+',
    '(?=a)',
    '(?<!a)',
    '(?i)a',
    '(a)\\1',
    '\\p{L}',
    '\\xZZ',
    `a{999}{999}`,
    'x'.repeat(3_000),
    '('.repeat(500),
  ])('/%s/ is refused with a QueryError', (pattern) => {
    expect(() => matches(pattern, 'a')).toThrow('SC2110');
  });

  it('refuse a text that would take too many steps', () => {
    expect(() => matches('(a?){500}b', 'a'.repeat(100_000))).toThrow('steps');
    expect(() => extracted('(a?){500}b', 'a'.repeat(100_000), 1)).toThrow('steps');
    // Each search goes to the end of the text and finds nothing.
    expect(() => extracted('a.*b|a', 'a'.repeat(100_000), 0)).toThrow('steps');
  });
});
