import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { type ClearCondition, clearCondition } from '@epitaph/projections/items/clear-values.ts';
import type { PathComparison, Pushdown } from '@epitaph/query';

/**
 * The conditions of a query's filter on the values that its container keeps in clear; undefined when there are none.
 */
export function clearConditionsOf(pushdown: Pushdown, definition: ContainerDefinition): ClearCondition[] | undefined {
  const paths = new Map(
    (definition.epitaph?.clearPaths ?? []).map((path, at) => [nameOfPath(parseDocumentPath(path) ?? []), at]),
  );
  if (paths.size === 0) return undefined;
  const conditionOf = ({ path, op, values }: PathComparison): ClearCondition[] => {
    const at = paths.get(nameOfPath(path));
    return at === undefined ? [] : [clearCondition(at, op, values)];
  };
  const conditions = pushdown.paths.flatMap(conditionOf);
  // One condition for each alternative is enough. If one alternative has none on such values, the alternatives can't be
  // used.
  const alternatives = (pushdown.alternatives ?? []).map((parts) =>
    parts.flatMap(({ path, value }) => conditionOf({ path, op: '=', values: [value] })).at(0),
  );
  if (alternatives.length > 0 && alternatives.every((one) => one !== undefined)) conditions.push(alternatives.flat());
  return conditions.length === 0 ? undefined : conditions;
}

/** Whether a comparison is on a path that the container keeps in clear. */
export function isOfClearPath({ path }: Pick<PathComparison, 'path'>, { epitaph }: ContainerDefinition): boolean {
  return epitaph?.clearPaths?.some((clear) => nameOfPath(parseDocumentPath(clear) ?? []) === nameOfPath(path)) ?? false;
}

/** The filter without its comparisons on values in clear, for look-ups that must not use those. */
export function withoutClearPaths(pushdown: Pushdown, definition: ContainerDefinition): Pushdown {
  const isOther = (part: Pick<PathComparison, 'path'>) => !isOfClearPath(part, definition);
  const { paths, alternatives } = pushdown;
  return {
    ...pushdown,
    paths: paths.filter(isOther),
    ...(alternatives === undefined ? {} : { alternatives: alternatives.map((parts) => parts.filter(isOther)) }),
  };
}

/** A text that identifies a path. */
export const nameOfPath = (names: readonly string[]): string => JSON.stringify(names);
