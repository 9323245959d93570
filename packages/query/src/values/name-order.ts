/**
 * The names of an object as they were written. JavaScript puts those that are whole numbers up to 4294967294 before all
 * others, from the least; to Newtonsoft.Json the `$type` of a dictionary with such keys is then a key like them.
 *
 * Kept in the object, under a symbol: what copies its properties copies that as well, and nothing else sees it.
 */
const WRITTEN = Symbol('names as they were written');

interface Kept {
  [WRITTEN]?: ReadonlySet<string>;
}

const WHOLE_NUMBER = /^(?:0|[1-9]\d{0,9})$/;
export const isWholeNumberName = (name: string): boolean => WHOLE_NUMBER.test(name);

/** Has an object remember the order of its names, where it would be another. */
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

/** The names of an object as they were written; those that it got since come after these. */
export function namesOf(object: object): readonly string[] {
  const names = Object.keys(object);
  const written = (object as Kept)[WRITTEN];
  if (written === undefined) return names;
  return [...[...written].filter((name) => Object.hasOwn(object, name)), ...names.filter((name) => !written.has(name))];
}
