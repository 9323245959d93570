import { queryError } from '../errors.ts';
import { boundedCharacters, charactersOf } from '../functions/bounds.ts';
import type { Memory } from '../values/memory.ts';
import type { Value } from '../values/values.ts';
import type { FunctionCalls } from './calls.ts';

/**
 * What a compiled expression reads while a query runs. One frame serves a whole run: every alias, aggregate and
 * group key of the query and of its subqueries has a place of its own, so nothing is allocated per row.
 */
export interface Frame {
  /** The value of each alias. */
  readonly slots: Value[];
  /** The result of each aggregate, while a group's row is made. */
  readonly aggregates: Value[];
  /** The value of each GROUP BY expression, likewise. */
  readonly groupKeys: Value[];
  /** Milliseconds since the epoch, or undefined when the caller gave no time. */
  readonly nowMs: number | undefined;
  /** What all parts of the query hold until the last document. */
  readonly memory: Memory;
  /** What is done on the document at hand. */
  readonly work: Work;
  /** The results of user-defined functions; undefined when the caller gave none to call. */
  readonly calls: FunctionCalls | undefined;
}

/** A node of an expression is a unit of work, which takes some nanoseconds. */
const UNITS_PER_STEP = 8;
/** Binary logarithm of the characters that are looked through in a unit. */
const CHARACTERS_PER_UNIT = 3;
const UNITS_PER_ELEMENT = 4;
/** A call of a user-defined function, which takes some microseconds elsewhere. */
const UNITS_PER_CALL = 500;
/** Units for each document that count as nothing: most queries stay below them. */
const FREE_UNITS = 1_000;
/** The clock is asked for every so many steps, a power of two. */
const STEPS_PER_LOOK = 64;
/** And after so many units, of which one step may take any number. */
const UNITS_PER_LOOK = 8 * 1024;

/** Characters of the large values that may be there at once of what is made for one row: those of 16 of the largest documents. */
const MOST_MADE = 32 * 1024 * 1024;
/** What an element of an array that is made counts as. */
const CHARACTERS_PER_ELEMENT = 16;

/** Limits on the work on one document. */
export interface WorkLimits {
  /** Elements that JOINs and subqueries may iterate over. */
  readonly maxSteps: number;
  readonly maxMs: number;
  /** In milliseconds since any time; undefined when nobody asks. */
  readonly monotonicMs: (() => number) | undefined;
  /** What is thrown past `maxMs`, in place of a QueryError. */
  readonly tooLong: (() => Error) | undefined;
}

/** What a run works, of which queries in FROM have one with the query around them. */
export class Work {
  readonly #limits: WorkLimits;
  #stepsLeft: number;
  /** When the time was first asked for the document at hand. */
  #startedMs: number | undefined;
  #units = 0;
  /** Since the clock was asked, those that cost nothing too. */
  #unitsAfterLook = 0;
  /** Of the documents before. */
  #extra = 0;
  #made = 0;

  constructor(limits: WorkLimits) {
    this.#limits = limits;
    this.#stepsLeft = limits.maxSteps;
  }

