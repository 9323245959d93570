import { guardStack, queryError } from '../errors.ts';
import { parseJson } from '../values/json-text.ts';
import { bytesOf, textBytes } from '../values/memory.ts';
import type { Value } from '../values/values.ts';

/** A call of a user-defined function. Each argument is JSON, or undefined. */
export interface UserFunctionCall {
  readonly name: string;
  readonly args: readonly (string | undefined)[];
}

/** Runs user-defined functions. Their results depend only on their arguments, so equal calls are made once. */
export interface UserFunctions {
  /**
   * Returns the results as JSON, in the order of the calls.
   *
   * @param signal aborted if the results are no longer needed; then the promise rejects
   * @throws if a call fails: the error for the caller of the query
   */
  call(calls: readonly UserFunctionCall[], signal?: AbortSignal): Promise<readonly (string | undefined)[]>;
}

/** The largest number of calls that one document, or one group, may need. */
const MOST_CALLS_OF_ONE = 10_000;
/** The largest number of calls for one page of a query. */
const MOST_CALLS = 5_000_000;
/** Limit for the bytes of arguments and results of one document, which are held until it has been evaluated. */
const MOST_BYTES_OF_ONE = 64 * 1024 * 1024;
/** Limit for the characters of a result: as for the largest document. */
const MOST_RESULT_CHARACTERS = 2 * 1024 * 1024;
/** Limit for the nesting of arrays and objects in a result: as for a document. */
const MOST_RESULT_LEVELS = 128;

/** Limit for the bytes of arguments gathered from several documents, and of results kept for following documents. */
const MUCH_BYTES = 384 * 1024;
/** The same limit for a single document, which is tried again after each group of calls. */
const MUCH_BYTES_OF_ONE = 4 * 1024 * 1024;
/** The largest number of calls that are gathered. */
const MANY_CALLS = 1_000;
/** The longest time for gathering them, in milliseconds. */
const GATHERING_MS = 5;

/** How many calls are sent at once while it is not known how long a call takes. */
const FIRST_CALLS = 16;
/** The time, in milliseconds, that the calls sent at once should take. */
const SENDING_MS = 200;

interface Missing extends UserFunctionCall {
  /** The index of the item that needed the call first. */
  readonly item: number;
}

/** Thrown if the value of an expression depends on a call that has not been made yet. */
export const PENDING = new Error('The result of a call of a user-defined function is pending.');

/**
 * The calls of user-defined functions in one run of a query. Documents are evaluated synchronously, but functions run on other threads. So
 * documents are tried before they are offered: the calls that they need are gathered and made, and the documents are tried again, until no
 * result is missing, since one call may depend on the result of another.
 */
export class FunctionCalls {
  readonly #functions: UserFunctions;
  readonly #monotonicMs: () => number;
  readonly #results = new Map<string, Value>();
  readonly #missing = new Map<string, Missing>();
  #resultBytes = 0;
  #missingBytes = 0;
  /** How many of the missing calls the first of the tried items needs, and how many were sent for it. */
  #missingOfFirst = 0;
  #sentForFirst = 0;
  #bytesOfFirst = 0;
  #sent = 0;
  #atOnce = FIRST_CALLS;
  #bytesOfCall = 0;
  #isTrying = false;
  #misses = 0;
  #mostMissingBytes = 0;
  /** The items that were tried last, and the range of their indexes. */
  #items: readonly unknown[] = [];
  #first = 0;
  #last = 0;
  /** The index of the items up to which the missing calls were sent. */
  #sentUpTo = 0;
  /** How many items must be tried one by one, because a call failed that may not be needed. */
  #leftWithCare = 0;
  /** True while each call is made alone. Then every call that is made is needed. */
  #isByCall = false;
  /** The error with which an item's evaluation ended when it was tried. */
  #failure: unknown;

  /** @param monotonicMs a monotonic clock in milliseconds, with any start */
  constructor(functions: UserFunctions, monotonicMs: () => number = () => 0) {
    this.#functions = functions;
    this.#monotonicMs = monotonicMs;
  }

  /** True if calls are missing. Then {@link settle} must be awaited before the evaluation continues. */
  get isWaiting(): boolean {
    return this.#missing.size > 0;
  }

