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

export type Compiled = (frame: Frame) => Value;
export type CompiledTest = (frame: Frame) => boolean;
