import type { FunctionCalls } from '../run/calls.ts';
import { type Frame, Work } from '../run/frame.ts';
import { Memory } from '../values/memory.ts';

/** What a run needs from outside, and its limits. */
export interface EvaluationContext {
  /** Milliseconds since the epoch: the time that GetCurrentDateTime and its kin tell. They throw without it. */
  readonly nowMs?: number;
  /** Where it tells what it holds until the last document. Past what that may be a QueryError is thrown. */
  readonly memory?: Memory;
  /**
   * Array elements that JOINs and subqueries may iterate over for one document, so that one document's cross product
   * can't hold up everything else. Past it a QueryError is thrown.
   */
  readonly maxStepsPerDocument?: number;
  /** Milliseconds since any time. With it, a document that is worked on for too long is given up with a QueryError. */
  readonly monotonicMs?: () => number;
  /** Milliseconds that a document may be worked on, and a group when all documents are seen; 1,000 unless told. */
  readonly maxDocumentMs?: number;
  /** Makes what is thrown then in place of a QueryError. */
  readonly tooLong?: () => Error;
  /** Calls the user-defined functions, for a plan that {@link QueryPlan.callsFunctions}. */
  readonly calls?: FunctionCalls;
}

/** The same, where several plans share what they work. */
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
