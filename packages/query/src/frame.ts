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
  /** Rows that may still be held in memory at once by each part of the query. */
  readonly maxBufferedRows: number;
  /** Elements that JOINs and subqueries may iterate over for one document. */
  readonly maxStepsPerDocument: number;
  /** How many of them are left. */
  stepsLeft: number;
}

export type Compiled = (frame: Frame) => Value;
export type CompiledTest = (frame: Frame) => boolean;
