import { Refusal } from '@epitaph/core/errors.ts';
import { integerValue, isNumeric } from '@epitaph/query';
import type { Document, PatchOperation } from '../api/items-api.ts';
import { MAX_DOCUMENT_DEPTH } from '../document-limits.ts';

const refuse = (message: string): Refusal => new Refusal('bad-request', message);

/**
 * Parses a JSON pointer (RFC 6901). The empty path, which means the whole document, is not allowed.
 *
 * @throws Refusal bad-request for anything else
 */
export function parsePatchPath(path: string): readonly string[] {
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
 * The document after all operations, applied in order. The given document is not changed; parts that no operation
 * touches are shared with it.
 *
 * @throws Refusal bad-request with the operation's number when an operation can't be applied; then none is
 */
export function applyPatch(document: Document, operations: readonly PatchOperation[]): Document {
  let patched: Document = document;
  const copies = new Set<object>();
  for (const [index, operation] of operations.entries()) {
    patched = applyOperation(patched, operation, index + 1, copies);
  }
  return patched;
}

function applyOperation(document: Document, operation: PatchOperation, number: number, copies: Set<object>): Document {
  const path = parsePatchPath(operation.path);
  const at: Place = { path, op: operation.op, number, copies };
  switch (operation.op) {
    case 'add':
    case 'set':
    case 'replace':
      checkDepth(operation.value, path);
      return place(document, at, operation.op, operation.value);
    case 'remove':
      return remove(document, at);
    case 'incr': {
      const found = valueAt(document, path);
      if (found === undefined) return place(document, at, 'set', operation.value);
      if (!isNumeric(found.value)) throw cannot(at, `Node(${lastOf(at)}) is not a number.`);
      const sum = sumOf(found.value, operation.value);
      if (!Number.isFinite(Number(sum))) throw cannot(at, `Node(${lastOf(at)}) would be beyond the range of numbers.`);
      return place(document, at, 'replace', sum);
    }
    case 'move': {
      const from: Place = { ...at, path: parsePatchPath(operation.from) };
      const found = valueAt(document, from.path);
      if (found === undefined) throw cannot(from, `Node(${lastOf(from)}) to be moved is absent.`);
      checkDepth(found.value, path);
      return place(remove(document, from), at, 'add', found.value);
    }
    default:
      return operation satisfies never;
  }
}

/** Adds exactly when both are integers whose digits are all known. */
function sumOf(left: number | bigint, right: number | bigint): number | bigint {
  const isExact = (value: number | bigint) => typeof value === 'bigint' || Number.isSafeInteger(value);
  return isExact(left) && isExact(right) ? integerValue(BigInt(left) + BigInt(right)) : Number(left) + Number(right);
}

/** The target of an operation, the operation's number, counted from 1, and the objects that the patch has copied. */
interface Place {
  readonly path: readonly string[];
  readonly op: PatchOperation['op'];
  readonly number: number;
  readonly copies: Set<object>;
}

/**
 * The error for an operation that can't be applied. The text is Cosmos DB's own, because programs tell the reasons
 * apart by it.
 */
const cannot = ({ number }: Place, why: string) => new Refusal('bad-request', why, { operation: number });

const shown = (name: string): string => name.slice(0, 200);
const lastOf = ({ path }: Place): string => shown(path.at(-1)!);

/** An array index in a path: decimal, without leading zeros. */
const INDEX = /^(?:0|[1-9]\d{0,8})$/;

function valueAt(document: Document, path: readonly string[]): { readonly value: unknown } | undefined {
  let value: unknown = document;
  for (const name of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    if (Array.isArray(value)) {
      if (!INDEX.test(name) || Number(name) >= value.length) return undefined;
      value = value[Number(name)];
    } else {
      if (!Object.hasOwn(value, name)) return undefined;
      value = (value as Document)[name];
    }
  }
  return { value };
}

/** Copies the containers along the path and changes the last one. */
function change(
  document: Document,
  place: Place,
  last: (container: Document | readonly unknown[], name: string) => Document | readonly unknown[],
): Document {
  const { path, op } = place;
  const step = (at: unknown, depth: number): Document | readonly unknown[] => {
    if (typeof at !== 'object' || at === null) {
      throw cannot(
        place,
        `${op === 'add' ? 'Add' : 'Given'} Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: '${shown(path[depth - 1]!)}'. Learn more: https://aka.ms/cosmosdbpatchdocs`,
      );
    }
    const name = path[depth]!;
    if (depth === path.length - 1) return last(at as Document | readonly unknown[], name);
    const changed = step(valueAt(at as Document, [name])?.value, depth + 1);
    return Array.isArray(at)
      ? at.with(Number(name), changed)
      : withProperty(at as Document, name, changed, place.copies);
  };
  return step(document, 0) as Document;
}

function place(document: Document, at: Place, op: 'add' | 'set' | 'replace', value: unknown): Document {
  return change(document, at, (container, name) => {
    if (!Array.isArray(container)) {
      if (op === 'replace' && !Object.hasOwn(container, name)) {
        throw cannot(at, `Node(${shown(name)}) to be replaced is absent.`);
      }
      return withProperty(container as Document, name, value, at.copies);
    }
    const elements = container as readonly unknown[];
    if (name === '-' && op !== 'replace') return [...elements, value];
    const index = INDEX.test(name) ? Number(name) : Number.POSITIVE_INFINITY;
    if (index > elements.length || (op === 'replace' && index === elements.length)) throw outOfBounds(at);
    return elements.toSpliced(index, op === 'add' ? 0 : 1, value);
  });
}

const outOfBounds = (at: Place) => cannot(at, `Index(${lastOf(at)}) to operate on is out of array bounds.`);

function remove(document: Document, at: Place): Document {
  return change(document, at, (container, name) => {
    const isThere = valueAt(container as Document, [name]) !== undefined;
    if (Array.isArray(container)) {
      if (!isThere) throw outOfBounds(at);
      return container.toSpliced(Number(name), 1);
    }
    if (!isThere) {
      throw cannot(
        at,
        `Node(${shown(name)}) to be removed is absent. Note: it may also have been removed earlier in the transaction.`,
      );
    }
    const copy = copyOf(container as Document, at.copies);
    delete copy[name];
    return copy;
  });
}

/** A patch copies an object once, and changes its own copy from then on: copying one of 100,000 properties takes 0.1 s. */
function copyOf(object: Document, copies: Set<object>): Record<string, unknown> {
  if (copies.has(object)) return object;
  const copy = { ...object };
  copies.add(copy);
  return copy;
}

/** A copy with one property set. The property is defined, not assigned, because its name may be `__proto__`. */
function withProperty(object: Document, name: string, value: unknown, copies: Set<object>): Document {
  const copy = copyOf(object, copies);
  Object.defineProperty(copy, name, { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

/** Repeated patches must not nest a document more deeply than a client could send one. */
function checkDepth(value: unknown, path: readonly string[]): void {
  const tooDeep = (at: unknown, depthLeft: number): boolean => {
    if (typeof at !== 'object' || at === null) return false;
    if (depthLeft <= 0) return true;
    return Object.values(at).some((child) => tooDeep(child, depthLeft - 1));
  };
  if (tooDeep(value, MAX_DOCUMENT_DEPTH - path.length) || path.length > MAX_DOCUMENT_DEPTH) {
    throw refuse('The patched document would be nested too deeply.');
  }
}
