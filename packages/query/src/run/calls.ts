import { guardStack, queryError } from '../errors.ts';
import { parseJson } from '../values/json-text.ts';
import { bytesOf, textBytes } from '../values/memory.ts';
import type { Value } from '../values/values.ts';

/** A call of a user-defined function: its arguments as JSON, of which any may be undefined. */
export interface UserFunctionCall {
  readonly name: string;
  readonly args: readonly (string | undefined)[];
}

/** Who runs user-defined functions. What they give depends on their arguments alone, so equal calls are made once. */
export interface UserFunctions {
  /**
   * The results as JSON, in the order of the calls.
   *
   * @param signal aborted when nobody wants them any more: it rejects then
   * @throws what whoever runs the query is to get, for a call that fails
   */
  call(calls: readonly UserFunctionCall[], signal?: AbortSignal): Promise<readonly (string | undefined)[]>;
}

/** Calls that one document, or one group, may come to. */
const MOST_CALLS_OF_ONE = 10_000;
/** And all that a run of a query looks at. */
const MOST_CALLS = 5_000_000;
/** Bytes of the arguments and results of one document, which are held until it has been evaluated. */
const MOST_BYTES_OF_ONE = 64 * 1024 * 1024;
/** Characters of a result: those of the largest document. */
const MOST_RESULT_CHARACTERS = 2 * 1024 * 1024;
/** Arrays and objects within each other in a result: those of a document. */
const MOST_RESULT_LEVELS = 128;

/** Bytes of arguments that are gathered of several documents, and of results that are kept for those that follow. */
const MUCH_BYTES = 384 * 1024;
/** And of one, which is tried anew each time. */
const MUCH_BYTES_OF_ONE = 4 * 1024 * 1024;
/** Calls that are gathered. */
const MANY_CALLS = 1_000;
/** Milliseconds that may pass while they are. */
const GATHERING_MS = 5;

/** How many calls are sent at once, when it is not known yet how long one takes. */
const FIRST_CALLS = 16;
/** Milliseconds that what is sent at once is to take. */
const SENDING_MS = 200;

interface Missing extends UserFunctionCall {
  /** The index of what came to it first. */
  readonly item: number;
}

/** Thrown where the value of an expression needs the result of a call that has not been made yet. */
export const PENDING = new Error('The result of a call of a user-defined function is pending.');

/**
 * The calls of user-defined functions of one run of a query. Documents are evaluated without a pause, and functions run
 * elsewhere. So documents are tried before they are offered: the calls that they come to are gathered and made, and the
 * documents tried again, since one call may need the result of another, until no result is missing.
 */
export class FunctionCalls {
  readonly #functions: UserFunctions;
  readonly #monotonicMs: () => number;
  readonly #results = new Map<string, Value>();
  readonly #missing = new Map<string, Missing>();
  #resultBytes = 0;
  #missingBytes = 0;
  /** How many of those missing the first of what is tried has come to, and what has been sent for it. */
  #missingOfFirst = 0;
  #sentForFirst = 0;
  #bytesOfFirst = 0;
  #sent = 0;
  #atOnce = FIRST_CALLS;
  #bytesOfCall = 0;
  #isTrying = false;
  #misses = 0;
  #mostMissingBytes = 0;
  /** What was tried last, from an index up to another. */
  #items: readonly unknown[] = [];
  #first = 0;
  #last = 0;
  /** The index up to which the calls were sent that had been missing. */
  #sentUpTo = 0;
  /** How many are to be tried one by one, since a call of theirs has failed that may not be needed. */
  #leftWithCare = 0;
  /** True while each call is made by itself: then all that are made are needed. */
  #isByCall = false;
  /** What the evaluation of something ended in when it was tried. */
  #failure: unknown;

  /** @param monotonicMs milliseconds since any time */
  constructor(functions: UserFunctions, monotonicMs: () => number = () => 0) {
    this.#functions = functions;
    this.#monotonicMs = monotonicMs;
  }

  /** Calls are missing: {@link settle} is to be awaited before the evaluation goes on. */
  get isWaiting(): boolean {
    return this.#missing.size > 0;
  }

  get heldBytes(): number {
    return this.#resultBytes + this.#missingBytes;
  }

  /** How many results were missing in what is being tried. */
  get misses(): number {
    return this.#misses;
  }

  /** False where the rest of what is tried is to be gone through as well, to gather its calls. */
  get endsAtFirst(): boolean {
    return this.#isByCall || this.#hasMany;
  }