  /** Of another run over the same documents, within the same limits. */
  another(): Work {
    return new Work(this.#limits);
  }

  /** Units beyond those that each document has for nothing: the same for each run over the same documents. */
  get extra(): number {
    return this.#extra + Math.max(0, this.#units - FREE_UNITS);
  }

  beginDocument(): void {
    this.#extra = this.extra;
    this.#units = 0;
    this.#stepsLeft = this.#limits.maxSteps;
    this.#startedMs = undefined;
    this.#made = 0;
  }

  /** Characters of the large values that were made for the row at hand and may be needed yet. */
  get made(): number {
    return this.#made;
  }

  /**
   * Of what was made since there was so much, that many characters are needed any longer.
   *
   * @throws QueryError when that is more than there may be at once
   */
  keepOf(made: number, characters: number): void {
    this.#made = made + characters;
    if (this.#made > MOST_MADE) {
      throw queryError('tooComplex', 'The query makes too many large values of one document. Ask less at once.');
    }
  }

  add(units: number): void {
    this.#units += units;
  }

  /** A user-defined function is called, with arguments of so many characters. */
  addCall(characters: number): void {
    this.#units += UNITS_PER_CALL + (characters >> CHARACTERS_PER_UNIT);
  }

  /** The expressions of a row are gone through, of which each is a unit. */
  addRow(units: number): void {
    this.#units += units;
    this.#pass(units);
  }

  /**
   * So many characters of a value are looked through in passing: to see that it is not too large, to keep it, or to tell
   * it from others. That costs nothing, but takes its time, and for each row of a JOIN anew.
   */
  lookThrough(characters: number): void {
    this.#pass(characters >> CHARACTERS_PER_UNIT);
  }

  /** So many nodes of an expression are gone through once more, which their query has counted. */
  passNodes(nodes: number): void {
    this.#pass(nodes);
  }

  #pass(units: number): void {
    this.#unitsAfterLook += units;
    if (this.#unitsAfterLook < UNITS_PER_LOOK) return;
    this.#unitsAfterLook = 0;
    if (this.takesTooLong()) throw tooLongOnValues();
  }

  /** An element is bound. */
  step(): void {
    this.#units += UNITS_PER_STEP;
    this.#stepsLeft -= 1;
    const isOver = this.#stepsLeft < 0 || ((this.#stepsLeft & (STEPS_PER_LOOK - 1)) === 0 && this.takesTooLong());
    if (isOver) {
      throw queryError(
        'tooComplex',
        'The query iterates over too many array elements of one document. Filter inside the JOIN, or join fewer arrays.',
      );
    }
  }

  takesTooLong(): boolean {
    const { monotonicMs, maxMs, tooLong } = this.#limits;
    const nowMs = monotonicMs?.();
    if (nowMs === undefined) return false;
    this.#startedMs ??= nowMs;
    const isLate = nowMs - this.#startedMs > maxMs;
    if (isLate && tooLong !== undefined) throw tooLong();
    return isLate;
  }
}

/** Characters from which on it is asked how long work on a text has taken. */
const MANY_CHARACTERS = 4096;

/**
 * To be called before work that takes the longer the larger a value is: a query of a few thousand function calls can do
 * it as often with a text of megabytes.
 *
 * @throws QueryError when the document at hand has taken too long
 */
export function askTime(frame: Frame, value: Value): void {
  if (typeof value === 'string') {
    frame.work.add(value.length >> CHARACTERS_PER_UNIT);
    if (value.length >= MANY_CHARACTERS) assertTime(frame);
  } else if (typeof value === 'object' && value !== null) {
    if (Array.isArray(value)) frame.work.add(UNITS_PER_ELEMENT * value.length);
    assertTime(frame);
  }
}

/** The same before two values are compared, for which no more is looked through than the shorter of both has. */
export function askTimeToCompare(frame: Frame, one: Value, other: Value): void {
  if (typeof one === 'string') {
    if (typeof other === 'string') askTime(frame, one.length <= other.length ? one : other);
  } else if (Array.isArray(one)) {
    if (Array.isArray(other)) askTime(frame, one.length <= other.length ? one : other);
  } else askTime(frame, one);
}

/** Characters of a value that was made just now, if it is large. */
export function sizeMade(value: Value): number {
  if (typeof value === 'string') return value.length >= MANY_CHARACTERS ? value.length : 0;
  return Array.isArray(value) ? CHARACTERS_PER_ELEMENT * value.length : 0;
}

/** Of work that takes so many units for each character of a value as JSON. */
export function countWork(frame: Frame, value: Value, unitsPerCharacter: number): void {
  frame.work.add(unitsPerCharacter * charactersOf(value));
}

export function assertTime(frame: Frame): void {
  if (frame.work.takesTooLong()) throw tooLongOnValues();
}

const tooLongOnValues = (): Error =>
  queryError('tooComplex', 'The query works too long on the large values of one document. Ask less at once.');

/**
 * A value of a row that is to be kept, compared or shown.
 *
 * @throws QueryError for one that is too large, and when the document at hand has taken too long
 */
export function boundedIn<T extends Value>(frame: Frame, value: T): T {
  if (typeof value === 'object') frame.work.lookThrough(boundedCharacters(value));
  return value;
}

export type Compiled = (frame: Frame) => Value;
export type CompiledTest = (frame: Frame) => boolean;
