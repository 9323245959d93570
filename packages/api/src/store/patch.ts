import { Refusal } from '@epitaph/core/errors.ts';
import { integerValue, isNumeric } from '@epitaph/query';
import type { Document, PatchOperation } from './api/items-api.ts';
import { MAX_DOCUMENT_DEPTH } from './document-limits.ts';

const refuse = (message: string): Refusal => new Refusal('bad-request', message);

/**
 * Takes a JSON pointer (RFC 6901) apart; the whole document has no path here.
 *
 * @throws Refusal bad-request for what is none
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
 * The document after all operations, in order. The given document stays as it is; what no operation touches is
 * shared with it.
 *
 * @throws Refusal bad-request when an operation can't be applied; then none is
 */
export function applyPatch(document: Document, operations: readonly PatchOperation[]): Document {
  let patched: Document = document;
  for (const operation of operations) patched = applyOperation(patched, operation);
  return patched;
}

function applyOperation(document: Document, operation: PatchOperation): Document {
  const path = parsePatchPath(operation.path);
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
      const from = parsePatchPath(operation.from);
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
  container: Document,
  path: readonly string[],
  text: string,
  last: (container: Document | readonly unknown[], name: string) => Document | readonly unknown[],
): Document {
  const step = (at: unknown, depth: number): Document | readonly unknown[] => {
    if (typeof at !== 'object' || at === null) throw cannot(text, 'what is above it is no object or array');
    const name = path[depth]!;
    if (depth === path.length - 1) return last(at as Document | readonly unknown[], name);
    const child = valueAt(at as Document, [name]);
    if (child === undefined) throw cannot(text, 'what is above it is not there');
    const changed = step(child.value, depth + 1);
    return Array.isArray(at) ? at.with(Number(name), changed) : withProperty(at as Document, name, changed);
  };
  return step(container, 0) as Document;
}

function place(
  document: Document,
  path: readonly string[],
  op: 'add' | 'set' | 'replace',
  value: unknown,
  text: string,
): Document {
  return change(document, path, text, (container, name) => {
    if (!Array.isArray(container)) {
      if (op === 'replace' && !Object.hasOwn(container, name)) throw cannot(text, 'it is not there');
      return withProperty(container as Document, name, value);
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

function remove(document: Document, path: readonly string[], text: string): Document {
  return change(document, path, text, (container, name) => {
    if (valueAt(container as Document, [name]) === undefined) throw cannot(text, 'it is not there');
    if (Array.isArray(container)) return container.toSpliced(Number(name), 1);
    const copy: Record<string, unknown> = { ...(container as Document) };
    delete copy[name];
    return copy;
  });
}

/** A copy with one property set. Defined, not assigned: a property may be called `__proto__`. */
function withProperty(object: Document, name: string, value: unknown): Document {
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
  if (tooDeep(value, MAX_DOCUMENT_DEPTH - path.length) || path.length > MAX_DOCUMENT_DEPTH) {
    throw refuse('The patched document would be nested too deeply.');
  }
}
