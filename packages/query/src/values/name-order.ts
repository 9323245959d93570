/**
 * The names of an object in the order in which they were written. JavaScript puts names that are whole numbers up to 4294967294 before all
 * others, in ascending order. If a dictionary has such keys, Newtonsoft.Json would then read its `$type` as an ordinary key.
 *
 * The names are stored in the object under a symbol: code that copies its properties copies them too, and no other code sees them.
 */
const WRITTEN = Symbol('names as they were written');

interface Kept {
  [WRITTEN]?: ReadonlySet<string>;
}

const WHOLE_NUMBER = /^(?:0|[1-9]\d{0,9})$/;
export const isWholeNumberName = (name: string): boolean => WHOLE_NUMBER.test(name);

/** Stores the order of an object's names, if JavaScript's order differs. */
export function keepNames(object: object, written: Iterable<string>): void {
  const names = new Set(written);
  const present = Object.keys(object);
  let place = 0;
  for (const name of names) {
    if (present[place] !== name) break;
    place += 1;
  }
  if (place < names.size) (object as Kept)[WRITTEN] = names;
}

/** The names of an object in the order in which they were written, followed by names that were added since. */
export function namesOf(object: object): readonly string[] {
  const names = Object.keys(object);
  const written = (object as Kept)[WRITTEN];
  if (written === undefined) return names;
  return [...[...written].filter((name) => Object.hasOwn(object, name)), ...names.filter((name) => !written.has(name))];
}
