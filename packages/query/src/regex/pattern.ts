import { queryError } from '../errors.ts';

const MAX_DEPTH = 100;

export type CharacterTest = (code: number) => boolean;
export type Assertion = 'start' | 'end' | 'lineStart' | 'lineEnd' | 'boundary' | 'noBoundary';

export type Tree =
  | { readonly kind: 'empty' }
  | { readonly kind: 'character'; readonly test: CharacterTest }
  | { readonly kind: 'assert'; readonly assertion: Assertion }
  | { readonly kind: 'sequence'; readonly parts: readonly Tree[] }
  | { readonly kind: 'choice'; readonly options: readonly Tree[] }
  | { readonly kind: 'group'; readonly number: number; readonly inner: Tree }
  | {
      readonly kind: 'repeat';
      readonly inner: Tree;
      readonly min: number;
      readonly max: number;
      readonly lazy: boolean;
    };

interface Flags {
  readonly ignoreCase: boolean;
  readonly multiline: boolean;
  readonly dotAll: boolean;
  readonly extended: boolean;
}

const isDigit: CharacterTest = (code) => code >= 48 && code <= 57;
export const isWord: CharacterTest = (code) =>
  isDigit(code) || code === 95 || (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
const isSpace: CharacterTest = (code) => (code >= 9 && code <= 13) || code === 32 || code === 0xa0 || code === 0xfeff;
export const isLineEnd: CharacterTest = (code) => code === 10 || code === 13;
const not =
  (test: CharacterTest): CharacterTest =>
  (code) =>
    !test(code);

const CLASSES: Readonly<Record<string, CharacterTest>> = {
  d: isDigit,
  D: not(isDigit),
  w: isWord,
  W: not(isWord),
  s: isSpace,
  S: not(isSpace),
};
/** A test whether a code is in one of the ranges. Each is a pair of its least and its greatest code. */
const within =
  (...ranges: readonly (readonly [number, number])[]): CharacterTest =>
  (code) =>
    ranges.some(([least, greatest]) => code >= least && code <= greatest);
const UPPER = [65, 90] as const;
const LOWER = [97, 122] as const;
const DIGITS = [48, 57] as const;

/** The classes of POSIX, which are written in a set as `[:alpha:]`. They only contain ASCII characters, as in PCRE. */
const POSIX_CLASSES: ReadonlyMap<string, CharacterTest> = new Map([
  ['alnum', within(UPPER, LOWER, DIGITS)],
  ['alpha', within(UPPER, LOWER)],
  ['ascii', within([0, 127])],
  ['blank', within([9, 9], [32, 32])],
  ['cntrl', within([0, 31], [127, 127])],
  ['digit', isDigit],
  ['graph', within([33, 126])],
  ['lower', within(LOWER)],
  ['print', within([32, 126])],
  ['punct', within([33, 47], [58, 64], [91, 96], [123, 126])],
  ['space', within([9, 13], [32, 32])],
  ['upper', within(UPPER)],
  ['word', isWord],
  ['xdigit', within(DIGITS, [65, 70], [97, 102])],
]);

const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 };

export function refused(pattern: string, why: string): never {
  throw queryError('invalidValue', `The regular expression '${pattern.slice(0, 100)}' can't be used: ${why}.`);
}

/** Caches a test's results for the most frequent characters. */
function remembered(test: CharacterTest): CharacterTest {
  const known = new Uint8Array(128);
  return (code) => {
    if (code >= known.length) return test(code);
    if (known[code] === 0) known[code] = test(code) ? 1 : 2;
    return known[code] === 1;
  };
}

/** Σ, ς and σ: the one letter of words that has two in lower case. */
const SIGMAS: readonly number[] = [0x3a3, 0x3c2, 0x3c3];

function foldCase(test: CharacterTest): CharacterTest {
  return remembered((code) => {
    if (test(code)) return true;
    if (SIGMAS.includes(code)) return SIGMAS.some(test);
    const text = String.fromCharCode(code);
    const lower = text.toLowerCase();
    const upper = text.toUpperCase();
    return (lower.length === 1 && test(lower.charCodeAt(0))) || (upper.length === 1 && test(upper.charCodeAt(0)));
  });
}

/** Thrown if a text is no regular expression. Not thrown for one that this engine only does not support. */
export class NoPattern extends Error {}

