import { queryError, type SourceLocation } from '../errors.ts';
import type { BuiltIn } from '../functions/builtin.ts';
import { askTime, boundedIn, type Compiled, countWork, type Frame, sizeMade } from '../run/frame.ts';
import type { Node } from '../run/node.ts';
import { jsonText } from '../values/json-text.ts';
import type { Value } from '../values/values.ts';

/**
 * Whether an optional argument is given whose value may be undefined: a function can't distinguish that from a missing argument. A function
 * with any number of arguments has no optional ones.
 */
function isLeftOpen(builtIn: BuiltIn, { constant: known }: Node, index: number): boolean {
  const { minArguments, maxArguments, undefinedIsLeftOut } = builtIn;
  if (undefinedIsLeftOut === true) return false;
  return index >= minArguments && Number.isFinite(maxArguments) && known?.value === undefined;
}

/** Compiles a call. Its result counts as work too, since it may be larger than the arguments. */
export function compileCall(builtIn: BuiltIn, nodes: readonly Node[]): Compiled {
  const run = compilePlainCall(builtIn, nodes);
  return (frame) => {
    const { made } = frame.work;
    const result = run(frame);
    askTime(frame, result);
    // The values of the arguments are no longer needed.
    frame.work.keepOf(made, sizeMade(result));
    return result;
  };
}

/** Compiles a call of a user-defined function. Its result is looked up in `FunctionCalls`. */
export function compileUserCall(name: string, nodes: readonly Node[]): Compiled {
  const textIn = (frame: Frame, value: Value): string | undefined => {
    if (value === undefined) return undefined;
    const text = jsonText(boundedIn(frame, value));
    frame.work.lookThrough(text.length);
    return text;
  };
  return (frame) => {
    const { calls, work } = frame;
    if (calls === undefined) throw new Error(`udf.${name} needs calls in the evaluation context`);
    const { made } = work;
    const args = nodes.map((argument) => textIn(frame, argument.run(frame)));
    work.addCall(args.reduce((sum, text) => sum + (text?.length ?? 0), 0));
    const result = calls.resultOf(name, args);
    askTime(frame, result);
    work.keepOf(made, sizeMade(result));
    return result;
  };
}

/** Compiles a call. If it has few arguments, they are passed without an array. */
function compilePlainCall(builtIn: BuiltIn, nodes: readonly Node[]): Compiled {
  const call = builtIn.create();
  const { unitsPerCharacter } = builtIn;
  const args = nodes.map((argument) => argument.run);
  const timed = (frame: Frame, value: Value): Value => {
    askTime(frame, value);
    if (unitsPerCharacter !== undefined) countWork(frame, value, unitsPerCharacter);
    return value;
  };
  if (nodes.some((argument, index) => isLeftOpen(builtIn, argument, index))) {
    const { minArguments } = builtIn;
    return (frame) => {
      const values = args.map((argument) => argument(frame));
      for (const value of values) timed(frame, value);
      return values.includes(undefined, minArguments) ? undefined : call(...values);
    };
  }
  const [a, b, c] = args;
  if (a === undefined) return () => call();
  if (b === undefined) return (frame) => call(timed(frame, a(frame)));
  if (c === undefined) return (frame) => call(timed(frame, a(frame)), timed(frame, b(frame)));
  if (args.length === 3) {
    return (frame) => call(timed(frame, a(frame)), timed(frame, b(frame)), timed(frame, c(frame)));
  }
  return (frame) => call(...args.map((argument) => timed(frame, argument(frame))));
}

/** @throws QueryError if a call has too many or too few arguments */
export function checkArguments(
  name: string,
  count: number,
  minimum: number,
  maximum: number,
  at: SourceLocation,
): void {
  if (count >= minimum && count <= maximum) return;
  const wanted =
    minimum === maximum
      ? `${minimum}`
      : maximum === Number.POSITIVE_INFINITY
        ? `at least ${minimum}`
        : `${minimum} to ${maximum}`;
  throw queryError('wrongArgumentCount', `The ${name} function requires ${wanted} argument(s).`, at);
}