  get heldBytes(): number {
    return this.#resultBytes + this.#missingBytes;
  }

  /** How many results were missing so far in the item that is being tried. */
  get misses(): number {
    return this.#misses;
  }

  /** Whether an evaluation should stop at the first missing result. If false, the rest is evaluated too, to gather its calls. */
  get endsAtFirst(): boolean {
    return this.#isByCall || this.#hasMany;
  }

  /** @throws PENDING if the call must be made first */
  resultOf(name: string, args: readonly (string | undefined)[]): Value {
    // The key is unambiguous: arguments are JSON, which has no comma outside of brackets and quotes, and is never `undefined`.
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
   * Tries items from one index up to another.
   *
   * @param attempt evaluates everything that will be evaluated for an item, without effects
   * @returns the index up to which all results are available, until the next call. If it is `from`, calls are missing, and the same items
   *   must be tried again once they are settled
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
        // Items whose results are available should be finished before more results are gathered.
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
   * Makes some or all of the missing calls.
   *
   * @param signal aborted if the results are no longer needed
   * @throws the error of a call, if its result is needed
   * @throws QueryError if a limit is exceeded
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
        // The first call of a single item is always needed. Others may be of documents that the query will not reach.
        if (signal?.aborted === true || this.#isByCall || (tried === 1 && calls.length === 1)) throw error;
        this.#isByCall = tried === 1;
        // Perhaps they failed because all together took too long.
        this.#atOnce = Math.max(1, some.length >> 1);
        if (this.#leftWithCare === 0) this.#leftWithCare = tried;
        break;
      }
      next += some.length;
    }
    this.#sentUpTo = Math.max(this.#first + 1, calls[next]?.[1].item ?? this.#last + 1);
  }

  /** @param ofFirst how many of the calls, from the first on, belong to the first item that was tried */
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
        'The arguments and results of the user-defined functions that the query calls on one document take too much memory. Pass or return less.',
      );
    }
    this.#bytesOfCall = bytes / calls.length;
    // Most of the time may have been spent on waiting for other work, and fewer calls would wait as well. So the number is not reduced
    // below FIRST_CALLS.
    if (tookMs > SENDING_MS) this.#atOnce = Math.max(FIRST_CALLS, Math.floor((calls.length * SENDING_MS) / tookMs));
    else if (tookMs < SENDING_MS / 4) this.#atOnce = Math.min(Math.max(this.#atOnce, 4 * calls.length), MANY_CALLS);
  }

  /** @returns the bytes that the result takes */
  #keep(key: string, name: string, result: string | undefined): number {
    if (result !== undefined && result.length > MOST_RESULT_CHARACTERS) {
      throw queryError(
        'tooComplex',
        `The user-defined function 'udf.${name}' returns more than ${MOST_RESULT_CHARACTERS} characters.`,
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

  /** Whether the attempt has finished, or failed, without a missing result. */
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

/** Whether the arrays and objects of a value are nested no deeper than `most`. */
function hasLevels(value: Value, most: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return most > 0 && Object.values(value).every((part) => hasLevels(part, most - 1));
}

/** The frame of an evaluation. */
interface InFrame {
  readonly calls: FunctionCalls | undefined;
}

/**
 * Wraps a part of a row that calls functions. If its result is pending while a row is tried, the other parts and other rows are still
 * evaluated, so that their calls are gathered as well.
 *
 * @param otherwise the value to use while the result is pending
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

/** Wraps an expression of several such parts. It is pending if one of them is. */
export const whole =
  <Frame extends InFrame, Result>(run: (frame: Frame) => Result) =>
  (frame: Frame): Result => {
    const calls = frame.calls!;
    const { misses } = calls;
    const result = run(frame);
    if (calls.misses > misses) throw PENDING;
    return result;
  };

/** The largest number of groups, or rows of a query in FROM, that are tried together. */
const TRIED_TOGETHER = 1_000;

/**
 * Yields items that are evaluated after the last document, each once all of its results are available. It also yields undefined, as a
 * pause, before some of them, and whenever calls are missing; these must then be settled.
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
