import { isObject } from '../values/values.ts';
import type { Value } from '../values/values.ts';
import { pure } from './builtin.ts';
import type { BuiltIns } from './builtin.ts';

/** Length in bytes of an item's `_rid`: the `_rid` of its container, followed by the item's number, the lowest byte first. */
const RID_BYTES = 16;
const CONTAINER_BYTES = 8;

/** The number of an item in its physical partition, with which its `_rid` ends; undefined for a value that is no item. */
function documentId(item: Value): Value {
  const rid = isObject(item) ? item['_rid'] : undefined;
  if (typeof rid !== 'string' || rid.length > 2 * RID_BYTES) return undefined;
  const bytes = Buffer.from(rid.replaceAll('-', '/'), 'base64');
  if (bytes.length !== RID_BYTES) return undefined;
  const id = bytes.readBigUInt64LE(CONTAINER_BYTES);
  return id <= Number.MAX_SAFE_INTEGER ? Number(id) : undefined;
}

export const itemFunctions: BuiltIns = {
  DOCUMENTID: pure(1, 1, documentId),
};
