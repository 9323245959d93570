import { MAX_BODY, MAX_LOG, MAX_MESSAGE, MAX_NAME, MAX_PAGE, MAX_QUERY, MAX_RESPONSE } from './limits.ts';
import type { FunctionsOutcome, Script, ScriptAnswer, ScriptOperation, ScriptOutcome } from './script.ts';

/** The options of a thread. */
export interface ThreadOptions {
  /** What its engines run. */
  readonly kind: 'scripts' | 'functions';
  readonly memoryBytes: number;
  /** The compiled module of the engine. */
  readonly code: object;
}

/** A job for a thread, which executes one at a time. */
export interface Job {
  readonly timeMs: number;
  /** The time of `Date` in the engine when the job begins. By default it is the machine's time. */
  readonly nowMs?: number;
  readonly task:
    | { readonly kind: 'script'; readonly script: Script }
    | {
        readonly kind: 'functions';
        readonly sources: readonly (readonly [name: string, source: string])[];
        /** JSON text: for each call, the index of the function in `sources`, the arguments, and the indexes of undefined arguments. */
        readonly calls: string;
        readonly count: number;
      };
}

/** A message to a thread. An answer belongs to the operation that the thread has requested last. */
export type ToThread = Job | { readonly answer: ScriptAnswer };

/** A message from a thread. The store does not trust it, and checks it with {@link readSaid}. */
export type Said =
  /** The thread and its engine have started, so the job's time begins. */
  | { readonly kind: 'begun' }
  | { readonly kind: 'operation'; readonly operation: ScriptOperation }
  | { readonly kind: 'script'; readonly outcome: ScriptOutcome }
  | { readonly kind: 'functions'; readonly outcome: FunctionsOutcome };

/**
 * Checks a message of a thread, and copies only the expected fields of it. The engine runs clients' code. Even if such code took control of
 * the engine and the thread, it still could not request more than a script may.
 *
 * @param results how many results of functions are expected
 * @returns undefined for a message that an intact thread never sends
 */
export function readSaid(value: unknown, results: number): Said | undefined {
  const said = fieldsOf(value);
  switch (said?.['kind']) {
    case 'begun':
      return { kind: 'begun' };
    case 'operation': {
      const operation = readOperation(said['operation']);
      return operation === undefined ? undefined : { kind: 'operation', operation };
    }
    case 'script': {
      const outcome = readScriptOutcome(said['outcome']);
      return outcome === undefined ? undefined : { kind: 'script', outcome };
    }
    case 'functions': {
      const outcome = readFunctionsOutcome(said['outcome'], results);
      return outcome === undefined ? undefined : { kind: 'functions', outcome };
    }
    default:
      return undefined;
  }
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields | undefined {
  return typeof value === 'object' && value !== null ? (value as Fields) : undefined;
}

function isText(value: unknown, most: number): value is string {
  return typeof value === 'string' && value.length <= most;
}

function isTextOrNone(value: unknown, most: number): value is string | undefined {
  return value === undefined || isText(value, most);
}

function isPageSize(value: unknown): value is number | undefined {
  return value === undefined || (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_PAGE);
}

export function readOperation(value: unknown): ScriptOperation | undefined {
  const fields = fieldsOf(value);
  if (fields === undefined) return undefined;
  const { kind, body, link, ifMatch, ifNoneMatch, pageSize, continuation, query, parameters, makesId } = fields;
  switch (kind) {
    case 'create':
    case 'upsert':
      return isText(body, MAX_BODY) && typeof makesId === 'boolean' ? { kind, body, makesId } : undefined;
    case 'replace':
      if (!isText(link, MAX_NAME) || !isText(body, MAX_BODY) || !isTextOrNone(ifMatch, MAX_NAME)) return undefined;
      return { kind, link, body, ...(ifMatch !== undefined && { ifMatch }) };
    case 'delete':
      if (!isText(link, MAX_NAME) || !isTextOrNone(ifMatch, MAX_NAME)) return undefined;
      return { kind, link, ...(ifMatch !== undefined && { ifMatch }) };
    case 'read':
      if (!isText(link, MAX_NAME) || !isTextOrNone(ifNoneMatch, MAX_NAME)) return undefined;
      return { kind, link, ...(ifNoneMatch !== undefined && { ifNoneMatch }) };
    case 'list':
    case 'query': {
      if (!isPageSize(pageSize) || !isTextOrNone(continuation, MAX_QUERY)) return undefined;
      const page = { ...(pageSize !== undefined && { pageSize }), ...(continuation !== undefined && { continuation }) };
      if (kind === 'list') return { kind, ...page };
      return isText(query, MAX_QUERY) && isText(parameters, MAX_BODY)
        ? { kind, query, parameters, ...page }
        : undefined;
    }
    default:
      return undefined;
  }
}

function isNumberOrNone(value: unknown): value is number | undefined {
  return value === undefined || Number.isSafeInteger(value);
}

function isWorked(value: unknown): value is number {
  return typeof value === 'number' && value >= 0;
}

export function readScriptOutcome(value: unknown): ScriptOutcome | undefined {
  const fields = fieldsOf(value);
  if (fields === undefined) return undefined;
  const { kind, log, workedMs, body, requestBody, message, number } = fields;
  if (!isText(log, MAX_LOG) || !isWorked(workedMs)) return undefined;
  switch (kind) {
    case 'done':
      if (!isTextOrNone(body, MAX_RESPONSE) || !isTextOrNone(requestBody, MAX_BODY)) return undefined;
      return {
        kind,
        ...(body !== undefined && { body }),
        ...(requestBody !== undefined && { requestBody }),
        log,
        workedMs,
      };
    case 'threw':
      if (!isText(message, MAX_MESSAGE) || !isNumberOrNone(number)) return undefined;
      return { kind, message, ...(number !== undefined && { number }), log, workedMs };
    case 'out-of-time':
    case 'out-of-memory':
      return { kind, log, workedMs };
    default:
      return undefined;
  }
}

function readFunctionsOutcome(value: unknown, count: number): FunctionsOutcome | undefined {
  const fields = fieldsOf(value);
  if (fields === undefined) return undefined;
  const { kind, results, name, message, number, workedMs } = fields;
  if (!isWorked(workedMs)) return undefined;
  switch (kind) {
    case 'done':
      return areResults(results, count) ? { kind, results, workedMs } : undefined;
    case 'threw':
      if (typeof name !== 'string' || !isText(message, MAX_MESSAGE) || !isNumberOrNone(number)) return undefined;
      return { kind, name, message, ...(number !== undefined && { number }), workedMs };
    case 'out-of-time':
    case 'out-of-memory':
      return { kind, workedMs };
    default:
      return undefined;
  }
}

function areResults(value: unknown, count: number): value is (string | undefined)[] {
  return (
    Array.isArray(value) &&
    value.length === count &&
    value.every((result) => result === undefined || typeof result === 'string')
  );
}