  /** @throws PENDING for a call that has to be made first */
  resultOf(name: string, args: readonly (string | undefined)[]): Value {
    // Neither is JSON: a comma outside of brackets and quotes, and this word.
    const key = `${name}(${args.map((arg) => arg ?? 'undefined').join(',')}`;
    const result = this.#results.get(key);
    if (result !== undefined || this.#results.has(key)) return result;
    if (!this.#isTrying) throw this.#failure ?? new Error(`udf.${name} was not called when its document was tried.`);
    this.#misses += 1;
    if (!this.#missing.has(key)) {
      this.#missing.set(key, { name, args, item: this.#last });
      this.#missingBytes += textBytes(key);
    }
    throw PENDING;
  }

  /**
   * Tries things from an index on, at most up to another.
   *
   * @param attempt evaluates all that will be evaluated of one, without an effect
   * @returns the index up to which all results are there, until this is called the next time. If it is `from`, calls are
   *   missing, and the same is to be tried again when they are settled.
   */
  readyUpTo<Item>(items: readonly Item[], from: number, to: number, attempt: (item: Item) => void): number {
    const end = this.#leftWithCare > 0 ? Math.min(to, from + 1) : to;
    if (items !== this.#items) this.#sentUpTo = 0;
    [this.#items, this.#first] = [items, from];
    if (from >= this.#sentUpTo && this.#resultBytes > MUCH_BYTES) this.#forgetResults();
    this.#failure = undefined;
    const untilMs = this.#monotonicMs() + GATHERING_MS;
    let firstMissing: number | undefined;
    let next = from;
    while (next < end && this.#failure === undefined && this.#monotonicMs() <= untilMs) {
      this.#last = next;
      this.#mostMissingBytes = next === from ? MUCH_BYTES_OF_ONE : MUCH_BYTES;
      if (!this.#isReady(() => attempt(items[next]!))) {
        firstMissing ??= next;
        if (next === from) this.#missingOfFirst = this.#missing.size;
        // Those that have their results are to be done with before there are more of them.
        if (this.#hasMany || this.#resultBytes > MUCH_BYTES) break;
      }
      next += 1;
    }
    const isTooMuch = this.#resultBytes > MUCH_BYTES && firstMissing !== from;
    if (firstMissing !== undefined && !isTooMuch) return from;
    const ready = firstMissing ?? next;
    this.#forgetMissing();
    this.#leftWithCare = Math.max(0, this.#leftWithCare - (ready - from));
    [this.#isByCall, this.#sentForFirst, this.#bytesOfFirst] = [false, 0, 0];
    return ready;
  }

  /**
   * Makes the calls that are missing, or some of them.
   *
   * @param signal aborted when nobody wants their results any more
   * @throws what a call fails with, if it can't be done without
   * @throws QueryError past a limit
   */
  async settle(signal?: AbortSignal): Promise<void> {
    const calls = [...this.#missing];
    const ofFirst = this.#missingOfFirst;
    this.#forgetMissing();
    const tried = this.#last + 1 - this.#first;
    const inBytes = (bytes: number) => Math.max(1, Math.floor(bytes / (this.#bytesOfCall + 1)));
    const isNeeded = (next: number) => next === 0 || next < ofFirst || this.#resultBytes <= MUCH_BYTES;
    let next = 0;
    while (next < calls.length && isNeeded(next)) {
      const fitting = Math.max(inBytes(MUCH_BYTES), Math.min(ofFirst - next, inBytes(MUCH_BYTES_OF_ONE)));
      const some = calls.slice(next, next + Math.min(this.#atOnce, fitting));
      try {
        await this.#send(some, Math.max(0, Math.min(some.length, ofFirst - next)), signal);
      } catch (error) {
        // The first call of one thing is needed in any case. Others may be of documents that nobody comes to any more.
        if (signal?.aborted === true || this.#isByCall || (tried === 1 && calls.length === 1)) throw error;
        this.#isByCall = tried === 1;
        // It may be that they took too long together.
        this.#atOnce = Math.max(1, some.length >> 1);
        if (this.#leftWithCare === 0) this.#leftWithCare = tried;
        break;
      }
      next += some.length;
    }
    this.#sentUpTo = Math.max(this.#first + 1, calls[next]?.[1].item ?? this.#last + 1);
  }

  /** @param ofFirst how many of the calls, from the first on, are of the first of what was tried */
  async #send(
    calls: readonly (readonly [string, Missing])[],
    ofFirst: number,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    this.#sent += calls.length;
    this.#sentForFirst += ofFirst;
    if (this.#sentForFirst > MOST_CALLS_OF_ONE || this.#sent > MOST_CALLS) {
      const [most, of] =
        this.#sent > MOST_CALLS ? [MOST_CALLS, 'for one page'] : [MOST_CALLS_OF_ONE, 'on one document'];
      throw queryError(
        'tooComplex',
        `The query calls user-defined functions more than ${most} times ${of}. Narrow it with a filter.`,
      );
    }
    const startedMs = this.#monotonicMs();
    const results = await this.#functions.call(
      calls.map(([, { name, args }]) => ({ name, args })),
      signal,
    );
    const tookMs = this.#monotonicMs() - startedMs;
    let bytes = 0;
    for (const [index, [key, { name }]] of calls.entries()) {
      const held = this.#keep(key, name, results[index]);
      bytes += held;
      if (index < ofFirst) this.#bytesOfFirst += held;
    }
    if (this.#bytesOfFirst > MOST_BYTES_OF_ONE) {
      throw queryError(
        'tooMuchHeld',
        'The arguments and results of the user-defined functions that the query calls on one document take too much memory. Select less of it.',
      );
    }
    this.#bytesOfCall = bytes / calls.length;
    // It may have waited for others most of the time, which fewer calls would as well.
    if (tookMs > SENDING_MS) this.#atOnce = Math.max(FIRST_CALLS, Math.floor((calls.length * SENDING_MS) / tookMs));
    else if (tookMs < SENDING_MS / 4) this.#atOnce = Math.min(Math.max(this.#atOnce, 4 * calls.length), MANY_CALLS);
  }

  /** @returns the bytes that it is held as */
  #keep(key: string, name: string, result: string | undefined): number {
    if (result !== undefined && result.length > MOST_RESULT_CHARACTERS) {
      throw queryError(
        'tooComplex',
        `The user-defined function 'udf.${name}' gives more than ${MOST_RESULT_CHARACTERS} characters.`,
      );
    }
    const value = result === undefined ? undefined : guardStack(() => parseJson(result));
    if (!hasLevels(value, MOST_RESULT_LEVELS)) {
      throw queryError('tooComplex', `The result of the user-defined function 'udf.${name}' is nested too deep.`);
    }
    const bytes = textBytes(key) + bytesOf(value);
    this.#results.set(key, value);
    this.#resultBytes += bytes;
    return bytes;
  }

  get #hasMany(): boolean {
    return this.#missing.size >= MANY_CALLS || this.#missingBytes > this.#mostMissingBytes;
  }

  /** Whether something has come to its end, if to a bad one, with no result missing. */
  #isReady(attempt: () => void): boolean {
    this.#misses = 0;
    this.#isTrying = true;
    try {
      attempt();
    } catch (error) {
      if (this.#misses === 0) this.#failure = error;
    } finally {
      this.#isTrying = false;
    }
    return this.#misses === 0;
  }

  #forgetMissing(): void {
    this.#missing.clear();
    [this.#missingBytes, this.#missingOfFirst] = [0, 0];
  }

  #forgetResults(): void {
    this.#results.clear();
    this.#resultBytes = 0;
  }
}

/** Whether a value has no more arrays and objects within each other. */
function hasLevels(value: Value, most: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return most > 0 && Object.values(value).every((part) => hasLevels(part, most - 1));
}

/** What is evaluated in. */
interface InFrame {
  readonly calls: FunctionCalls | undefined;
}

/**
 * Part of a row that calls functions. While a row is tried its other parts, and other rows, don't wait for the results that
 * this one needs: their calls are gathered as well.
 *
 * @param otherwise what comes in the place of a value that is pending
 */
export const attempted =
  <Frame extends InFrame, Result>(run: (frame: Frame) => Result, otherwise: Result) =>
  (frame: Frame): Result => {
    try {
      return run(frame);
    } catch (error) {
      if (error !== PENDING || frame.calls!.endsAtFirst) throw error;
      return otherwise;
    }
  };

/** What is made of several such parts, and pending if any of them is. */
export const whole =
  <Frame extends InFrame, Result>(run: (frame: Frame) => Result) =>
  (frame: Frame): Result => {
    const calls = frame.calls!;
    const { misses } = calls;
    const result = run(frame);
    if (calls.misses > misses) throw PENDING;
    return result;
  };

/** How many groups, or rows of a query in FROM, are tried together at most. */
const TRIED_TOGETHER = 1_000;

/**
 * Things to be evaluated when there are no more documents, each once it has all results. Pauses before some of them, and where
 * calls are missing, which are to be settled then.
 */
export function* whenReady<Item>(
  calls: FunctionCalls,
  items: readonly Item[],
  attempt: (item: Item) => void,
): Generator<Item | undefined, void, undefined> {
  let next = 0;
  while (next < items.length) {
    const ready = calls.readyUpTo(items, next, Math.min(next + TRIED_TOGETHER, items.length), attempt);
    yield undefined;
    for (; next < ready; next += 1) yield items[next];
  }
}
