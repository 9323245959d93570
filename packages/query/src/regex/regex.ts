import { containsText } from '../values/text-search.ts';
import { type Assertion, isLineEnd, isWord, NoPattern, refused, RegexParser } from './pattern.ts';
import { assemble, type Instruction } from './program.ts';

/**
 * The regular expressions of the query language. JavaScript's own engine backtracks: a client's pattern of ten characters can take hours,
 * and no limit on lengths prevents that. This engine follows all alternatives at once, so a search takes at most pattern × text steps. In
 * return, lookaround and backreferences, which can't be matched in this way, are refused.
 */
const MAX_PATTERN_LENGTH = 2_000;
/** The largest number of steps for one text. Beyond that, pattern or text are too large to be matched for each row. */
const MAX_STEPS = 5_000_000;

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

/** The places in the program that are reached at one place of the text. Each is contained at most once. */
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

  /** Adds a place. Returns true if it is new. */
  add(place: number): boolean {
    if (this.#marks[place] === this.#mark) return false;
    this.#marks[place] = this.#mark;
    this.places[this.count] = place;
    this.count += 1;
    return true;
  }
}

function matches(program: readonly Instruction[], text: string, pattern: string): boolean {
  let current = new Threads(program.length);
  let following = new Threads(program.length);
  current.clear();
  let steps = 0;
  const stack: number[] = [];
  /** Follows splits, jumps and assertions. Returns true if the end of the program is reached. */
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

/** The begin of a match, and the begin and end of the wanted group; -1 while the group has not matched. */
interface Note {
  readonly start: number;
  readonly groupStart: number;
  readonly groupEnd: number;
}

interface Found extends Note {
  readonly end: number;
}

/** Finds the matches of a pattern one after the other: the one that begins first, and among several of these the preferred one. */
class Search {
  readonly #program: readonly Instruction[];
  readonly #text: string;
  readonly #pattern: string;
  #current: Threads;
  #following: Threads;
  /** The notes of the threads in {@link #current} and in {@link #following}, which are in the order of preference. */
  #currentNotes: Note[] = [];
  #followingNotes: Note[] = [];
  #steps = 0;

  constructor(program: readonly Instruction[], text: string, pattern: string) {
    this.#program = program;
    this.#text = text;
    this.#pattern = pattern;
    this.#current = new Threads(program.length);
    this.#following = new Threads(program.length);
  }

  next(from: number): Found | undefined {
    let found: Found | undefined;
    this.#current.clear();
    for (let index = from; ; index += 1) {
      const start = { start: index, groupStart: -1, groupEnd: -1 };
      // New threads are only started while there is no match, since a match that begins later is never preferred.
      if (found === undefined) this.#reach(this.#current, this.#currentNotes, 0, index, start);
      if (this.#current.count === 0) return found;
      // A step of a thread with notes takes twice as long.
      this.#steps += 2 * this.#current.count;
      if (this.#steps > MAX_STEPS) refused(this.#pattern, 'it takes too many steps on a text this long');
      const ended = this.#step(index);
      if (ended !== undefined) found = { ...ended, end: index };
      if (index >= this.#text.length) return found;
      [this.#current, this.#following] = [this.#following, this.#current];
      [this.#currentNotes, this.#followingNotes] = [this.#followingNotes, this.#currentNotes];
    }
  }

  /** Advances all threads by one character. A thread that has matched ends all less preferred ones. */
  #step(index: number): Note | undefined {
    this.#following.clear();
    const code = this.#text.charCodeAt(index);
    for (let thread = 0; thread < this.#current.count; thread += 1) {
      const place = this.#current.places[thread] as number;
      const note = this.#currentNotes[thread] as Note;
      const instruction = this.#program[place] as Instruction;
      if (instruction.kind === 'match') return note;
      if (instruction.kind === 'character' && index < this.#text.length && instruction.test(code)) {
        this.#reach(this.#following, this.#followingNotes, place + 1, index + 1, note);
      }
    }
    return undefined;
  }

  /** Adds a place, and the places that can be reached from it without reading a character. */
  #reach(threads: Threads, notes: Note[], from: number, index: number, fromNote: Note): void {
    const places = [from];
    const placeNotes = [fromNote];
    for (let place = places.pop(); place !== undefined; place = places.pop()) {
      const note = placeNotes.pop() as Note;
      if (!threads.add(place)) continue;
      notes[threads.count - 1] = note;
      const go = (next: number, nextNote = note) => {
        places.push(next);
        placeNotes.push(nextNote);
      };
      const instruction = this.#program[place] as Instruction;
      if (instruction.kind === 'jump') go(instruction.target);
      else if (instruction.kind === 'open') go(place + 1, { ...note, groupStart: index, groupEnd: -1 });
      else if (instruction.kind === 'close') go(place + 1, { ...note, groupEnd: index });
      else if (instruction.kind === 'assert' && holds(instruction.assertion, this.#text, index)) go(place + 1);
      else if (instruction.kind === 'split') {
        go(instruction.second);
        go(instruction.first);
      }
    }
  }
}

/** Patterns in which each character only stands for itself. They are searched as plain texts. */
const PLAIN_TEXT = /^[\w \-:@/,;'"=<>!&%#~]*$/;

type Parsed = ReturnType<RegexParser['parse']>;

/** A regular expression, compiled with Cosmos DB's modifiers. */
export class Regex {
  readonly #pattern: string;
  /** Undefined for a plain text, which is only parsed when needed. */
  readonly #parsed: Parsed | undefined;
  /** The last program that was made: for the whole match (0), or for a group. */
  #program: { readonly group: number; readonly instructions: readonly Instruction[] } | undefined;

  private constructor(pattern: string, parsed: Parsed | undefined) {
    this.#pattern = pattern;
    this.#parsed = parsed;
    // The program is made now, so that a pattern that is too large is refused at once.
    if (parsed !== undefined) this.#programFor(0);
  }

  /**
   * @param modifiers any of `i`, `m`, `s`, `x`
   * @returns undefined if a modifier does not exist, or the pattern is not valid
   * @throws QueryError if the pattern is too large, or uses lookaround or backreferences
   */
  static compile(pattern: string, modifiers: string): Regex | undefined {
    if (!/^[imsx]*$/.test(modifiers)) return undefined;
    if (pattern.length > MAX_PATTERN_LENGTH) refused(pattern, `it is longer than ${MAX_PATTERN_LENGTH} characters`);
    if (modifiers === '' && PLAIN_TEXT.test(pattern)) return new Regex(pattern, undefined);
    try {
      return new Regex(pattern, new RegexParser(pattern, modifiers).parse());
    } catch (error) {
      if (error instanceof NoPattern) return undefined;
      throw error;
    }
  }

  /** The number of capturing groups. */
  get groups(): number {
    return this.#parsed?.groups ?? 0;
  }

  /** Whether the pattern matches anywhere in a text. */
  matches(text: string): boolean {
    return this.#parsed === undefined
      ? containsText(text, this.#pattern)
      : matches(this.#programFor(0), text, this.#pattern);
  }

  /**
   * Yields the text of a group in each match, from left to right; undefined if the group takes no part in the match.
   *
   * @param group the group's number, from 1 to {@link groups}; 0 for the whole match
   */
  *extract(text: string, group: number): Generator<string | undefined, undefined> {
    const search = new Search(this.#programFor(group), text, this.#pattern);
    for (let from = 0; from <= text.length;) {
      const found = search.next(from);
      if (found === undefined) return undefined;
      const { start, end, groupStart, groupEnd } = found;
      if (group === 0) yield text.slice(start, end);
      else yield groupEnd === -1 ? undefined : text.slice(groupStart, groupEnd);
      from = end === start ? end + 1 : end;
    }
    return undefined;
  }

  #programFor(group: number): readonly Instruction[] {
    if (this.#program?.group !== group) {
      const { tree } = this.#parsed ?? new RegexParser(this.#pattern, '').parse();
      this.#program = { group, instructions: assemble(this.#pattern, tree, group) };
    }
    return this.#program.instructions;
  }
}
