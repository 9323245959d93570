import type { FunctionCalls } from '../run/calls.ts';
import { type Frame, Work } from '../run/frame.ts';
import { Memory } from '../values/memory.ts';

/** The inputs of a run besides plan and documents, and its limits. */
export interface EvaluationContext {
  /** Milliseconds since the epoch: the time for GetCurrentDateTime and similar functions, which throw if it is missing. */
  readonly nowMs?: number;
  /** Counts the memory that the run holds until the last document. If its limit is exceeded, a QueryError is thrown. */
  readonly memory?: Memory;
  /**
   * The largest number of array elements that JOINs and subqueries may iterate over for one document, so that a cross product can't block
   * everything else. Beyond it a QueryError is thrown.
   */
  readonly maxStepsPerDocument?: number;
  /** A monotonic clock in milliseconds, with any start. If it is given, a document that takes too long fails with a QueryError. */
  readonly monotonicMs?: () => number;
  /** The time limit for a document, and for a group after the last document, in milliseconds; 1,000 by default. */
  readonly maxDocumentMs?: number;
  /** Makes the error to throw after that time, instead of a QueryError. */
  readonly tooLong?: () => Error;
  /** Calls the user-defined functions, for a plan that {@link QueryPlan.callsFunctions}. */
  readonly calls?: FunctionCalls;
}

/** The context of several plans that share one count of work. */
export interface SharedContext extends EvaluationContext {
  readonly work?: Work;
}

const DEFAULT_MOST_BYTES = 1024 * 1024 * 1024;
const DEFAULT_MAX_STEPS_PER_DOCUMENT = 5_000_000;
const DEFAULT_MAX_DOCUMENT_MS = 1_000;

/** A frame for evaluating one document after the other. */
export function newFrame(context: SharedContext): Frame {
  const limits = {
    maxSteps: context.maxStepsPerDocument ?? DEFAULT_MAX_STEPS_PER_DOCUMENT,
    maxMs: context.maxDocumentMs ?? DEFAULT_MAX_DOCUMENT_MS,
    monotonicMs: context.monotonicMs,
    tooLong: context.tooLong,
  };
  return {
    slots: [],
    aggregates: [],
    groupKeys: [],
    nowMs: context.nowMs,
    memory: context.memory ?? new Memory(DEFAULT_MOST_BYTES),
    work: context.work ?? new Work(limits),
    calls: context.calls,
  };
}
