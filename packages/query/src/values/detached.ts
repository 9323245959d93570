import { type JsonObject, setProperty, type Value } from './values.ts';

/** Limit for the bytes of what is remembered of one document. More is read from the document again. */
export const MOST_REMEMBERED_BYTES = 4 * 1024;

/** From so many characters on, a part of a text may be a reference into the whole text. */
const MAY_REFER = 13;

/** A copy of a value, whose texts don't keep others in memory of which they are parts. */
export function detached<Kind extends Value>(value: Kind): Kind;
export function detached(value: Value): Value {
  if (typeof value === 'string') {
    return value.length < MAY_REFER ? value : (JSON.parse(JSON.stringify(value)) as string);
  }
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((element) => detached(element));
  // A copy of the properties keeps the order in which their names were written.
  const copy: JsonObject = { ...value };
  for (const name in value) setProperty(copy, name, detached(value[name]!));
  return copy;
}
