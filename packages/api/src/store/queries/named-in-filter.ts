import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { isKeyComponent, type KeyComponent, partitionKeyPaths } from '@epitaph/core/partition-key/canonical-key.ts';
import type { Json, PathComparison, PathEquality, Pushdown } from '@epitaph/query';

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
): readonly (readonly KeyComponent[])[] {
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
function keysNamed(conditions: Comparisons, definition: ContainerDefinition): readonly (readonly KeyComponent[])[] {
  let keys: readonly (readonly KeyComponent[])[] = [[]];
  for (const path of partitionKeyPaths(definition)) {
    const of = conditions.filter(({ path: { length }, path: at, op }) => {
      return (op === '=' || op === 'in') && length === path.length && at.every((name, index) => name === path[index]);
    });
    const [fewest] = of.toSorted((one, other) => one.values.length - other.values.length);
    if (fewest === undefined || !fewest.values.every(isKeyComponent)) break;
    const components = fewest.values as readonly KeyComponent[];
    if (keys.length * components.length > MAX_KEYS) break;
    keys = keys.flatMap((key) => components.map((component) => [...key, component]));
  }
  return apart(keys);
}

/** The keys, each once, and none that begins with another. */
function apart(keys: readonly (readonly KeyComponent[])[]): readonly (readonly KeyComponent[])[] {
  const named = new Map(keys.map((key) => [JSON.stringify(key), key]));
  return [...named.values()].filter(
    (key) => !key.some((_, length) => length > 0 && named.has(JSON.stringify(key.slice(0, length)))),
  );
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
): readonly ItemName[] | undefined {
  const isId = ({ path }: Pick<PathEquality, 'path'>): boolean => path.length === 1 && path[0] === 'id';
  const namedBy = (id: Json | undefined, conditions: Comparisons): readonly ItemName[] | undefined => {
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

function collected(parts: readonly (readonly ItemName[] | undefined)[]): readonly ItemName[] | undefined {
  const named = new Map<string, ItemName>();
  for (const items of parts) {
    if (items === undefined) return undefined;
    for (const item of items) named.set(`${item.partitionKey}\n${item.id}`, item);
  }
  return named.size <= Math.max(MAX_NAMED, parts.length) ? [...named.values()] : undefined;
}
