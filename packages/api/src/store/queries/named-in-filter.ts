import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { isKeyComponent, type KeyComponent, partitionKeyPaths } from '@epitaph/core/partition-key/canonical-key.ts';
import type { Json, PathComparison, PathEquality, Pushdown } from '@epitaph/query';

/** The most keys that a query's filter may name. If it names more, only their leading components are used. */
const MAX_KEYS = 10_000;

type Comparisons = readonly Pick<PathComparison, 'path' | 'op' | 'values'>[];

/**
 * The partition keys that a query's filter names, each by all of its components or only the leading ones. No document
 * with another key can match. A key without components stands for every key.
 */
export function partitionKeysIn(
  { paths, alternatives = [] }: Pick<Pushdown, 'paths' | 'alternatives'>,
  definition: ContainerDefinition,
): readonly (readonly KeyComponent[])[] {
  const named = keysNamed(paths, definition);
  const isWhole = named.every((key) => key.length === definition.partitionKey.paths.length);
  if (alternatives.length === 0 || isWhole) return named;
  // Each alternative says more about the keys than what the alternatives have in common.
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

/** As {@link partitionKeysIn}, for conditions that must all hold. */
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

/** The keys, each once, without those that begin with another one. */
function apart(keys: readonly (readonly KeyComponent[])[]): readonly (readonly KeyComponent[])[] {
  const named = new Map(keys.map((key) => [JSON.stringify(key), key]));
  return [...named.values()].filter(
    (key) => !key.some((_, length) => length > 0 && named.has(JSON.stringify(key.slice(0, length)))),
  );
}

/**
 * The items that a query's filter names by id and whole partition key. No other item can match. Undefined when the
 * filter names none in this way, or very many.
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
    // If the partition key is the id, the id alone names the item.
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

/** The most items that are looked up by name when several keys are named for an id. */
const MAX_NAMED = 1000;

function collected(parts: readonly (readonly ItemName[] | undefined)[]): readonly ItemName[] | undefined {
  const named = new Map<string, ItemName>();
  for (const items of parts) {
    if (items === undefined) return undefined;
    for (const item of items) named.set(`${item.partitionKey}\n${item.id}`, item);
  }
  return named.size <= Math.max(MAX_NAMED, parts.length) ? [...named.values()] : undefined;
}
