import { queryError } from '../errors.ts';
import type { SourceLocation } from '../errors.ts';
import { integerValue } from '../values/json-text.ts';

export type TokenKind = 'word' | 'string' | 'number' | 'parameter' | 'symbol' | 'end';

export interface Token extends SourceLocation {
  readonly kind: TokenKind;
  /** The text as written; of a parameter with its `@`. */
  readonly text: string;
  /** For a word, the text in upper case, to compare it with keywords; otherwise the text. */
  readonly upper: string;
  /** The value of a string or number literal. */
  readonly value: string | number | bigint;
}

const SYMBOLS = new Set(['>>>', '<<', '>>', '<=', '>=', '!=', '<>', '||', '??', ...'=<>+-*/%&|^~?:.,()[]{}']);
const LONGEST_SYMBOL = 3;
/** Symbols that are not the beginning of a longer one. */
const LONE_SYMBOLS = new Set('=+-*/%&^~:.,()[]{}');
const ASCII_WORD = /[A-Za-z_][A-Za-z0-9_]*/y;
const WORD = /[\p{L}_][\p{L}\p{Nd}_]*/uy;
const PARAMETER = /@[\p{L}\p{Nd}_]+/uy;
const NUMBER = /0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?/y;
const INTEGER = /^(?:0[xX].*|\d+)$/;
const SPACE = /\s+/y;
/** How many characters of a string an error shows. */
const MAX_SHOWN = 100;
const LINE_END = /[\r\n]|$/g;
const ESCAPES: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  '/': '/',
  '\\': '\\',
  "'": "'",
  '"': '"',
};

function matchAt(pattern: RegExp, text: string, index: number): string | undefined {
  pattern.lastIndex = index;
  return pattern.exec(text)?.[0];
}

function wordAt(text: string, index: number): string | undefined {
  const word = matchAt(ASCII_WORD, text, index);
  // The expression for letters of all scripts is slow, so it is only used if the word may have such letters.
  if (word === undefined ? isAscii(text, index) : isAscii(text, index + word.length)) return word;
  return matchAt(WORD, text, index);
}

/** True also at the end of the text. */
const isAscii = (text: string, index: number): boolean => !(text.charCodeAt(index) > 127);

/** The longest symbol at an index: `>>>` is not read as `>>` and `>`. */
function symbolAt(text: string, index: number): string | undefined {
  const first = text[index]!;
  if (LONE_SYMBOLS.has(first)) return first;
  for (let length = LONGEST_SYMBOL; length > 0; length -= 1) {
    const symbol = text.slice(index, index + length);
    if (SYMBOLS.has(symbol)) return symbol;
  }
  return undefined;
}

function incorrectSyntax(text: string, start: number, end: number): never {
  throw queryError('syntax', `Syntax error, incorrect syntax near '${text.slice(start, end)}'.`, { start, end });
}

/** Throws the error for a character with which no token begins. */
function invalidToken(text: string, start: number): never {
  const character = String.fromCodePoint(text.codePointAt(start)!);
  const at = { start, end: start + character.length };
  throw queryError('invalidToken', `Syntax error, invalid token '${character}'.`, at);
}

/** Throws the error for a string without an end. */
function openString(text: string, start: number): never {
  const literal = text.slice(start, start + MAX_SHOWN);
  const at = { start, end: text.length };
  throw queryError('openString', `Syntax error, invalid string literal token '${literal}'.`, at);
}

function readString(text: string, start: number): { value: string; end: number } {
  const quote = text[start];
  let value = '';
  let index = start + 1;
  let plainFrom = index;
  for (;;) {
    const character = text[index];
    if (character === undefined) openString(text, start);
    if (character === quote) {
      return { value: value + text.slice(plainFrom, index), end: index + 1 };
    }
    if (character !== '\\') {
      index += 1;
      continue;
    }
    value += text.slice(plainFrom, index);
    const escaped = text[index + 1];
    if (escaped === undefined) openString(text, start);
    if (escaped === 'u') {
      const hex = text.slice(index + 2, index + 6);
      if (!/^[0-9a-fA-F]{4}$/.test(hex)) incorrectSyntax(text, index, Math.min(index + 6, text.length));
      value += String.fromCharCode(Number.parseInt(hex, 16));
      index += 6;
    } else {
      const replacement = Object.hasOwn(ESCAPES, escaped) ? ESCAPES[escaped] : undefined;
      if (replacement === undefined) incorrectSyntax(text, index, index + 2);
      value += replacement;
      index += 2;
    }
    plainFrom = index;
  }
}

/** Splits a query into tokens. The last one has the kind `end`. Throws a QueryError at a text that is no token. */
export function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  let index = 0;
  const push = (kind: TokenKind, end: number, value: string | number | bigint): void => {
    const source = text.slice(index, end);
    const upper = kind === 'word' ? source.toUpperCase() : source;
    tokens.push({ kind, text: source, upper, value, start: index, end });
    index = end;
  };
  while (index < text.length) {
    const first = text[index]!;
    // The most frequent characters are checked first, since queries may be long.
    if (first === ' ') {
      index += 1;
      continue;
    }
    if (first === "'" || first === '"') {
      const { value, end } = readString(text, index);
      push('string', end, value);
      continue;
    }
    const word = wordAt(text, index);
    if (word !== undefined) {
      push('word', index + word.length, word);
      continue;
    }
    const space = matchAt(SPACE, text, index);
    if (space !== undefined) {
      index += space.length;
      continue;
    }
    if (first === '-' && text[index + 1] === '-') {
      LINE_END.lastIndex = index;
      index = LINE_END.exec(text)!.index;
      continue;
    }
    if (first === '/' && text[index + 1] === '*') {
      const close = text.indexOf('*/', index + 2);
      if (close === -1) incorrectSyntax(text, index, index + 2);
      index = close + 2;
      continue;
    }
    const number = matchAt(NUMBER, text, index);
    if (number !== undefined) {
      const end = index + number.length;
      const value = Number(number);
      // `1a` is neither a number nor a name, and a number too large for JSON has no value.
      if (wordAt(text, end) !== undefined) incorrectSyntax(text, index, end + 1);
      if (!Number.isFinite(value)) incorrectSyntax(text, index, end);
      push('number', end, INTEGER.test(number) ? integerValue(number) : value);
      continue;
    }
    if (first === '@') {
      const parameter = matchAt(PARAMETER, text, index);
      if (parameter === undefined) invalidToken(text, index);
      push('parameter', index + parameter.length, parameter);
      continue;
    }
    const symbol = symbolAt(text, index);
    if (symbol === undefined) invalidToken(text, index);
    push('symbol', index + symbol.length, symbol);
  }
  tokens.push({ kind: 'end', text: '', upper: '', value: '', start: text.length, end: text.length });
  return tokens;
}
