import { attempted, whole } from '../run/calls.ts';
import type { Compiled, Frame } from '../run/frame.ts';
import type { Node } from '../run/node.ts';
import { isWholeNumberName, keepNames } from '../values/name-order.ts';
import { isObject, type Json, type JsonObject, setProperty, type Value } from '../values/values.ts';

/** Compiles an object. Undefined properties are left out. */
export function objectBuilder(properties: readonly { name: string; value: Node }[]): Compiled {
  const names = properties.map(({ name }) => name);
  const hasOrder = names.some(isWholeNumberName);
  return (frame) => {
    const result: JsonObject = {};
    for (let index = 0; index < properties.length; index += 1) {
      const { name, value } = properties[index] as { name: string; value: Node };
      const computed = value.run(frame);
      if (computed !== undefined) setProperty(result, name, computed);
    }
    if (hasOrder) keepNames(result, names);
    return result;
  };
}

/** Compiles an object of which several properties call functions. `calls` says which do; their calls are gathered together. */
export function callingObjectBuilder(
  properties: readonly { readonly name: string; readonly value: Node; readonly calls: boolean }[],
): Compiled {
  return whole(
    objectBuilder(
      properties.map(({ name, value, calls }) => ({
        name,
        value: calls ? { ...value, run: attempted(value.run, undefined) } : value,
      })),
    ),
  );
}

/** Makes an array. Undefined elements are left out. */
export function buildArray(items: readonly Node[], frame: Frame): Json[] {
  const result: Json[] = [];
  for (const item of items) {
    const value = item.run(frame);
    if (value !== undefined) result.push(value);
  }
  return result;
}

/** Replaces NaN and infinities, which JSON lacks, by their names, as Cosmos DB does in rows. */
export function withoutNonFinite(value: Value): Value {
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (Array.isArray(value)) return value.map((item) => withoutNonFinite(item) as Json);
  if (!isObject(value)) return value;
  const result = { ...value };
  for (const name of Object.keys(value)) setProperty(result, name, withoutNonFinite(value[name]) as Json);
  return result;
}
