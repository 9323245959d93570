import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { type ClearCondition, clearCondition } from '@epitaph/projections/items/clear-values.ts';
import type { PathComparison, Pushdown } from '@epitaph/query';

/** What a query's filter says of the values that its container keeps in clear: undefined when it says nothing. */
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
  // Of each alternative one part is enough; one that says nothing of such values spoils them all.
  const alternatives = (pushdown.alternatives ?? []).map((parts) =>
    parts.flatMap(({ path, value }) => conditionOf({ path, op: '=', values: [value] })).at(0),
  );
  if (alternatives.length > 0 && alternatives.every((one) => one !== undefined)) conditions.push(alternatives.flat());
  return conditions.length === 0 ? undefined : conditions;
}

/** Whether a comparison is of a path that the container keeps in clear. */
export function isOfClearPath({ path }: Pick<PathComparison, 'path'>, { epitaph }: ContainerDefinition): boolean {
  return epitaph?.clearPaths?.some((clear) => nameOfPath(parseDocumentPath(clear) ?? []) === nameOfPath(path)) ?? false;
}

/** What is left of a filter to be looked up where values in clear are not to be. */
export function withoutClearPaths(pushdown: Pushdown, definition: ContainerDefinition): Pushdown {
  const isOther = (part: Pick<PathComparison, 'path'>) => !isOfClearPath(part, definition);
  const { paths, alternatives } = pushdown;
  return {
    ...pushdown,
    paths: paths.filter(isOther),
    ...(alternatives === undefined ? {} : { alternatives: alternatives.map((parts) => parts.filter(isOther)) }),
  };
}

/** One text for a path, by which it is told from others. */
export const nameOfPath = (names: readonly string[]): string => JSON.stringify(names);
