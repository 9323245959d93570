import { isShort } from '../functions/bounds.ts';
import { Memory } from '../values/memory.ts';
import type { Value } from '../values/values.ts';
import { type Compiled, type Frame, Work } from './frame.ts';

/** A compiled expression; a constant one has its value already. */
export interface Node {
  readonly run: Compiled;
  readonly constant: { readonly value: Value } | undefined;
}

/** What a constant may take while it is computed. */
const MAX_CONSTANT_BYTES = 16 * 1024 * 1024;

/** The frame that constants are computed in: it has nothing to read. */
const EMPTY_FRAME: Frame = {
  slots: [],
  aggregates: [],
  groupKeys: [],
  nowMs: undefined,
  memory: new Memory(MAX_CONSTANT_BYTES),
  work: new Work({ maxSteps: 0, maxMs: 0, monotonicMs: undefined, tooLong: undefined }),
  calls: undefined,
};

export function constant(value: Value): Node {
  return { run: () => value, constant: { value } };
}

/** The value of what depends on nothing is computed before the query runs. */
export function computed(run: Compiled): Node {
  EMPTY_FRAME.work.beginDocument();
  return constant(run(EMPTY_FRAME));
}

export function node(run: Compiled, inputs: readonly Node[]): Node {
  return inputs.every((input) => input.constant !== undefined) ? computed(run) : { run, constant: undefined };
}

/** What depends on a constant is computed before the query runs if the constant has at most so many characters. */
export const FOLDED_CHARACTERS = 512;

/**
 * The same for what takes the longer, the larger its inputs are: with large constants it is left to the run, which is
 * timed.
 */
export function timedNode(run: Compiled, inputs: readonly Node[]): Node {
  const folds = inputs.every(({ constant: known }) => known !== undefined && isShort(known.value, FOLDED_CHARACTERS));
  return folds ? computed(run) : { run, constant: undefined };
}
