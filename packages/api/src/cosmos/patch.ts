import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { partitionKeyPaths } from '@epitaph/core/partition-key/canonical-key.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { integerValue, isNumeric } from '@epitaph/query';
import { defaultLimits } from '../http/limits.ts';
import type { Document, PatchOperation, PatchRequest } from '../store/api/items-api.ts';
import { itemSystemProperties } from '../store/system-properties.ts';
import { asShown, isJsonObject, type JsonObject } from './json.ts';

/** Source: Cosmos DB, "Partial document update". */
const MAX_OPERATIONS = 10;
const MAX_CONDITION_CHARACTERS = 64 * 1024;

/** The store applies patches too, so what can't be done is refused in its terms. */
const refuse = (message: string): Refusal => new Refusal('bad-request', message);

/** What of a container a patch must not touch. */
interface Untouchable {
  readonly definition: ContainerDefinition;
}

/**
 * Checks the body of a PATCH: a bare array of operations, or `{ operations, condition }`.
 *
 * @throws Refusal bad-request for anything else, for paths that no patch may touch, and for more than ten operations
 */
export function readPatch(body: unknown, { definition }: Untouchable): PatchRequest {
  const { operations, condition } = Array.isArray(body)
    ? { operations: body as readonly unknown[], condition: undefined }
    : isJsonObject(body)
      ? { operations: body['operations'], condition: body['condition'] }
      : { operations: undefined, condition: undefined };
  if (!Array.isArray(operations) || operations.length === 0) {
    throw refuse('The patch request has no operations: an array of 1 to 10 was expected.');
  }
  if (operations.length > MAX_OPERATIONS) {
    throw refuse(`The number of patch operations can't exceed '${MAX_OPERATIONS}'.`);
  }
  if (condition !== undefined && (typeof condition !== 'string' || condition.length > MAX_CONDITION_CHARACTERS)) {
    throw refuse('The condition of the patch request is not a query text.');
  }
  const checked = operations.map((operation: unknown) => readOperation(operation, definition));
  return condition === undefined ? { operations: checked } : { operations: checked, condition };
}

function readOperation(value: unknown, definition: ContainerDefinition): PatchOperation {
  if (!isJsonObject(value)) throw refuse('A patch operation is not an object.');
  const { op, path, from } = value;
  const where = checkPath(path, definition);
  switch (op) {
    case 'add':
    case 'set':
    case 'replace':
      if (!Object.hasOwn(value, 'value')) throw refuse(`The patch operation '${op}' on '${where}' has no value.`);
      return { op, path: where, value: value['value'] };
    case 'incr':
    case 'increment':
      if (!isNumeric(value['value']) || !Number.isFinite(Number(value['value']))) {
        throw refuse(`The patch operation 'incr' on '${where}' needs a number as its value.`);
      }
      return { op: 'incr', path: where, value: value['value'] };
    case 'remove':
      return { op, path: where };
    case 'move': {
      const source = checkPath(from, definition);
      if (where.startsWith(`${source}/`)) {
        throw refuse(`The patch operation 'move' can't move '${source}' into itself.`);
      }
      return { op, path: where, from: source };
    }
    default:
      throw refuse(`The patch operation '${asShown(op)}' is not one of add, set, replace, remove, incr, move.`);
  }
}

function checkPath(path: unknown, definition: ContainerDefinition): string {
  if (typeof path !== 'string') throw refuse('A patch operation has no path.');
  const names = parsePath(path);
  const [first] = names;
  if (first === 'id' || (itemSystemProperties as readonly (string | undefined)[]).includes(first)) {
    throw refuse(`The patch path '${path.slice(0, 200)}' is a property that can't be patched.`);
  }
  for (const keyPath of partitionKeyPaths(definition)) {
    // What is above the key would change it, and so would what is below: a key is no object.
    const shared = Math.min(keyPath.length, names.length);
    if (keyPath.slice(0, shared).every((name, index) => name === names[index])) {
      throw refuse(`The patch path '${path.slice(0, 200)}' is the partition key's, which can't be patched.`);
    }
  }
  return path;
}

/** Takes a JSON pointer (RFC 6901) apart; the whole document has no path here. */
function parsePath(path: string): readonly string[] {
  if (path.length < 2 || path.length > 4096 || !path.startsWith('/')) {
    throw refuse(`The patch path '${path.slice(0, 200)}' is not valid.`);
  }
  return path
    .slice(1)
    .split('/')
    .map((name) => {
      if (!name.includes('~')) return name;
      if (/~(?![01])/.test(name))
        throw refuse(`The patch path '${path.slice(0, 200)}' has a '~' that escapes nothing.`);
      return name.replaceAll('~1', '/').replaceAll('~0', '~');
    });
}

/**
 * The document after all operations, in order. The given document stays as it is; what no operation touches is
 * shared with it.
 *
 * @throws Refusal bad-request when an operation can't be applied; then none is
 */
export function applyPatch(document: Document, operations: readonly PatchOperation[]): Document {
  let patched: JsonObject = document;
  for (const operation of operations) patched = applyOperation(patched, operation);
  return patched;
}

