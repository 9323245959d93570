import { queryError } from './errors.ts';
import type { Memory } from './memory.ts';
import type { Value } from './values.ts';

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
  /** Elements that JOINs and subqueries may iterate over for one document. */
  readonly maxStepsPerDocument: number;
  /** How many of them are left. */
  stepsLeft: number;
  /** Tells how long a document takes, in milliseconds since any time; undefined when nobody asks. */
  readonly monotonicMs: (() => number) | undefined;
  /** When it was first asked for the document at hand. */
  startedMs: number | undefined;
}

/** The frame is about the document in its slots from now on. */
export function beginDocument(frame: Frame): void {
  frame.stepsLeft = frame.maxStepsPerDocument;
  frame.startedMs = undefined;
}

/** Milliseconds that a document may take while others wait. */
const MAX_DOCUMENT_MS = 2_000;

export function takesTooLong(frame: Frame): boolean {
  const nowMs = frame.monotonicMs?.();
  if (nowMs === undefined) return false;
  frame.startedMs ??= nowMs;
  return nowMs - frame.startedMs > MAX_DOCUMENT_MS;
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
  const takesTime =
    typeof value === 'string' ? value.length >= MANY_CHARACTERS : typeof value === 'object' && value !== null;
  if (takesTime) assertTime(frame);
}

export function assertTime(frame: Frame): void {
  if (takesTooLong(frame)) {
    throw queryError('tooComplex', 'The query works too long on the large values of one document. Ask less at once.');
  }
}

export type Compiled = (frame: Frame) => Value;
export type CompiledTest = (frame: Frame) => boolean;
