import type { ContainerDefinition } from '../container/definition.ts';
import { type DocumentPath, parseDocumentPath, valueAt } from '../document-path.ts';
import { Refusal } from '../errors.ts';

/** The largest size of a partition key value, in bytes. Source: Cosmos DB, "Service quotas" (large partition keys). */
const MAX_KEY_BYTES = 2048;

/** One component of a partition key. `{}` stands for "the document has no such property", as on the wire. */
export type KeyComponent = string | number | boolean | null | Readonly<Record<string, never>>;

export const MISSING_COMPONENT: KeyComponent = Object.freeze({});

const parsedPaths = new WeakMap<ContainerDefinition, readonly DocumentPath[]>();

/** The container's partition key paths, parsed once for each state of its definition. */
export function partitionKeyPaths(definition: ContainerDefinition): readonly DocumentPath[] {
  let paths = parsedPaths.get(definition);
  if (paths === undefined) {
    paths = definition.partitionKey.paths.map((path) => parseDocumentPath(path) ?? []);
    parsedPaths.set(definition, paths);
  }
  return paths;
}

/**
 * The canonical partition key of a document: the array of its components as JSON text. Objects and arrays can't be keys
 * and count as missing, as in Cosmos DB's clients.
 *
 * @throws Refusal bad-request for a key that is too large
 */
export function partitionKeyOf(definition: ContainerDefinition, document: Readonly<Record<string, unknown>>): string {
  const components = partitionKeyPaths(definition).map((path) => componentAt(document, path));
  return canonicalKey(components);
}

function componentAt(document: Readonly<Record<string, unknown>>, path: DocumentPath): KeyComponent {
  const value = valueAt(document, path);
  if (typeof value === 'bigint') return Number(value);
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null) {
    return value;
  }
  return MISSING_COMPONENT;
}

export function isKeyComponent(value: unknown): value is KeyComponent {
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object') return typeof value === 'string' || typeof value === 'boolean';
  return value === null || (!Array.isArray(value) && Object.keys(value).length === 0);
}

/** @throws Refusal bad-request for a key that is too large */
export function canonicalKey(components: readonly KeyComponent[]): string {
  const text = JSON.stringify(components);
  if (text.length > MAX_KEY_BYTES / 3 && bytesOf(components) > MAX_KEY_BYTES) {
    throw new Refusal('bad-request', `The partition key supplied is larger than ${MAX_KEY_BYTES} bytes.`);
  }
  return text;
}

/** Only the strings themselves count, without the quotes and escapes of their JSON. */
function bytesOf(components: readonly KeyComponent[]): number {
  return components.reduce<number>((sum, item) => sum + (typeof item === 'string' ? Buffer.byteLength(item) : 0), 0);
}