function applyOperation(document: JsonObject, operation: PatchOperation): JsonObject {
  const path = parsePath(operation.path);
  switch (operation.op) {
    case 'add':
    case 'set':
    case 'replace':
      checkDepth(operation.value, path);
      return place(document, path, operation.op, operation.value, operation.path);
    case 'remove':
      return remove(document, path, operation.path);
    case 'incr': {
      const found = valueAt(document, path);
      if (found === undefined) return place(document, path, 'set', operation.value, operation.path);
      if (!isNumeric(found.value)) throw cannot(operation.path, 'it is not a number');
      const sum = sumOf(found.value, operation.value);
      if (!Number.isFinite(Number(sum))) throw cannot(operation.path, 'the sum is out of range');
      return place(document, path, 'replace', sum, operation.path);
    }
    case 'move': {
      const from = parsePath(operation.from);
      const found = valueAt(document, from);
      if (found === undefined) throw cannot(operation.from, 'it is not there');
      checkDepth(found.value, path);
      return place(remove(document, from, operation.from), path, 'add', found.value, operation.path);
    }
    default:
      return operation satisfies never;
  }
}

/** Exact for integers of which all digits are known. */
function sumOf(left: number | bigint, right: number | bigint): number | bigint {
  const isExact = (value: number | bigint) => typeof value === 'bigint' || Number.isSafeInteger(value);
  return isExact(left) && isExact(right) ? integerValue(BigInt(left) + BigInt(right)) : Number(left) + Number(right);
}

const cannot = (path: string, why: string) =>
  refuse(`The patch operation on '${path.slice(0, 200)}' can't be applied: ${why}.`);

/** An index as it stands in a path: decimal, without leading zeros. */
const INDEX = /^(?:0|[1-9]\d{0,8})$/;

function valueAt(document: JsonObject, path: readonly string[]): { readonly value: unknown } | undefined {
  let value: unknown = document;
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    if (Array.isArray(value)) {
      if (!INDEX.test(name) || Number(name) >= value.length) return undefined;
      value = value[Number(name)];
    } else {
      if (!Object.hasOwn(value, name)) return undefined;
      value = (value as JsonObject)[name];
    }
  }
  return { value };
}

/** Copies the containers along the path and changes the last one. */
function change(
  container: JsonObject,
  path: readonly string[],
  text: string,
  last: (container: JsonObject | readonly unknown[], name: string) => JsonObject | readonly unknown[],
): JsonObject {
  const step = (at: unknown, depth: number): JsonObject | readonly unknown[] => {
    if (typeof at !== 'object' || at === null) throw cannot(text, 'what is above it is no object or array');
    const name = path[depth]!;
    if (depth === path.length - 1) return last(at as JsonObject | readonly unknown[], name);
    const child = valueAt(at as JsonObject, [name]);
    if (child === undefined) throw cannot(text, 'what is above it is not there');
    const changed = step(child.value, depth + 1);
    return Array.isArray(at) ? at.with(Number(name), changed) : withProperty(at as JsonObject, name, changed);
  };
  return step(container, 0) as JsonObject;
}

function place(
  document: JsonObject,
  path: readonly string[],
  op: 'add' | 'set' | 'replace',
  value: unknown,
  text: string,
): JsonObject {
  return change(document, path, text, (container, name) => {
    if (!Array.isArray(container)) {
      if (op === 'replace' && !Object.hasOwn(container, name)) throw cannot(text, 'it is not there');
      return withProperty(container as JsonObject, name, value);
    }
    const elements = container as readonly unknown[];
    if (name === '-' && op !== 'replace') return [...elements, value];
    const index = INDEX.test(name) ? Number(name) : Number.POSITIVE_INFINITY;
    if (index > elements.length || (op === 'replace' && index === elements.length)) {
      throw cannot(text, 'there is no such place in the array');
    }
    return elements.toSpliced(index, op === 'add' ? 0 : 1, value);
  });
}

function remove(document: JsonObject, path: readonly string[], text: string): JsonObject {
  return change(document, path, text, (container, name) => {
    if (valueAt(container as JsonObject, [name]) === undefined) throw cannot(text, 'it is not there');
    if (Array.isArray(container)) return container.toSpliced(Number(name), 1);
    const copy: Record<string, unknown> = { ...(container as JsonObject) };
    delete copy[name];
    return copy;
  });
}

/** A copy with one property set. Defined, not assigned: a property may be called `__proto__`. */
function withProperty(object: JsonObject, name: string, value: unknown): JsonObject {
  const copy = { ...object };
  Object.defineProperty(copy, name, { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

/** Patches must not nest a document, step by step, deeper than one could be sent. */
function checkDepth(value: unknown, path: readonly string[]): void {
  const tooDeep = (at: unknown, depthLeft: number): boolean => {
    if (typeof at !== 'object' || at === null) return false;
    if (depthLeft <= 0) return true;
    return Object.values(at).some((child) => tooDeep(child, depthLeft - 1));
  };
  if (tooDeep(value, defaultLimits.jsonDepth - path.length) || path.length > defaultLimits.jsonDepth) {
    throw refuse('The patched document would be nested too deeply.');
  }
}
