import type { Value } from '../values/values.ts';

export type BuiltInCall = (...args: Value[]) => Value;

/** A built-in function of the language. Missing arguments are undefined. */
export interface BuiltIn {
  readonly minArguments: number;
  readonly maxArguments: number;
  /** Makes the function for one place in a query. It may cache what it has prepared there. */
  readonly create: () => BuiltInCall;
  /** False if two calls with the same arguments may have different results. Such a function is never folded into a constant. */
  readonly pure: boolean;
  /** Units of work for each character of the arguments as JSON, for a function that takes much longer than reading them. */
  readonly unitsPerCharacter?: number;
  /** True if even short arguments can take long. Then the time is checked at each call, and the call is not folded. */
  readonly takesLong?: true;
  /** True if an optional argument that is undefined counts as missing. In other functions it makes the result undefined. */
  readonly undefinedIsLeftOut?: true;
}

export type BuiltIns = Readonly<Record<string, BuiltIn>>;

/** Makes a pure function whose number of arguments is in a range. */
export function pure(minArguments: number, maxArguments: number, call: (...args: Value[]) => Value): BuiltIn {
  return { minArguments, maxArguments, create: () => call, pure: true };
}
