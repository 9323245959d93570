import { queryError } from '../errors.ts';
import { boundedCharacters, charactersOf } from '../functions/bounds.ts';
import type { Memory } from '../values/memory.ts';
import type { Value } from '../values/values.ts';
import type { FunctionCalls } from './calls.ts';

/**
 * The values that compiled expressions read while a query runs. There is one frame for a whole run: every alias, aggregate and group key of
 * the query and of its subqueries has its own place in it, so nothing is allocated per row.
 */
export interface Frame {
  /** The value of each alias. */
  readonly slots: Value[];
  /** The result of each aggregate, while the row of a group is made. */
  readonly aggregates: Value[];
  /** The value of each GROUP BY expression, while the row of a group is made. */
  readonly groupKeys: Value[];
  /** Milliseconds since the epoch; undefined if the caller gave no time. */
  readonly nowMs: number | undefined;
  /** Counts the memory that all parts of the query hold until the last document. */
  readonly memory: Memory;
  /** Counts the work on the current document. */
  readonly work: Work;
  /** The results of user-defined functions; undefined if the caller gave no functions. */
  readonly calls: FunctionCalls | undefined;
}

/** The work of a step, in units. A unit is the evaluation of one node of an expression, which takes some nanoseconds. */
const UNITS_PER_STEP = 8;
/** Binary logarithm of the number of characters that are read in a unit. */
const CHARACTERS_PER_UNIT = 3;
const UNITS_PER_ELEMENT = 4;
/** The work of a call of a user-defined function, which takes some microseconds on another thread. */
const UNITS_PER_CALL = 500;
/** This many units of each document are free. Most queries need fewer. */
const FREE_UNITS = 1_000;
/** The time is checked after this many steps. Must be a power of two. */
const STEPS_PER_LOOK = 64;
/** The time is also checked after this many units, since one step may take any number of units. */
const UNITS_PER_LOOK = 8 * 1024;

/** Limit for the characters of large values that exist at once while one row is made: those of 16 of the largest documents. */
const MOST_MADE = 32 * 1024 * 1024;
/** An element of a new array counts as this many characters. */
const CHARACTERS_PER_ELEMENT = 16;

/** Limits on the work on one document. */
export interface WorkLimits {
  /** The largest number of elements that JOINs and subqueries may iterate over. */
  readonly maxSteps: number;
  readonly maxMs: number;
  /** A monotonic clock in milliseconds, with any start; undefined if there is no limit of time. */
  readonly monotonicMs: (() => number) | undefined;
  /** Makes the error that is thrown after `maxMs`, instead of a QueryError. */
  readonly tooLong: (() => Error) | undefined;
}

/** Counts the work of a run. A query in FROM shares it with the query around it. */
export class Work {
  readonly #limits: WorkLimits;
  #stepsLeft: number;
  /** The time of the first check for the current document. */
  #startedMs: number | undefined;
  #units = 0;
  /** Units since the last check of the time, including those that are not charged. */
  #unitsAfterLook = 0;
  /** The units beyond the free ones of all former documents. */
  #extra = 0;
  #made = 0;

  constructor(limits: WorkLimits) {
    this.#limits = limits;
    this.#stepsLeft = limits.maxSteps;
  }

  /** The work of another run over the same documents, with the same limits. */
  another(): Work {
    return new Work(this.#limits);
  }

  /** The units beyond the free ones of each document. It is the same number for each run over the same documents. */
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

  /** Characters of the large values that were made for the current row, and may still be needed. */
  get made(): number {
    return this.#made;
  }

  /**
   * Says that of the values made since {@link made} was `made`, only so many characters are still needed.
   *
   * @throws QueryError if too many characters exist at once
   */
  keepOf(made: number, characters: number): void {
    this.#made = made + characters;
    if (this.#made > MOST_MADE) {
      throw queryError('tooComplex', 'The query computes too many large values for one document. Simplify it.');
    }
  }

  add(units: number): void {
    this.#units += units;
  }

  /** Counts a call of a user-defined function whose arguments have this many characters. */
  addCall(characters: number): void {
    this.#units += UNITS_PER_CALL + (characters >> CHARACTERS_PER_UNIT);
  }

  /** Counts the evaluation of a row's expressions. Each expression is a unit. */
  addRow(units: number): void {
    this.#units += units;
    this.#pass(units);
  }

  /**
   * Counts the reading of so many characters of a value, to check its size, to keep it or to compare it. This is not charged, but it takes
   * time, and may happen for each row of a JOIN.
   */
  lookThrough(characters: number): void {
    this.#pass(characters >> CHARACTERS_PER_UNIT);
  }

  /** Counts another evaluation of this many nodes, which were charged with their query already. */
  passNodes(nodes: number): void {
    this.#pass(nodes);
  }

  #pass(units: number): void {
    this.#unitsAfterLook += units;
    if (this.#unitsAfterLook < UNITS_PER_LOOK) return;
    this.#unitsAfterLook = 0;
    if (this.takesTooLong()) throw tooLongOnValues();
  }

  /** Counts an element that is bound by a JOIN or a subquery. */
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

/** Work on a text of at least this many characters checks the time. */
const MANY_CHARACTERS = 4096;

/**
 * Must be called before work whose time depends on the size of a value: a query may call a function thousands of times on a text of
 * megabytes.
 *
 * @throws QueryError if the current document has taken too long
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

/** Must be called before two values are compared. A comparison reads no more characters than the shorter one has. */
export function askTimeToCompare(frame: Frame, one: Value, other: Value): void {
  if (typeof one === 'string') {
    if (typeof other === 'string') askTime(frame, one.length <= other.length ? one : other);
  } else if (Array.isArray(one)) {
    if (Array.isArray(other)) askTime(frame, one.length <= other.length ? one : other);
  } else askTime(frame, one);
}

/** The characters of a new value, if it is large; otherwise 0. */
export function sizeMade(value: Value): number {
  if (typeof value === 'string') return value.length >= MANY_CHARACTERS ? value.length : 0;
  return Array.isArray(value) ? CHARACTERS_PER_ELEMENT * value.length : 0;
}

/** Counts work that takes this many units for each character of a value as JSON. */
export function countWork(frame: Frame, value: Value, unitsPerCharacter: number): void {
  frame.work.add(unitsPerCharacter * charactersOf(value));
}

export function assertTime(frame: Frame): void {
  if (frame.work.takesTooLong()) throw tooLongOnValues();
}

const tooLongOnValues = (): Error =>
  queryError('tooComplex', 'The query takes too long with the large values of one document. Simplify it.');

/**
 * Checks a value of a row that will be kept, compared or returned.
 *
 * @throws QueryError if the value is too large, or the current document has taken too long
 */
export function boundedIn<T extends Value>(frame: Frame, value: T): T {
  if (typeof value === 'object') frame.work.lookThrough(boundedCharacters(value));
  return value;
}

export type Compiled = (frame: Frame) => Value;
export type CompiledTest = (frame: Frame) => boolean;
