import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { partitionKeyPaths } from '@epitaph/core/partition-key/canonical-key.ts';
import { isNumeric } from '@epitaph/query';
import type { PatchOperation, PatchRequest } from '../store/api/items-api.ts';
import { parsePatchPath } from '../store/items/patch.ts';
import { itemSystemProperties } from '../store/items/system-properties.ts';
import { asShown, isJsonObject } from './json.ts';

/** Source: Cosmos DB, "Partial document update". */
const MAX_OPERATIONS = 10;
const MAX_CONDITION_CHARACTERS = 64 * 1024;

/** The error for a patch that can't be applied. */
const refuse = (message: string): Refusal => new Refusal('bad-request', message);

/** What a patch must not touch. */
interface Untouchable {
  readonly definition: ContainerDefinition;
}

/**
 * Checks the body of a PATCH: an array of operations, or `{ operations, condition }`.
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
    throw refuse('The condition of the patch request is not a string.');
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
  const names = parsePatchPath(path);
  const [first] = names;
  if (first === 'id' || (itemSystemProperties as readonly (string | undefined)[]).includes(first)) {
    throw refuse(`Invalid patch request: Cannot patch system property '${first}'.`);
  }
  for (const keyPath of partitionKeyPaths(definition)) {
    // A change above the key's path would change the key, and so would one below it: a key is not an object.
    const shared = Math.min(keyPath.length, names.length);
    if (keyPath.slice(0, shared).every((name, index) => name === names[index])) {
      throw refuse(`The patch path '${path.slice(0, 200)}' is a path of the partition key, which can't be patched.`);
    }
  }
  return path;
}
