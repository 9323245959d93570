import { isShort } from '../functions/bounds.ts';
import { Memory } from '../values/memory.ts';
import type { Value } from '../values/values.ts';
import { type Compiled, type Frame, Work } from './frame.ts';

/** A compiled expression. A constant one has its value already. */
export interface Node {
  readonly run: Compiled;
  readonly constant: { readonly value: Value } | undefined;
}

/** Limit for the memory of computing a constant. */
const MAX_CONSTANT_BYTES = 16 * 1024 * 1024;

/** The frame for computing constants, which read nothing from it. */
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

/** Makes a node whose expression depends on nothing: its value is computed before the query runs. */
export function computed(run: Compiled): Node {
  EMPTY_FRAME.work.beginDocument();
  return constant(run(EMPTY_FRAME));
}

export function node(run: Compiled, inputs: readonly Node[]): Node {
  return inputs.every((input) => input.constant !== undefined) ? computed(run) : { run, constant: undefined };
}

/** An expression of constants is computed before the query runs only if each constant has at most this many characters. */
export const FOLDED_CHARACTERS = 512;

/**
 * Makes a node for work whose time depends on the size of its inputs. With large constants it is left to the run, in which the time is
 * checked.
 */
export function timedNode(run: Compiled, inputs: readonly Node[]): Node {
  const folds = inputs.every(({ constant: known }) => known !== undefined && isShort(known.value, FOLDED_CHARACTERS));
  return folds ? computed(run) : { run, constant: undefined };
}
