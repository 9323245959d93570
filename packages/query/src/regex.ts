import { queryError } from './errors.ts';
import { containsText } from './text-search.ts';

/**
 * The regular expressions of REGEXMATCH. JavaScript's own engine backtracks: a pattern of ten characters, sent by a
 * client, can keep it busy for hours, and no limit on lengths prevents that. This one follows all alternatives at
 * once, so that a match takes at most pattern × text steps. The price is that lookaround and backreferences, which
 * can't be matched that way, are refused.
 */
const MAX_PATTERN_LENGTH = 2_000;
const MAX_INSTRUCTIONS = 5_000;
const MAX_DEPTH = 100;
/** Steps for one text; beyond, the pattern or the text is too large to be tried on every row. */
const MAX_STEPS = 5_000_000;

type CharacterTest = (code: number) => boolean;
type Assertion = 'start' | 'end' | 'lineStart' | 'lineEnd' | 'boundary' | 'noBoundary';

type Tree =
  | { readonly kind: 'empty' }
  | { readonly kind: 'character'; readonly test: CharacterTest }
  | { readonly kind: 'assert'; readonly assertion: Assertion }
  | { readonly kind: 'sequence'; readonly parts: readonly Tree[] }
  | { readonly kind: 'choice'; readonly options: readonly Tree[] }
  | { readonly kind: 'repeat'; readonly inner: Tree; readonly min: number; readonly max: number };

type Instruction =
  | { readonly kind: 'character'; readonly test: CharacterTest }
  | { readonly kind: 'assert'; readonly assertion: Assertion }
  | { readonly kind: 'split'; first: number; second: number }
  | { readonly kind: 'jump'; target: number }
  | { readonly kind: 'match' };

interface Flags {
  readonly ignoreCase: boolean;
  readonly multiline: boolean;
  readonly dotAll: boolean;
  readonly extended: boolean;
}

const isDigit: CharacterTest = (code) => code >= 48 && code <= 57;
const isWord: CharacterTest = (code) =>
  isDigit(code) || code === 95 || (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
const isSpace: CharacterTest = (code) => (code >= 9 && code <= 13) || code === 32 || code === 0xa0 || code === 0xfeff;
const isLineEnd: CharacterTest = (code) => code === 10 || code === 13;
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
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 };

function refused(pattern: string, why: string): never {
  throw queryError('invalidValue', `The regular expression '${pattern.slice(0, 100)}' can't be used: ${why}.`);
}

/** A test that is asked once for each of the most frequent characters. */
function remembered(test: CharacterTest): CharacterTest {
  const known = new Uint8Array(128);
  return (code) => {
    if (code >= known.length) return test(code);
    if (known[code] === 0) known[code] = test(code) ? 1 : 2;
    return known[code] === 1;
  };
}

function foldCase(test: CharacterTest): CharacterTest {
  return remembered((code) => {
    if (test(code)) return true;
    const text = String.fromCharCode(code);
    const lower = text.toLowerCase();
    const upper = text.toUpperCase();
    return (lower.length === 1 && test(lower.charCodeAt(0))) || (upper.length === 1 && test(upper.charCodeAt(0)));
  });
}

/** Thrown where a text is no regular expression, and not one that is merely too much for this engine. */
class NoPattern extends Error {}

class RegexParser {
  readonly #pattern: string;
  readonly #flags: Flags;
  #index = 0;
  #depth = 0;

  constructor(pattern: string, flags: Flags) {
    this.#pattern = pattern;
    this.#flags = flags;
  }

