import type { Compiled } from '../run/frame.ts';
import { isObject, type JsonObject, type Value } from '../values/values.ts';

/**
 * True for names that may be properties of an object without being in its JSON, because arrays or all objects have them. Other names
 * can be read without checking whether they are own properties.
 */
function needsOwnCheck(key: string): boolean {
  return key in Array.prototype || /^\d+$/.test(key);
}

function readProperty(object: Value, key: string): Value {
  return isObject(object) && Object.hasOwn(object, key) ? object[key] : undefined;
}

export function readMember(object: Value, key: Value): Value {
  if (typeof key === 'string') return readProperty(object, key);
  return typeof key === 'number' && Array.isArray(object) ? object[key] : undefined;
}

export function propertyReader(object: Compiled, key: string): Compiled {
  if (needsOwnCheck(key)) return (frame) => readProperty(object(frame), key);
  return (frame) => {
    const value = object(frame);
    return typeof value === 'object' && value !== null ? (value as JsonObject)[key] : undefined;
  };
}

export function slotPropertyReader(slot: number, key: string): Compiled {
  if (needsOwnCheck(key)) return (frame) => readProperty(frame.slots[slot], key);
  return (frame) => {
    const value = frame.slots[slot];
    return typeof value === 'object' && value !== null ? (value as JsonObject)[key] : undefined;
  };
}
