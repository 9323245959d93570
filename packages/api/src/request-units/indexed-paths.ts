import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';

/** The most paths of a document that are counted. Beyond that, the charge grows only with its size. */
export const MAX_INDEXED_PATHS = 1_000;

/**
 * A policy's paths as a tree of property names. `any` stands below an array's `[]`. What a policy says of a node applies
 * to its value (`?`) and to everything below it (`*`), unless a longer path says otherwise: the more precise path wins.
 */
interface PathNode {
  readonly children: Map<string, PathNode>;
  value?: boolean;
  below?: boolean;
}

type Json = unknown;

/** How many of a document's values the container's indexing policy includes in the index, up to a bound. */
export function countIndexedPaths(definition: ContainerDefinition, document: Readonly<Record<string, Json>>): number {
  const policy = compiled(definition.indexingPolicy);
  if (policy === 'nothing') return 0;
  if (policy === 'everything') return leaves(document, MAX_INDEXED_PATHS);
  return included(document, policy, false, MAX_INDEXED_PATHS);
}

const policies = new WeakMap<object, PathNode | 'everything' | 'nothing'>();

function compiled(indexingPolicy: ContainerDefinition['indexingPolicy']): PathNode | 'everything' | 'nothing' {
  const known = policies.get(indexingPolicy);
  if (known !== undefined) return known;
  const made = indexingPolicy.indexingMode === 'none' ? 'nothing' : compile(indexingPolicy);
  policies.set(indexingPolicy, made);
  return made;
}

function compile(indexingPolicy: ContainerDefinition['indexingPolicy']): PathNode | 'everything' {
  const excluded = pathsOf(indexingPolicy['excludedPaths']);
  const wanted = pathsOf(indexingPolicy['includedPaths']);
  // The default policy: everything but the etag, which the server makes.
  if (wanted.length === 1 && wanted[0] === '/*' && excluded.every((path) => path === '/"_etag"/?')) return 'everything';
  const root: PathNode = { children: new Map() };
  for (const [paths, isIncluded] of [
    [excluded, false],
    [wanted, true],
  ] as const) {
    for (const path of paths) {
      const steps = stepsOf(path);
      const last = steps.pop();
      let node = root;
      for (const step of steps) {
        let next = node.children.get(step);
        if (next === undefined) node.children.set(step, (next = { children: new Map() }));
        node = next;
      }
      if (last === '*') node.below = isIncluded;
      else if (last === '?') node.value = isIncluded;
    }
  }
  return root;
}

function pathsOf(value: unknown): string[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((entry: { readonly path?: unknown }) => (typeof entry.path === 'string' ? [entry.path] : []));
}

/** The steps of a path such as `/a/"b c"/[]/*`: names without their quotes, `[]` for the elements of an array. */
function stepsOf(path: string): string[] {
  return Array.from(path.matchAll(/\/("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^/]*)/g), ([, step]) =>
    /^["']/.test(step!) ? step!.slice(1, -1) : step!,
  );
}

/** The number of scalar values in a value; 1 for a scalar. */
function leaves(value: Json, most: number): number {
  if (typeof value !== 'object' || value === null) return 1;
  let count = 0;
  // The loop for objects would make a string of each index.
  if (Array.isArray(value)) {
    for (const element of value as readonly Json[]) {
      count += leaves(element, most - count);
      if (count >= most) return most;
    }
    return count;
  }
  for (const key in value) {
    count += leaves((value as Readonly<Record<string, Json>>)[key], most - count);
    if (count >= most) return most;
  }
  return count;
}

/** @param inherited what the nearest `*` above says */
function included(value: Json, node: PathNode, inherited: boolean, most: number): number {
  const below = node.below ?? inherited;
  // `*` includes the value at the node itself, too. Only `?` is more precise.
  if (typeof value !== 'object' || value === null) return (node.value ?? below) ? 1 : 0;
  let count = 0;
  const isArray = Array.isArray(value);
  for (const key in value) {
    const child = (value as Readonly<Record<string, Json>>)[key];
    const next = node.children.get(isArray ? '[]' : key);
    if (next !== undefined) count += included(child, next, below, most - count);
    else if (below) count += leaves(child, most - count);
    if (count >= most) return most;
  }
  return count;
}
