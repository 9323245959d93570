import { arrayFunctions } from './array.ts';
import type { BuiltIn, BuiltIns } from './builtin.ts';
import { conditionalFunctions } from './conditional.ts';
import { dateTimeFunctions } from './datetime.ts';
import { fullTextFunctions } from './full-text.ts';
import { itemFunctions } from './item.ts';
import { mathFunctions } from './math.ts';
import { planarFunctions, spatialFunctions } from './spatial.ts';
import { stringFunctions } from './string.ts';
import { typeFunctions } from './type.ts';
import { vectorFunctions } from './vector.ts';

/** The functions that compute on the plane, for containers of the type "Geometry". */
export const planarBuiltIns: ReadonlyMap<string, BuiltIn> = new Map(Object.entries(planarFunctions));

/** Other names of functions than those in the documentation, used by the .NET client or by Microsoft's query editor. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  CONTAINSALLCI: 'CONTAINS_ALL_CI',
  CONTAINSALLCS: 'CONTAINS_ALL_CS',
  CONTAINSANYCI: 'CONTAINS_ANY_CI',
  CONTAINSANYCS: 'CONTAINS_ANY_CS',
  FULLTEXT_CONTAINS: 'FULLTEXTCONTAINS',
  FULLTEXT_CONTAINS_ALL: 'FULLTEXTCONTAINSALL',
  FULLTEXT_CONTAINS_ANY: 'FULLTEXTCONTAINSANY',
  INTBITWISEAND: 'INTBITAND',
  INTBITWISELEFTSHIFT: 'INTBITLEFTSHIFT',
  INTBITWISENOT: 'INTBITNOT',
  INTBITWISEOR: 'INTBITOR',
  INTBITWISERIGHTSHIFT: 'INTBITRIGHTSHIFT',
  INTBITWISEXOR: 'INTBITXOR',
  INTMULTIPLY: 'INTMUL',
  IS_BOOLEAN: 'IS_BOOL',
  OBJECT_TO_ARRAY: 'OBJECTTOARRAY',
  SET_DIFFERENCE: 'SETDIFFERENCE',
  SET_EQUAL: 'SETEQUAL',
  SET_INTERSECT: 'SETINTERSECT',
  SET_UNION: 'SETUNION',
  STRING_EQUALS: 'STRINGEQUALS',
  STRING_JOIN: 'STRINGJOIN',
  STRING_SPLIT: 'STRINGSPLIT',
  STRING_TO_ARRAY: 'STRINGTOARRAY',
  STRING_TO_BOOLEAN: 'STRINGTOBOOLEAN',
  STRING_TO_NULL: 'STRINGTONULL',
  STRING_TO_NUMBER: 'STRINGTONUMBER',
  STRING_TO_OBJECT: 'STRINGTOOBJECT',
  TO_STRING: 'TOSTRING',
};

const documented: BuiltIns = {
  ...arrayFunctions,
  ...conditionalFunctions,
  ...dateTimeFunctions,
  ...fullTextFunctions,
  ...itemFunctions,
  ...mathFunctions,
  ...spatialFunctions,
  ...stringFunctions,
  ...typeFunctions,
  ...vectorFunctions,
};

/** Every built-in function except those that read the clock, by its name in upper case. */
export const builtIns: ReadonlyMap<string, BuiltIn> = new Map([
  ...Object.entries(documented),
  ...Object.entries(OTHER_NAMES).map(([name, other]) => [name, documented[other]!] as const),
]);
