import type { Value } from '../values/values.ts';

export type BuiltInCall = (...args: Value[]) => Value;

/** A built-in function of the language. Arguments that weren't given are undefined. */
export interface BuiltIn {
  readonly minArguments: number;
  readonly maxArguments: number;
  /** Makes the function for one place in a query, which may remember what it prepared there. */
  readonly create: () => BuiltInCall;
  /** False when two calls with the same arguments may differ, so that it is never folded into a constant. */
  readonly pure: boolean;
  /** Units of work for each character of its arguments as JSON, of what takes much longer than to look at them. */
  readonly unitsPerCharacter?: number;
  /** True where short arguments can take long together: the time is asked at each call, and it is not folded. */
  readonly takesLong?: true;
  /** True where an optional argument that is undefined counts as not given; elsewhere it makes the result undefined. */
  readonly undefinedIsLeftOut?: true;
}

export type BuiltIns = Readonly<Record<string, BuiltIn>>;

/** A pure function of a fixed number of arguments, or of a range of numbers of them. */
export function pure(minArguments: number, maxArguments: number, call: (...args: Value[]) => Value): BuiltIn {
  return { minArguments, maxArguments, create: () => call, pure: true };
}
