import { parsedJson } from '@epitaph/core/parsed-json.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { type DocumentPath, parseDocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import type { Json, PathComparison, PathEquality, Pushdown } from '@epitaph/query';
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

/** Keys at most that a query's filter is taken to name: of more, only what they begin with is told apart. */
const MAX_KEYS = 10_000;

type Comparisons = readonly Pick<PathComparison, 'path' | 'op' | 'values'>[];

/**
 * The partition keys that a query's filter names, each by its leading components or by all of them: no document with
 * another can match. One without components is any key.
 */
export function partitionKeysIn(
  { paths, alternatives = [] }: Pick<Pushdown, 'paths' | 'alternatives'>,
  definition: ContainerDefinition,
): readonly (readonly Component[])[] {
  const named = keysNamed(paths, definition);
  const isWhole = named.every((key) => key.length === definition.partitionKey.paths.length);
  if (alternatives.length === 0 || isWhole) return named;
  // Each alternative says more of the keys than what they have in common.
  const byAlternative = apart(
    alternatives.flatMap((parts) =>
      keysNamed(
        [...parts.map(({ path, value }) => ({ path, op: '=' as const, values: [value] })), ...paths],
        definition,
      ),
    ),
  );
  return byAlternative.length <= MAX_KEYS && byAlternative.every(({ length }) => length > 0) ? byAlternative : named;
}

/** The same of conditions that hold together. */
function keysNamed(conditions: Comparisons, definition: ContainerDefinition): readonly (readonly Component[])[] {
  let keys: readonly (readonly Component[])[] = [[]];
  for (const path of partitionKeyPaths(definition)) {
    const of = conditions.filter(({ path: { length }, path: at, op }) => {
      return (op === '=' || op === 'in') && length === path.length && at.every((name, index) => name === path[index]);
    });
    const [fewest] = of.toSorted((one, other) => one.values.length - other.values.length);
    if (fewest === undefined || !fewest.values.every(isComponent)) break;
    const components = fewest.values as readonly Component[];
    if (keys.length * components.length > MAX_KEYS) break;
    keys = keys.flatMap((key) => components.map((component) => [...key, component]));
  }
  return apart(keys);
}

/** The keys, each once, and none that begins with another. */
function apart(keys: readonly (readonly Component[])[]): readonly (readonly Component[])[] {
  const named = new Map(keys.map((key) => [JSON.stringify(key), key]));
  return [...named.values()].filter(
    (key) => !key.some((_, length) => length > 0 && named.has(JSON.stringify(key.slice(0, length)))),
  );
}

/** An item that a query names. */
export interface NamedItem {
  readonly id: string;
  readonly partitionKey: string;
}

/**
 * The items that a query's filter names by id and whole partition key: none but these can match. Undefined when it
 * doesn't say, or says very many.
 *
 * @param known the partition key that the request itself has named
 */
export function itemsIn(
  { ids, paths, alternatives }: Pushdown,
  definition: ContainerDefinition,
  known: string | undefined,
): readonly NamedItem[] | undefined {
  const isId = ({ path }: Pick<PathEquality, 'path'>): boolean => path.length === 1 && path[0] === 'id';
  const namedBy = (id: Json | undefined, conditions: Comparisons): readonly NamedItem[] | undefined => {
    if (typeof id !== 'string') return undefined;
    // Where the partition key is the id, the id alone says it all.
    const keys = keysNamed([{ path: ['id'], op: '=', values: [id] }, ...conditions], definition);
    if (keys.some(({ length }) => length < definition.partitionKey.paths.length)) return undefined;
    return keys.map((key) => ({ id, partitionKey: JSON.stringify(key) }));
  };
  if (ids !== undefined) {
    const wanted = [...new Set(ids)];
    if (known !== undefined) return wanted.map((id) => ({ id, partitionKey: known }));
    const others = paths.filter((one) => !isId(one));
    return collected(wanted.map((id) => namedBy(id, others)));
  }
  if (alternatives === undefined) return undefined;
  return collected(
    alternatives.map((parts) => {
      const conditions = parts.map(({ path, value }) => ({ path, op: '=' as const, values: [value] }));
      return namedBy(parts.find(isId)?.value, [...conditions, ...paths]);
    }),
  );
}

/** Items at most that are looked up by name where several keys are named for an id. */
const MAX_NAMED = 1000;

function collected(parts: readonly (readonly NamedItem[] | undefined)[]): readonly NamedItem[] | undefined {
  const named = new Map<string, NamedItem>();
  for (const items of parts) {
    if (items === undefined) return undefined;
    for (const item of items) named.set(`${item.partitionKey}\n${item.id}`, item);
  }
  return named.size <= Math.max(MAX_NAMED, parts.length) ? [...named.values()] : undefined;
}

function componentAt(document: Readonly<Record<string, unknown>>, path: DocumentPath): Component {
  const value = valueAt(document, path);
  if (typeof value === 'bigint') return Number(value);
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null) {
    return value;
  }
  return UNDEFINED;
}

/**
 * Reads the partition key header of a request.
 *
 * @returns the canonical key and whether it names all components, or undefined without a header
 * @throws WireError 400 for anything but a JSON array of components, with substatus 1001 for another number of them than
 *   the container's has, upon which clients read its definition again (`PartitionKeyMismatchRetryPolicy` of the .NET and
 *   the Java client)
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
    throw new WireError(
      'partitionKeyMismatch',
      `Partition key ${header.slice(0, 200)} is invalid: the container's has ${length} component(s).`,
    );
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
  const value = parsedJson(header);
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
  if (text.length > MAX_KEY_BYTES / 3 && bytesOf(components) > MAX_KEY_BYTES) {
    throw badRequest(`The partition key supplied is larger than ${MAX_KEY_BYTES} bytes.`);
  }
  return text;
}

/** Of the texts themselves: what their JSON has besides, quotes and escapes, doesn't count. */
function bytesOf(components: readonly Component[]): number {
  return components.reduce<number>((sum, item) => sum + (typeof item === 'string' ? Buffer.byteLength(item) : 0), 0);
}
