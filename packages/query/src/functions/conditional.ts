import { pure } from './builtin.ts';
import type { BuiltIns } from './builtin.ts';

export const conditionalFunctions: BuiltIns = {
  /** Any test value except true, also undefined, selects the third argument. */
  IIF: pure(3, 3, (test, whenTrue, otherwise) => (test === true ? whenTrue : otherwise)),
};
