import { arrayFunctions } from './array.ts';
import type { BuiltIn } from './builtin.ts';
import { conditionalFunctions } from './conditional.ts';
import { dateTimeFunctions } from './datetime.ts';
import { fullTextFunctions } from './full-text.ts';
import { itemFunctions } from './item.ts';
import { mathFunctions } from './math.ts';
import { planarFunctions, spatialFunctions } from './spatial.ts';
import { stringFunctions } from './string.ts';
import { typeFunctions } from './type.ts';
import { vectorFunctions } from './vector.ts';

/** Those that go by the plane in containers of the type "Geometry". */
export const planarBuiltIns: ReadonlyMap<string, BuiltIn> = new Map(Object.entries(planarFunctions));

/** Every built-in function except those that read the clock, by its name in upper case. */
export const builtIns: ReadonlyMap<string, BuiltIn> = new Map(
  [
    arrayFunctions,
    conditionalFunctions,
    dateTimeFunctions,
    fullTextFunctions,
    itemFunctions,
    mathFunctions,
    spatialFunctions,
    stringFunctions,
    typeFunctions,
    vectorFunctions,
  ].flatMap((group) => Object.entries(group)),
);