  parse(): Tree {
    const tree = this.#choice();
    if (this.#index < this.#pattern.length) this.#fail();
    return tree;
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
    // Whether a quantifier is lazy decides which match is found, not whether there is one.
    this.#accept('?');
    if (this.#quantifier() !== undefined) this.#refuse('a quantifier follows a quantifier');
    return { kind: 'repeat', inner, min: range[0], max: range[1] };
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
    if (this.#accept('?')) {
      const named = /P?<[A-Za-z_]\w*>/y;
      named.lastIndex = this.#index;
      const name = named.exec(this.#pattern)?.[0];
      if (name !== undefined) this.#index += name.length;
      else if (!this.#accept(':')) this.#refuse('lookaround and inline modifiers are not supported here');
    }
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) this.#refuse('its groups are nested too deep');
    const inner = this.#choice();
    this.#depth -= 1;
    if (!this.#accept(')')) this.#fail();
    return inner;
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

  /** What a backslash stands for: a class, or the code of one character. */
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

  #setMember(): CharacterTest | number {
    const character = this.#pattern[this.#index] as string;
    this.#index += 1;
    if (character !== '\\') return character.charCodeAt(0);
    if (this.#accept('b')) return 8;
    return this.#escapedTest();
  }
}

class Assembler {
  readonly instructions: Instruction[] = [];
  readonly #pattern: string;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  add(instruction: Instruction): number {
    if (this.instructions.length >= MAX_INSTRUCTIONS) refused(this.#pattern, 'it is too large');
    this.instructions.push(instruction);
    return this.instructions.length - 1;
  }

  emit(tree: Tree): void {
    switch (tree.kind) {
      case 'empty':
        return;
      case 'character':
      case 'assert':
        this.add(tree);
        return;
      case 'sequence':
        for (const part of tree.parts) this.emit(part);
        return;
      case 'choice':
        this.#choice(tree.options);
        return;
      case 'repeat':
        this.#repeat(tree.inner, tree.min, tree.max);
    }
  }

  #split(): { readonly kind: 'split'; first: number; second: number } {
    const split = { kind: 'split' as const, first: 0, second: 0 };
    this.add(split);
    split.first = this.instructions.length;
    return split;
  }

  #choice(options: readonly Tree[]): void {
    const jumps: { kind: 'jump'; target: number }[] = [];
    options.forEach((option, index) => {
      if (index === options.length - 1) {
        this.emit(option);
        return;
      }
      const split = this.#split();
      this.emit(option);
      const jump = { kind: 'jump' as const, target: 0 };
      this.add(jump);
      jumps.push(jump);
      split.second = this.instructions.length;
    });
    for (const jump of jumps) jump.target = this.instructions.length;
  }

  #repeat(inner: Tree, min: number, max: number): void {
    for (let count = 0; count < min; count += 1) {
      const { length } = this.instructions;
      this.emit(inner);
      // What comes to nothing comes to nothing again, and no limit on instructions would ever stop it.
      if (this.instructions.length === length) return;
    }
    if (max === Number.POSITIVE_INFINITY) {
      const loop = this.instructions.length;
      const split = this.#split();
      this.emit(inner);
      this.add({ kind: 'jump', target: loop });
      split.second = this.instructions.length;
      return;
    }
    const splits = [];
    for (let count = min; count < max; count += 1) {
      splits.push(this.#split());
      this.emit(inner);
    }
    for (const split of splits) split.second = this.instructions.length;
  }
}

function holds(assertion: Assertion, text: string, index: number): boolean {
  const wordBefore = index > 0 && isWord(text.charCodeAt(index - 1));
  const wordAfter = index < text.length && isWord(text.charCodeAt(index));
  switch (assertion) {
    case 'start':
      return index === 0;
    case 'end':
      return index === text.length;
    case 'lineStart':
      return index === 0 || isLineEnd(text.charCodeAt(index - 1));
    case 'lineEnd':
      return index === text.length || isLineEnd(text.charCodeAt(index));
    case 'boundary':
      return wordBefore !== wordAfter;
    case 'noBoundary':
      return wordBefore === wordAfter;
  }
}

/** The places in the program that are reached at one place of the text, each at most once. */
class Threads {
  readonly places: Int32Array;
  readonly #marks: Int32Array;
  count = 0;
  #mark = 0;

  constructor(size: number) {
    this.places = new Int32Array(size);
    this.#marks = new Int32Array(size);
  }

  clear(): void {
    this.count = 0;
    this.#mark += 1;
  }

  /** True when the place is new. */
  add(place: number): boolean {
    if (this.#marks[place] === this.#mark) return false;
    this.#marks[place] = this.#mark;
    this.places[this.count] = place;
    this.count += 1;
    return true;
  }
}

function run(program: readonly Instruction[], text: string, pattern: string): boolean {
  let current = new Threads(program.length);
  let following = new Threads(program.length);
  current.clear();
  let steps = 0;
  const stack: number[] = [];
  /** Follows splits, jumps and assertions; true when the end of the program is reached. */
  const reach = (threads: Threads, start: number, index: number): boolean => {
    stack.push(start);
    for (let place = stack.pop(); place !== undefined; place = stack.pop()) {
      if (!threads.add(place)) continue;
      const instruction = program[place] as Instruction;
      if (instruction.kind === 'match') return true;
      if (instruction.kind === 'jump') stack.push(instruction.target);
      else if (instruction.kind === 'split') stack.push(instruction.second, instruction.first);
      else if (instruction.kind === 'assert' && holds(instruction.assertion, text, index)) stack.push(place + 1);
    }
    return false;
  };
  for (let index = 0; ; index += 1) {
    // A match may begin anywhere, so a new thread starts at each character.
    if (reach(current, 0, index)) return true;
    if (index >= text.length) return false;
    steps += current.count;
    if (steps > MAX_STEPS) refused(pattern, 'it takes too many steps on a text this long');
    const code = text.charCodeAt(index);
    following.clear();
    for (let thread = 0; thread < current.count; thread += 1) {
      const place = current.places[thread] as number;
      const instruction = program[place] as Instruction;
      if (instruction.kind === 'character' && instruction.test(code) && reach(following, place + 1, index + 1)) {
        return true;
      }
    }
    [current, following] = [following, current];
  }
}

/**
 * Compiles a regular expression with Cosmos DB's modifiers (`i`, `m`, `s`, `x`) into a test of whether it matches
 * anywhere in a text. Undefined when there is no such modifier, or when the pattern isn't one; throws a QueryError for
 * a pattern that is too large, or needs lookaround or backreferences.
 */
export function compileRegex(pattern: string, modifiers: string): ((text: string) => boolean) | undefined {
  if (!/^[imsx]*$/.test(modifiers)) return undefined;
  if (pattern.length > MAX_PATTERN_LENGTH) refused(pattern, `it is longer than ${MAX_PATTERN_LENGTH} characters`);
  const flags: Flags = {
    ignoreCase: modifiers.includes('i'),
    multiline: modifiers.includes('m'),
    dotAll: modifiers.includes('s'),
    extended: modifiers.includes('x'),
  };
  if (modifiers === '' && /^[\w \-:@/,;'"=<>!&%#~]*$/.test(pattern)) return (text) => containsText(text, pattern);
  const assembler = new Assembler(pattern);
  try {
    assembler.emit(new RegexParser(pattern, flags).parse());
  } catch (error) {
    if (error instanceof NoPattern) return undefined;
    throw error;
  }
  assembler.add({ kind: 'match' });
  return (text) => run(assembler.instructions, text, pattern);
}
