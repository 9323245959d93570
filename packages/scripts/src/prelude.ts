/*
 * The code that runs in the engine before a script. The engine gets the texts of these functions, so each may use only its parameters and
 * the engine's globals. They keep their own references to the globals that they need, as scripts may replace these. The store's safety
 * does not depend on this code: everything that comes out of an engine is checked (messages.ts). The code has no template literals, since
 * the engine makes these by `String.prototype.concat`; and no destructuring of arrays and no `for … of`, which use the arrays' iterators.
 * Scripts may have replaced these too.
 */

import type * as allLimits from './limits.ts';

type Any = (...args: unknown[]) => unknown;
type Fields = Record<string, unknown>;
type Limits = typeof allLimits;
type Basics = ReturnType<typeof basics>;

interface Described {
  readonly kind: 'threw' | 'out-of-memory';
  readonly message: string;
  readonly number?: number;
}

/** The basics for scripts and for user-defined functions. */
export function basics(limits: Limits) {
  const { construct, ownKeys } = Reflect;
  const apply: (f: Any, self: unknown, args: ArrayLike<unknown>) => unknown = Reflect.apply;
  const { parse, stringify } = JSON;
  const { isSafeInteger } = Number;
  const text = String;
  const NativeError = Error;

  // Methods as functions whose first parameter is `this`.
  const { bind, call } = Function.prototype;
  const uncurried: <Self, Args extends unknown[], Result>(
    method: (this: Self, ...args: Args) => Result,
  ) => (self: Self, ...args: Args) => Result = bind.bind(call);
  const slice: (text: string, from?: number, to?: number) => string = uncurried(String.prototype.slice);
  const indexOf: (text: string, part: string) => number = uncurried(String.prototype.indexOf);
  const split: (text: string, by: string) => string[] = uncurried(String.prototype.split as never);

  // `new Error(400, 'why')` makes an error with a number, as it does in Cosmos DB.
  const make = (args: unknown[], target: unknown): object => {
    const isNumbered = typeof args[0] === 'number' && typeof args[1] === 'string';
    const error = construct(NativeError, isNumbered ? [args[1]] : args, target as Any) as Error & { number?: unknown };
    if (isNumbered) error.number = args[0];
    return error;
  };
  const ScriptError: ErrorConstructor = new Proxy(NativeError, {
    construct: (_, args, target) => make(args, target),
    apply: (_, _self, args) => make(args, ScriptError),
  });
  globalThis.Error = ScriptError;
  NativeError.prototype.constructor = ScriptError;

  const NativeDate = Date;
  const realNow = NativeDate.now;
  let aheadMs = 0;
  const now = (): number => realNow() + aheadMs;

  /** Sets the time of the engine's clock, which continues from there. */
  const setTime = (nowMs: string): void => {
    aheadMs = +nowMs - realNow();
    NativeDate.now = now;
    const ScriptDate: DateConstructor = new Proxy(NativeDate, {
      construct: (_, args, target) => construct(NativeDate, args.length === 0 ? [now()] : args, target) as object,
      apply: () => text(new NativeDate(now())),
    });
    globalThis.Date = ScriptDate;
    NativeDate.prototype.constructor = ScriptDate;
  };

  let known: Fields = {};

  const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null;

  const framesOf = (stack: string): string => {
    let frames = '';
    const lines = split(stack, '\n');
    for (let at = 0; at < lines.length; at++) {
      const line = lines[at]!;
      const isOfScript = indexOf(line, 'prelude.js') === -1 && indexOf(line, '(native)') === -1;
      if (isOfScript && line !== '') frames += '\n' + line;
    }
    return frames;
  };

  /** Describes an error for clients, whatever value was thrown. */
  const describe = (error: unknown): Described => {
    let told = 'an error that cannot be told';
    let frames = '';
    let number: unknown;
    let isOfMemory = false;
    try {
      if (error instanceof NativeError) {
        told =
          slice(text(error.name), 0, limits.MAX_MESSAGE) + ': ' + slice(text(error.message), 0, limits.MAX_MESSAGE);
        isOfMemory = told === 'InternalError: out of memory';
        frames = framesOf(text(error.stack ?? ''));
      } else if (isObject(error)) {
        told = slice(stringify(error) ?? text(error), 0, limits.MAX_MESSAGE);
      } else {
        told = slice(text(error), 0, limits.MAX_MESSAGE);
      }
      if (isObject(error)) number = error['number'];
    } catch {
      // A thrown value may throw when it is read. Then the text so far is used.
    }
    const whole = 'Exception = ' + told + '\r\nStack trace: ' + told + frames;
    return {
      __proto__: null,
      kind: isOfMemory ? 'out-of-memory' : 'threw',
      message: slice(whole, 0, limits.MAX_MESSAGE),
      number: isSafeInteger(number) ? number : undefined,
    } as never;
  };

  return {
    limits,
    describeAsIs: describe,
    describe: (error: unknown) => stringify(describe(error)),
    /** Remembers the globals that exist before a program declares any. */
    remember: (): void => {
      known = { __proto__: null };
      const keys = ownKeys(globalThis);
      for (let at = 0; at < keys.length; at++) known[keys[at] as string] = true;
    },
    /** The first function that the program has declared. */
    declared: (): unknown => {
      const keys = ownKeys(globalThis);
      for (let at = 0; at < keys.length; at++) {
        const value = known[keys[at] as string] === true ? undefined : (globalThis as Fields)[keys[at] as string];
        if (typeof value === 'function') return value;
      }
      throw new NativeError('The text is not a function');
    },
    apply,
    indexOf,
    isObject,
    parse,
    realNow,
    setTime,
    slice,
    stringify,
    text,
    uncurried,
    NativeError,
  };
}