/** Parses a pattern. Capturing groups are numbered from 1, in the order of their opening parentheses. */
export class RegexParser {
  readonly #pattern: string;
  readonly #flags: Flags;
  #index = 0;
  #depth = 0;
  #groups = 0;

  /** @param modifiers any of `i`, `m`, `s`, `x` */
  constructor(pattern: string, modifiers: string) {
    this.#pattern = pattern;
    this.#flags = {
      ignoreCase: modifiers.includes('i'),
      multiline: modifiers.includes('m'),
      dotAll: modifiers.includes('s'),
      extended: modifiers.includes('x'),
    };
  }

  parse(): { readonly tree: Tree; readonly groups: number } {
    const tree = this.#choice();
    if (this.#index < this.#pattern.length) this.#fail();
    return { tree, groups: this.#groups };
  }

  #fail(): never {
    throw new NoPattern();
  }

  #refuse(why: string): never {
    return refused(this.#pattern, why);
  }

  #peek(): string | undefined {
    if (this.#flags.extended) {
      const skipped = /(?:\s|#[^\n]*)*/y;
      skipped.lastIndex = this.#index;
      this.#index += skipped.exec(this.#pattern)?.[0].length ?? 0;
    }
    return this.#pattern[this.#index];
  }

  #accept(text: string): boolean {
    if (!this.#pattern.startsWith(text, this.#index)) return false;
    this.#index += text.length;
    return true;
  }

  #choice(): Tree {
    const options = [this.#sequence()];
    while (this.#peek() === '|') {
      this.#index += 1;
      options.push(this.#sequence());
    }
    return options.length === 1 ? (options[0] as Tree) : { kind: 'choice', options };
  }

  #sequence(): Tree {
    const parts: Tree[] = [];
    for (;;) {
      const next = this.#peek();
      if (next === undefined || next === '|' || next === ')') return { kind: 'sequence', parts };
      parts.push(this.#quantified(this.#atom()));
    }
  }

  #quantified(inner: Tree): Tree {
    const range = this.#quantifier();
    if (range === undefined) return inner;
    const lazy = this.#accept('?');
    if (this.#quantifier() !== undefined) this.#refuse('a quantifier follows a quantifier');
    return { kind: 'repeat', inner, min: range[0], max: range[1], lazy };
  }

  #quantifier(): readonly [number, number] | undefined {
    this.#peek();
    if (this.#accept('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.#accept('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.#accept('?')) return [0, 1];
    const counted = /\{(\d{1,4})(,(\d{0,4}))?\}/y;
    counted.lastIndex = this.#index;
    const match = counted.exec(this.#pattern);
    if (match === null) return undefined;
    this.#index += match[0].length;
    const min = Number(match[1]);
    const max = match[2] === undefined ? min : match[3] === '' ? Number.POSITIVE_INFINITY : Number(match[3]);
    if (max < min) this.#fail();
    return [min, max];
  }

  #atom(): Tree {
    const character = this.#pattern[this.#index] as string;
    this.#index += 1;
    switch (character) {
      case '(':
        return this.#group();
      case '[':
        // `[:alpha:]` outside of a set is an error; it must be written `[[:alpha:]]`.
        if (this.#posixAt(this.#index - 1) !== null) this.#fail();
        return this.#character(this.#set());
      case '.':
        return { kind: 'character', test: this.#flags.dotAll ? () => true : not(isLineEnd) };
      case '^':
        return { kind: 'assert', assertion: this.#flags.multiline ? 'lineStart' : 'start' };
      case '$':
        return { kind: 'assert', assertion: this.#flags.multiline ? 'lineEnd' : 'end' };
      case '\\':
        return this.#escape();
      case '*':
      case '+':
      case '?':
        return this.#fail();
      default:
        return this.#character(this.#exactly(character.charCodeAt(0)));
    }
  }

  #exactly(wanted: number): CharacterTest {
    return (code) => code === wanted;
  }

  #character(test: CharacterTest): Tree {
    return { kind: 'character', test: this.#flags.ignoreCase ? foldCase(test) : test };
  }

  #group(): Tree {
    const captures = this.#groupCaptures();
    if (captures) this.#groups += 1;
    const number = this.#groups;
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) this.#refuse('its groups are nested too deep');
    const inner = this.#choice();
    this.#depth -= 1;
    if (!this.#accept(')')) this.#fail();
    return captures ? { kind: 'group', number, inner } : inner;
  }

  /** Reads the type of a group, after its opening parenthesis. Returns whether the group captures. */
  #groupCaptures(): boolean {
    if (!this.#accept('?')) return true;
    const named = /P?<[A-Za-z_]\w*>/y;
    named.lastIndex = this.#index;
    const name = named.exec(this.#pattern)?.[0];
    if (name !== undefined) {
      this.#index += name.length;
      return true;
    }
    if (!this.#accept(':')) this.#refuse('lookaround and inline modifiers are not supported here');
    return false;
  }

  #escape(): Tree {
    const character = this.#pattern[this.#index];
    if (character !== undefined && /[1-9k]/.test(character)) {
      this.#refuse('backreferences are not supported here');
    }
    const assertions: Readonly<Record<string, Assertion>> = {
      b: 'boundary',
      B: 'noBoundary',
      A: 'start',
      z: 'end',
      Z: 'end',
    };
    const assertion = character === undefined ? undefined : assertions[character];
    if (assertion !== undefined) {
      this.#index += 1;
      return { kind: 'assert', assertion };
    }
    const test = this.#escapedTest();
    return this.#character(typeof test === 'number' ? this.#exactly(test) : test);
  }

  /** Reads the character after a backslash: the result is a class, or the code of one character. */
  #escapedTest(): CharacterTest | number {
    const character = this.#pattern[this.#index];
    if (character === undefined) return this.#fail();
    this.#index += 1;
    const group = CLASSES[character];
    if (group !== undefined) return group;
    const control = CONTROLS[character];
    if (control !== undefined) return control;
    if (character === 'x' || character === 'u') {
      const hex = this.#pattern.slice(this.#index, this.#index + (character === 'x' ? 2 : 4));
      if (!/^([0-9a-fA-F]{2}){1,2}$/.test(hex)) this.#refuse(`\\${character} needs hexadecimal digits`);
      this.#index += hex.length;
      return Number.parseInt(hex, 16);
    }
    if (/[a-zA-Z]/.test(character)) this.#refuse(`\\${character} is not supported here`);
    return character.charCodeAt(0);
  }

  #set(): CharacterTest {
    const negated = this.#accept('^');
    const tests: CharacterTest[] = [];
    let isFirst = true;
    for (;;) {
      const character = this.#pattern[this.#index];
      if (character === undefined) this.#fail();
      if (character === ']' && !isFirst) break;
      isFirst = false;
      const from = this.#setMember();
      const rangeTo = this.#pattern[this.#index + 1];
      if (typeof from === 'number' && this.#pattern[this.#index] === '-' && rangeTo !== ']' && rangeTo !== undefined) {
        this.#index += 1;
        const to = this.#setMember();
        if (typeof to !== 'number' || to < from) this.#fail();
        tests.push((code) => code >= from && code <= to);
      } else {
        tests.push(typeof from === 'number' ? this.#exactly(from) : from);
      }
    }
    this.#index += 1;
    const any = remembered((code) => tests.some((test) => test(code)));
    // Folding must come before negation: [^a] in a match that ignores case excludes A too.
    const folded = this.#flags.ignoreCase ? foldCase(any) : any;
    return negated ? not(folded) : folded;
  }

  /** Reads `[:name:]` or `[:^name:]`, if that comes next. An unknown name is an error, as in PCRE. */
  #posixClass(): CharacterTest | undefined {
    const match = this.#posixAt(this.#index);
    if (match === null) return undefined;
    const test = match[1] === ':' ? POSIX_CLASSES.get(match[3]!) : undefined;
    if (test === undefined) this.#fail();
    this.#index += match[0].length;
    return match[2] === '^' ? not(test) : test;
  }

  #posixAt(index: number): RegExpExecArray | null {
    const enclosed = /\[([:.=])(\^?)([^[\]\\]*)\1\]/y;
    enclosed.lastIndex = index;
    return enclosed.exec(this.#pattern);
  }

  #setMember(): CharacterTest | number {
    const posix = this.#posixClass();
    if (posix !== undefined) return posix;
    const character = this.#pattern[this.#index] as string;
    this.#index += 1;
    if (character !== '\\') return character.charCodeAt(0);
    if (this.#accept('b')) return 8;
    return this.#escapedTest();
  }
}
