import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { type DocumentPath, parseDocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import type { PathEquality, Pushdown } from '@epitaph/query';
import { badRequest, WireError } from './errors.ts';

/** Bytes of a partition key value at most; source: Cosmos DB, "Service quotas" (large partition keys). */
const MAX_KEY_BYTES = 2048;

/** One component of a partition key. `{}` stands for "the document has no such property", as on the wire. */
type Component = string | number | boolean | null | Readonly<Record<string, never>>;

const UNDEFINED: Component = Object.freeze({});

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
 * The canonical partition key of a document: JSON text of the array of its components. Objects and arrays can't be
 * keys and count as missing, as the clients have it.
 */
export function partitionKeyOf(definition: ContainerDefinition, document: Readonly<Record<string, unknown>>): string {
  const components = partitionKeyPaths(definition).map((path) => componentAt(document, path));
  return canonical(components);
}

/** The components of the partition key that a query's filter fixes: leading ones, all of them, or none. */
export function partitionKeyIn(
  { equals }: { readonly equals: readonly PathEquality[] },
  definition: ContainerDefinition,
): readonly Component[] {
  const components: Component[] = [];
  for (const path of partitionKeyPaths(definition)) {
    const found = equals.find(
      (equal) => equal.path.length === path.length && equal.path.every((name, at) => name === path[at]),
    );
    if (found === undefined || !isComponent(found.value)) break;
    components.push(found.value);
  }
  return components;
}

/** An item that a query names. */
export interface NamedItem {
  readonly id: string;
  readonly partitionKey: string;
}

/**
 * The items that a query's filter names by id and whole partition key: none but these can match. Undefined when it
 * doesn't say.
 *
 * @param known the partition key that the request itself has named
 */
export function itemsIn(
  { ids, equals, alternatives }: Pushdown,
  definition: ContainerDefinition,
  known: string | undefined,
): readonly NamedItem[] | undefined {
  const isId = ({ path }: PathEquality): boolean => path.length === 1 && path[0] === 'id';
  const namedBy = (conditions: readonly PathEquality[]): NamedItem | undefined => {
    const id = conditions.find(isId)?.value;
    const components = partitionKeyIn({ equals: conditions }, definition);
    if (typeof id !== 'string' || components.length < definition.partitionKey.paths.length) return undefined;
    return { id, partitionKey: JSON.stringify(components) };
  };
  if (ids !== undefined) {
    const unique = [...new Set(ids)];
    if (known !== undefined) return unique.map((id) => ({ id, partitionKey: known }));
    // Where the partition key is the id, or is fixed by the rest of the filter, an id alone says it all.
    const others = equals.filter((one) => !isId(one));
    const named = unique.flatMap((id) => namedBy([{ path: ['id'], value: id }, ...others]) ?? []);
    return named.length === unique.length ? named : undefined;
  }
  const named = new Map<string, NamedItem>();
  for (const alternative of alternatives ?? []) {
    const item = namedBy([...equals, ...alternative]);
    if (item === undefined) return undefined;
    named.set(`${item.partitionKey}\n${item.id}`, item);
  }
  return alternatives === undefined ? undefined : [...named.values()];
}

function componentAt(document: Readonly<Record<string, unknown>>, path: DocumentPath): Component {
  const value = valueAt(document, path);
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null) {
    return value;
  }
  return UNDEFINED;
}

/**
 * Reads the partition key header of a request.
 *
 * @returns the canonical key and whether it names all components, or undefined without a header
 * @throws WireError 400 for anything but a JSON array of components
 */
export function readPartitionKeyHeader(
  definition: ContainerDefinition,
  header: string | undefined,
): { readonly key: string; readonly complete: boolean } | undefined {
  if (header === undefined || header === '') return undefined;
  const components = parseComponents(header);
  const { length } = definition.partitionKey.paths;
  // Containers from before partition keys were required: clients send [] for "no key".
  if (components.length === 0 && definition.partitionKey['systemKey'] === true) {
    return { key: canonical([UNDEFINED]), complete: true };
  }
  if (components.length === 0 || components.length > length) {
    throw badRequest(`Partition key ${header.slice(0, 200)} is invalid: the container's has ${length} component(s).`);
  }
  return { key: canonical(components), complete: components.length === length };
}

/**
 * The key that a header names, for what needs all of its components.
 *
 * @throws WireError 400, with substatus 1001 for the beginning of a hierarchical key
 */
export function wholeKeyOf(given: ReturnType<typeof readPartitionKeyHeader>): string {
  if (given === undefined) throw badRequest('PartitionKey value must be supplied for this operation.');
  if (given.complete) return given.key;
  throw new WireError(
    'partitionKeyMismatch',
    "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document.",
  );
}

function parseComponents(header: string): readonly Component[] {
  let value: unknown;
  try {
    value = JSON.parse(header);
  } catch {
    value = undefined;
  }
  if (!Array.isArray(value) || value.length > 3 || !value.every(isComponent)) {
    throw badRequest(`Partition key ${header.slice(0, 200)} is invalid.`);
  }
  return value;
}

function isComponent(value: unknown): value is Component {
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object') return typeof value === 'string' || typeof value === 'boolean';
  return value === null || (!Array.isArray(value) && Object.keys(value).length === 0);
}

function canonical(components: readonly Component[]): string {
  const text = JSON.stringify(components);
  if (text.length > MAX_KEY_BYTES / 3 && Buffer.byteLength(text) > MAX_KEY_BYTES + 16) {
    throw badRequest(`The partition key supplied is larger than ${MAX_KEY_BYTES} bytes.`);
  }
  return text;
}