/** Calls user-defined functions by their index, in the order in which they were added. */
export function functionWorld({ apply, describeAsIs, limits, parse, stringify, NativeError }: Basics) {
  const functions: Any[] = [];
  const call = (calls: readonly (readonly [number, unknown[], number[]])[]): string => {
    let results = '';
    for (let at = 0; at < calls.length; at++) {
      const place = calls[at]![0];
      const args = calls[at]![1];
      const missing = calls[at]![2];
      for (let index = 0; index < missing.length; index++) args[missing[index]!] = undefined;
      try {
        const result = stringify(apply(functions[place]!, undefined, args)) as string | undefined;
        results += (at === 0 ? '' : ',') + (result === undefined ? 'null' : stringify(result));
        if (results.length > limits.MAX_RESULTS) throw new NativeError('The results of functions are too large');
      } catch (error) {
        return stringify({ __proto__: null, ...describeAsIs(error), place });
      }
    }
    return '{"results":[' + results + ']}';
  };
  return {
    add: (f: Any): void => {
      functions[functions.length] = f;
    },
    call: (calls: string): string => call(parse(calls)),
  };
}

/** Cosmos DB's server-side API, for one run of a stored procedure or trigger. */
export function scriptWorld(
  {
    apply,
    describeAsIs,
    indexOf,
    isObject,
    limits,
    parse,
    realNow,
    slice,
    stringify,
    text,
    uncurried,
    NativeError,
  }: Basics,
  settingsText: string,
) {
  interface Answer {
    readonly kind: 'done' | 'failed';
    /** Undefined for a page of documents or rows. */
    readonly status?: number;
    readonly message: string;
    readonly body?: string;
    readonly continuation?: string;
    readonly headers?: Readonly<Record<string, string>>;
  }
  interface Message {
    readonly body?: string;
    readonly values?: Fields;
    readonly operationType?: string;
  }
  interface Settings {
    readonly kind: 'stored-procedure' | 'pre-trigger' | 'post-trigger';
    readonly collection: { readonly self: string; readonly alt: string };
    readonly args?: string;
    readonly request?: Message;
    readonly response?: Message;
    readonly logs: boolean;
    readonly timeMs: number;
  }
  type Rows = unknown[];
  type Settle = (error: Error | undefined, answer: Answer) => void;
  interface Asked {
    /** The operation as JSON, without its body, which is JSON itself. */
    readonly operation: string;
    readonly body: string;
    readonly settle: Settle;
    next: Asked | undefined;
  }

  const settings: Settings = parse(settingsText);
  const { floor, min } = Math;
  const { isArray } = Array;
  const { create, freeze, hasOwn } = Object;
  const sort: (rows: Rows, by: (left: unknown, right: unknown) => number) => Rows = uncurried(Array.prototype.sort);
  const exec: (pattern: RegExp, text: string) => string[] | null = uncurried(RegExp.prototype.exec);
  const then: (promise: unknown, done: undefined, failed: (error: unknown) => void) => unknown = uncurried(
    Promise.prototype.then,
  ) as never;
  const NativePromise = Promise;
  const { kind, collection: links } = settings;

  const BAD_REQUEST = 400;
  const FORBIDDEN = 403;
  const TIMEOUT = 408;
  const TOO_LARGE = 413;

  const failure = (number: number, message: string): Error => {
    const error = new NativeError(message) as Error & { number: number; body: string };
    error.number = number;
    error.body = message;
    return error;
  };

  // Operations, one after the other.
  const startedAt = realNow();
  let asked = 0;
  let first: Asked | undefined;
  let last: Asked | undefined;
  let failed: Described | undefined;
  let isEnding = false;

  const fail = (error: unknown): void => {
    failed ??= describeAsIs(error);
    first = undefined;
  };

  const guarded = (work: () => void): void => {
    try {
      work();
    } catch (error) {
      fail(error);
    }
  };

  /** @returns false if no further operation is accepted. The script should then end, and be called again for the rest */
  const ask = (operation: object, settle: Settle, body = ''): boolean => {
    if (failed !== undefined || isEnding) return false;
    if (asked >= limits.MAX_OPERATIONS || realNow() - startedAt > settings.timeMs * 0.8) return false;
    asked++;
    const entry: Asked = { operation: stringify(operation), body, settle, next: undefined };
    if (first === undefined) first = entry;
    else last!.next = entry;
    last = entry;
    return true;
  };

  // The parameters of the collection's functions.
  const without = (link: string): string => {
    const from = link[0] === '/' ? 1 : 0;
    const to = link[link.length - 1] === '/' ? link.length - 1 : link.length;
    return slice(link, from, to);
  };
  const self = without(links.self);
  const alt = without(links.alt);

  const checkCollection = (link: unknown): void => {
    if (typeof link === 'string' && (without(link) === self || without(link) === alt)) return;
    throw failure(BAD_REQUEST, 'This is not the link of the collection that the script runs in: ' + text(link));
  };

  const documentLink = (link: unknown): string => {
    if (typeof link === 'string' && link.length <= limits.MAX_NAME) {
      const bare = without(link);
      if (indexOf(bare, self + '/docs/') === 0 || indexOf(bare, alt + '/docs/') === 0) return link;
    }
    throw failure(
      BAD_REQUEST,
      'This is not the link of a document in the collection that the script runs in: ' + text(link),
    );
  };

  const documentBody = (body: unknown): string => {
    let json: unknown = body;
    if (isObject(body)) json = stringify(body);
    else if (typeof body === 'string') parse(body);
    if (typeof json !== 'string') {
      throw failure(BAD_REQUEST, 'The body of a document must be an object, or a string with the JSON of one');
    }
    if (json.length > limits.MAX_BODY) throw failure(TOO_LARGE, 'The document is larger than a document may be');
    return json;
  };

  /** Reads options and callback. The options may be left out. */
  const readOptions = (options: unknown, callback: unknown): { options: Fields; callback: Any | undefined } => {
    const found = callback === undefined && typeof options === 'function' ? options : callback;
    const rest = found === options ? undefined : options;
    if (!(rest === undefined || rest === null || typeof rest === 'object')) {
      throw failure(BAD_REQUEST, 'The options must be an object, and are of the type ' + typeof rest);
    }
    if (!(found === undefined || found === null || typeof found === 'function')) {
      throw failure(BAD_REQUEST, 'The callback must be a function, and is of the type ' + typeof found);
    }
    return { options: (rest ?? {}) as Fields, callback: (found ?? undefined) as Any | undefined };
  };

  /** Reads an option whose value is a text; undefined if it is missing or empty. */
  const textOption = (options: Fields, name: string, most: number): string | undefined => {
    const value = options[name];
    if (value === undefined || value === null || value === '') return undefined;
    if (typeof value === 'string' && value.length <= most) return value;
    throw failure(BAD_REQUEST, 'The option "' + name + '" must be a string of at most ' + most + ' characters');
  };

  const pageSizeOf = (options: Fields): number | undefined => {
    const size = options['pageSize'];
    return typeof size === 'number' && size >= 1 ? min(floor(size), limits.MAX_PAGE) : undefined;
  };

  const information = ({ status, headers, continuation }: Answer, isUnmodified = false): Fields => ({
    ...(status !== undefined && { statusCode: status }),
    currentCollectionSizeInMB: headers?.['x-ms-resource-usage'] ?? '',
    maxCollectionSizeInMB: headers?.['x-ms-resource-quota'] ?? '',
    notModified: isUnmodified,
    ...(continuation !== undefined && { continuation }),
  });

  const settleWith = (callback: Any | undefined, onDone: (answer: Answer) => unknown[]): Settle => {
    return (error, answer) => {
      if (error === undefined) {
        if (callback !== undefined) apply(callback, undefined, onDone(answer));
      } else {
        if (callback === undefined) throw error;
        apply(callback, undefined, [error]);
      }
    };
  };

  const withDocument = (callback: Any | undefined): Settle =>
    settleWith(callback, (answer) => [undefined, parse(answer.body ?? 'null'), information(answer)]);

  const write = (verb: 'create' | 'upsert', link: unknown, body: unknown, more: unknown, then: unknown): boolean => {
    checkCollection(link);
    const { options, callback } = readOptions(more, then);
    if (verb === 'upsert' && textOption(options, 'etag', limits.MAX_NAME) !== undefined) {
      throw failure(BAD_REQUEST, 'upsertDocument does not accept an etag; replaceDocument does');
    }
    const makesId = options['disableAutomaticIdGeneration'] !== true;
    return ask({ __proto__: null, kind: verb, makesId }, withDocument(callback), documentBody(body));
  };

  const noSuch = (name: string) => (): never => {
    throw failure(BAD_REQUEST, name + ' is not supported');
  };

  const collection = {
    getSelfLink: () => links.self,
    getAltLink: () => links.alt,

    createDocument: (link: unknown, body: unknown, options?: unknown, callback?: unknown) =>
      write('create', link, body, options, callback),
    upsertDocument: (link: unknown, body: unknown, options?: unknown, callback?: unknown) =>
      write('upsert', link, body, options, callback),

    replaceDocument: (link: unknown, body: unknown, more?: unknown, then?: unknown) => {
      const { options, callback } = readOptions(more, then);
      const ifMatch = textOption(options, 'etag', limits.MAX_NAME);
      const operation = { __proto__: null, kind: 'replace', link: documentLink(link), ifMatch };
      return ask(operation, withDocument(callback), documentBody(body));
    },

    deleteDocument: (link: unknown, more?: unknown, then?: unknown) => {
      const { options, callback } = readOptions(more, then);
      const ifMatch = textOption(options, 'etag', limits.MAX_NAME);
      return ask(
        { __proto__: null, kind: 'delete', link: documentLink(link), ifMatch },
        // Cosmos DB passes the options as the second argument; its documentation says the third.
        settleWith(callback, (answer) => [undefined, information(answer), information(answer)]),
      );
    },

    readDocument: (link: unknown, more?: unknown, then?: unknown) => {
      const { options, callback } = readOptions(more, then);
      const ifNoneMatch = textOption(options, 'ifNoneMatch', limits.MAX_NAME);
      const found = withDocument(callback);
      return ask({ __proto__: null, kind: 'read', link: documentLink(link), ifNoneMatch }, (error, answer) => {
        if (error === undefined || answer.status !== 304) found(error, answer);
        else if (callback !== undefined) apply(callback, undefined, [undefined, undefined, information(answer, true)]);
      });
    },

    readDocuments: (link: unknown, more?: unknown, then?: unknown) => {
      checkCollection(link);
      const { options, callback } = readOptions(more, then);
      const continuation = textOption(options, 'continuation', limits.MAX_QUERY);
      const pageSize = pageSizeOf(options) ?? 100;
      return ask({ __proto__: null, kind: 'list', pageSize, continuation }, withDocument(callback));
    },

    queryDocuments: (link: unknown, query: unknown, more?: unknown, then?: unknown) => {
      checkCollection(link);
      const { options, callback } = readOptions(more, then);
      const asked: unknown = isObject(query) ? query['query'] : query;
      const parameters = stringify((isObject(query) ? query['parameters'] : undefined) ?? []) as string | undefined;
      if (
        typeof asked !== 'string' ||
        asked.length > limits.MAX_QUERY ||
        parameters === undefined ||
        parameters[0] !== '['
      ) {
        throw failure(
          BAD_REQUEST,
          'A query must be a string, or an object with a string "query" and an array "parameters"',
        );
      }
      if (parameters.length > limits.MAX_BODY) throw failure(TOO_LARGE, 'The parameters of the query are too large');
      const continuation = textOption(options, 'continuation', limits.MAX_QUERY);
      const pageSize = pageSizeOf(options) ?? 100;
      return ask(
        { __proto__: null, kind: 'query', query: asked, parameters, pageSize, continuation },
        withDocument(callback),
      );
    },

    patchDocument: noSuch('patchDocument'),
    createAttachment: noSuch('createAttachment'),
    upsertAttachment: noSuch('upsertAttachment'),
    replaceAttachment: noSuch('replaceAttachment'),
    deleteAttachment: noSuch('deleteAttachment'),
    readAttachment: noSuch('readAttachment'),
    readAttachments: noSuch('readAttachments'),
    queryAttachments: noSuch('queryAttachments'),
  };

  // The JavaScript query API: all documents of the collection, page by page, through functions of the script.
  interface Step {
    readonly isSort: boolean;
    readonly run: (rows: Rows) => Rows;
  }
  const PAGE = 100;

  const append = (to: Rows, from: Rows): void => {
    for (let at = 0; at < from.length; at++) to[to.length] = from[at];
  };

  const eachOf = (run: (row: unknown, into: Rows) => void): Step => ({
    isSort: false,
    run: (rows) => {
      const into: Rows = [];
      for (let at = 0; at < rows.length; at++) run(rows[at], into);
      return into;
    },
  });

  const flattened = (row: unknown, depth: number, into: Rows): void => {
    if (depth === 0 || !isArray(row)) into[into.length] = row;
    else for (let at = 0; at < row.length; at++) flattened(row[at], depth - 1, into);
  };

  const rankOf = (value: unknown): number => {
    if (value === undefined) return 0;
    if (value === null) return 1;
    return typeof value === 'boolean' ? 2 : typeof value === 'number' ? 3 : typeof value === 'string' ? 4 : 5;
  };

  const compare = (left: unknown, right: unknown): number => {
    if (rankOf(left) !== rankOf(right)) return rankOf(left) - rankOf(right);
    if (rankOf(left) === 5) return 0;
    return (left as number) < (right as number) ? -1 : (left as number) > (right as number) ? 1 : 0;
  };

  const sorted = (by: Any, direction: 1 | -1): Step => ({
    isSort: true,
    run: (rows) => {
      const keyed: Rows = [];
      for (let at = 0; at < rows.length; at++) keyed[at] = [apply(by, undefined, [rows[at]]), rows[at]];
      sort(keyed, (left, right) => direction * compare((left as Rows)[0], (right as Rows)[0]));
      for (let at = 0; at < keyed.length; at++) keyed[at] = (keyed[at] as Rows)[1];
      return keyed;
    },
  });

  const functionArgument = (f: unknown, of: string): Any => {
    if (typeof f !== 'function') throw failure(BAD_REQUEST, of + ' must be given a function');
    return f as Any;
  };

  /** For each function of the API: makes a step from the arguments, without options and callback, and says how many arguments it took. */
  const STEPS: Readonly<Record<string, (...args: Rows) => { readonly step: Step; readonly taken: number }>> = {
    filter: (f) => {
      const keeps = functionArgument(f, 'filter');
      return { step: eachOf((row, into) => apply(keeps, undefined, [row]) && (into[into.length] = row)), taken: 1 };
    },
    map: (f) => {
      const made = functionArgument(f, 'map');
      return { step: eachOf((row, into) => (into[into.length] = apply(made, undefined, [row]))), taken: 1 };
    },
    pluck: (name) => {
      if (typeof name !== 'string' || name === '')
        throw failure(BAD_REQUEST, 'pluck must be given the name of a property');
      return { step: eachOf((row, into) => (into[into.length] = (row as Fields | undefined)?.[name])), taken: 1 };
    },
    flatten: (isShallow) => ({
      step: eachOf((row, into) => flattened(row, isShallow === true ? 1 : Infinity, into)),
      taken: typeof isShallow === 'boolean' ? 1 : 0,
    }),
    sortBy: (f) => ({ step: sorted(functionArgument(f, 'sortBy'), 1), taken: 1 }),
    sortByDescending: (f) => ({ step: sorted(functionArgument(f, 'sortByDescending'), -1), taken: 1 }),
    unwind: (f, g) => {
      const inner = functionArgument(f, 'unwind');
      // The second argument is a result function, not the callback: a callback would have options before it.
      const made = typeof g === 'function' ? (g as Any) : undefined;
      const step = eachOf((row, into) => {
        const rows = apply(inner, undefined, [row]);
        if (!isArray(rows)) return;
        for (let at = 0; at < rows.length; at++) {
          into[into.length] = made === undefined ? rows[at] : apply(made, undefined, [row, rows[at]]);
        }
      });
      return { step, taken: made === undefined ? 1 : 2 };
    },
  };

  const through = (steps: readonly Step[], rows: Rows): Rows => {
    let result = rows;
    for (let at = 0; at < steps.length; at++) result = steps[at]!.run(result);
    return result;
  };

  const hasSort = (steps: readonly Step[]): boolean => {
    for (let at = 0; at < steps.length; at++) if (steps[at]!.isSort) return true;
    return false;
  };

  /** The start of a page: after the place of the store's continuation, and after so many more documents or sorted rows. */
  const placeOf = (continuation: string | undefined): { skip: number; from: string | undefined } => {
    if (continuation === undefined) return { skip: 0, from: undefined };
    const match = exec(/^(\d{1,9}):([^]*)$/, continuation);
    if (match === null) throw failure(BAD_REQUEST, 'The continuation was not returned by a query of this kind');
    return { skip: +match[1]!, from: match[2] === '' ? undefined : match[2] };
  };

  const runSteps = (steps: readonly Step[], more: unknown, then: unknown): boolean => {
    const { options, callback } = readOptions(more, then);
    const pageSize = pageSizeOf(options) ?? PAGE;
    const isSorted = hasSort(steps);
    let { skip, from } = placeOf(textOption(options, 'continuation', limits.MAX_QUERY));
    const rows: Rows = [];

    const deliver = (result: Rows, continuation: string | undefined, answer: Answer): void => {
      if (callback !== undefined) {
        const { continuation: _, ...rest } = information(answer);
        apply(callback, undefined, [
          undefined,
          result,
          { ...rest, ...(continuation !== undefined && { continuation }) },
        ]);
      } else if (kind === 'pre-trigger') {
        throw failure(BAD_REQUEST, 'A pre-trigger has no response: pass a callback');
      } else {
        response.appendBody(stringify(result));
      }
    };

    const takeSorted = (documents: Rows, answer: Answer): (() => void) | undefined => {
      append(rows, documents);
      if (answer.continuation !== undefined) {
        from = answer.continuation;
        if (readPage()) return undefined;
        throw failure(TIMEOUT, 'There are too many documents to sort them within one run');
      }
      const all = through(steps, rows);
      const page: Rows = [];
      const to = min(skip + pageSize, all.length);
      for (let at = skip; at < to; at++) page[page.length] = all[at];
      return () => deliver(page, to < all.length ? to + ':' : undefined, answer);
    };

    const takeInOrder = (documents: Rows, answer: Answer): (() => void) | undefined => {
      for (let at = skip; at < documents.length; at++) {
        append(rows, through(steps, [documents[at]]));
        if (rows.length >= pageSize && at + 1 < documents.length) {
          return () => deliver(rows, at + 1 + ':' + (from ?? ''), answer);
        }
      }
      skip = 0;
      from = answer.continuation;
      if (from === undefined) return () => deliver(rows, undefined, answer);
      if (rows.length < pageSize && readPage()) return undefined;
      return () => deliver(rows, '0:' + from, answer);
    };

    const readPage = (): boolean =>
      ask({ __proto__: null, kind: 'list', pageSize: PAGE, continuation: from }, (error, answer) => {
        let delivery: (() => void) | undefined;
        try {
          if (error !== undefined) throw error;
          const documents = parse(answer.body ?? '[]') as Rows;
          delivery = isSorted ? takeSorted(documents, answer) : takeInOrder(documents, answer);
        } catch (thrown) {
          if (callback === undefined) throw thrown;
          delivery = () => apply(callback, undefined, [thrown]);
        }
        delivery?.();
      });
    return readPage();
  };

  const addSteps = (to: Fields, use: (step: Step, more: unknown, then: unknown) => object): void => {
    for (const name in STEPS) {
      to[name] = (...given: Rows) => {
        const isLed = given[0] === collection || given[0] === shortcut;
        const args: Rows = [];
        for (let at = isLed ? 1 : 0; at < given.length; at++) args[args.length] = given[at];
        const { step, taken } = apply(STEPS[name]!, undefined, args) as ReturnType<(typeof STEPS)[string]>;
        return use(step, args[taken], args[taken + 1]);
      };
    }
  };

  const chain = (steps: readonly Step[]): object => {
    const link: Fields = { isAccepted: true };
    addSteps(link, (step, more, then) => {
      if (more !== undefined || then !== undefined) {
        throw failure(BAD_REQUEST, 'In a chain, options and callback must be given to value()');
      }
      const longer: Step[] = [];
      for (let at = 0; at < steps.length; at++) longer[at] = steps[at]!;
      longer[steps.length] = step;
      return chain(longer);
    });
    link['value'] = (more?: unknown, then?: unknown) => ({ isAccepted: runSteps(steps, more, then) });
    return link;
  };

  addSteps(collection, (step, more, then) => ({ isAccepted: runSteps([step], more, then) }));
  (collection as Fields)['chain'] = () => chain([]);

  // Request and response.
  const valueOf = (message: Message | undefined, name: unknown): unknown => {
    const values = message?.values;
    return values !== undefined && hasOwn(values, name as string) ? values[name as string] : undefined;
  };
  const isBody = (name: unknown): boolean => name === 'Body' || name === 'body';
  const refuseValue = (message: Message | undefined, name: unknown): never => {
    if (valueOf(message, name) !== undefined) throw failure(FORBIDDEN, 'This cannot be set: ' + text(name));
    throw failure(BAD_REQUEST, 'There is no such value: ' + text(name));
  };

  let requestBody: unknown;
  let isRequestSet = false;
  const requestText = kind === 'stored-procedure' ? settings.args : settings.request?.body;
  if (requestText !== undefined) requestBody = parse(requestText);
  const request = {
    getBody: () => requestBody,
    setBody: (body: unknown): void => {
      if (kind !== 'pre-trigger') throw failure(FORBIDDEN, 'Only a pre-trigger can set the body of the request');
      requestBody = body;
      isRequestSet = true;
    },
    getOperationType: () => settings.request?.operationType,
    getValue: (name: unknown) => (isBody(name) ? requestBody : valueOf(settings.request, name)),
    setValue: (name: unknown, value: unknown): void => {
      if (isBody(name)) request.setBody(value);
      else refuseValue(settings.request, name);
    },
  };

  let responseBody: unknown = kind === 'stored-procedure' ? '' : undefined;
  let isResponseSet = kind === 'stored-procedure';
  if (settings.response?.body !== undefined) responseBody = parse(settings.response.body);
  const checkResponse = (json: string): void => {
    if (json.length <= limits.MAX_RESPONSE) return;
    throw failure(
      TOO_LARGE,
      'The response would be too large: return a part of it, and have the client call the script again for the rest',
    );
  };
  const response = {
    getBody: () => responseBody,
    setBody: (body: unknown): void => {
      if (typeof body === 'string') checkResponse(body);
      responseBody = body;
      isResponseSet = true;
    },
    appendBody: (more: unknown): void => {
      const isEmpty = responseBody === undefined || responseBody === null;
      response.setBody(isEmpty ? more : (responseBody as string) + (more as string));
    },
    getValue: (name: unknown) => (isBody(name) ? responseBody : valueOf(settings.response, name)),
    setValue: (name: unknown, value: unknown): void => {
      if (isBody(name)) response.setBody(value);
      else refuseValue(settings.response, name);
    },
    appendValue: (name: unknown, value: unknown): void => {
      if (isBody(name)) response.appendBody(value);
      else refuseValue(settings.response, name);
    },
    getMaxResourceQuota: () => valueOf(settings.response, 'x-ms-resource-quota') ?? '',
    getResourceQuotaCurrentUsage: () => valueOf(settings.response, 'x-ms-resource-usage') ?? '',
  };

  const context = {
    getCollection: () => collection,
    getRequest: () => request,
    getResponse: () => {
      if (kind === 'pre-trigger')
        throw failure(BAD_REQUEST, 'A pre-trigger has no response: it runs before the operation');
      return response;
    },
    abort: (error: unknown): never => {
      fail(error);
      throw error;
    },
  };

  const shortcut: Fields = create(collection);
  shortcut['request'] = request;
  if (kind !== 'pre-trigger') shortcut['response'] = response;

  // The log.
  let log = '';
  const say = (...args: unknown[]): void => {
    if (!settings.logs || log.length >= limits.MAX_LOG) return;
    let said = text(args[0]);
    for (let at = 1; at < args.length; at++) {
      const place = indexOf(said, '%s');
      if (place === -1) break;
      said = slice(said, 0, place) + text(args[at]) + slice(said, place + 2);
    }
    log = slice(log + said, 0, limits.MAX_LOG);
  };

  const world = globalThis as unknown as Fields;
  world['getContext'] = () => context;
  world['__'] = shortcut;
  world['console'] = { log: say };
  // The numbers of errors by their names. Scripts compare with them and throw them.
  world['ErrorCodes'] = freeze({
    BadRequest: BAD_REQUEST,
    Forbidden: FORBIDDEN,
    NotFound: 404,
    Conflict: 409,
    PreconditionFailed: 412,
    RequestEntityTooLarge: TOO_LARGE,
    RetryWith: 449,
    InternalServerError: 500,
  });

  const outcome = (): Fields => {
    if (failed !== undefined) return { __proto__: null, ...failed, log };
    isEnding = true;
    try {
      const body = isResponseSet ? ((stringify(responseBody) as string | undefined) ?? '""') : undefined;
      if (body !== undefined) checkResponse(body);
      const changed = isRequestSet ? documentBody(requestBody) : undefined;
      return { __proto__: null, kind: 'done', body, requestBody: changed, log };
    } catch (error) {
      fail(error);
      return outcome();
    }
  };

  return {
    begin: (f: Any): void => {
      guarded(() => {
        const args = kind === 'stored-procedure' ? (requestBody ?? []) : [];
        const result = apply(f, undefined, args as Rows);
        // An error that an async function throws rejects its promise.
        if (result instanceof NativePromise) void then(result, undefined, fail);
      });
    },
    /** The next operation as JSON; `null` if there is none. */
    next: (): string => first?.operation ?? 'null',
    /** The body of the same operation. */
    body: (): string => first!.body,
    answer: (answerText: string, body: string): void => {
      const { settle } = first!;
      first = first!.next;
      const told = parse(answerText) as Answer;
      const answer = body === '' ? told : { ...told, body };
      guarded(() => settle(answer.kind === 'failed' ? failure(answer.status!, answer.message) : undefined, answer));
    },
    end: (): string => stringify(outcome()),
    log: () => log,
  };
}
