import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { partitionKeyPaths } from '@epitaph/core/partition-key/canonical-key.ts';
import type { PathComparison, Pushdown } from '@epitaph/query';
import { isOfClearPath } from '../store/queries/clear-filters.ts';
import { partitionKeysIn } from '../store/queries/named-in-filter.ts';
import { headerFlag, MAX_HEADER_BYTES, type CosmosRequest } from './request.ts';

/** One entry of Cosmos DB's first version of index metrics. */
interface SingleIndex {
  readonly FilterExpression: string;
  readonly IndexSpec: string;
  /** True if the index alone decided the filter, without reading documents. */
  readonly FilterPreciseSet: boolean;
  /** True if the index found the rows, and they were not examined one by one. */
  readonly IndexPreciseSet: boolean;
  readonly IndexImpactScore: 'High' | 'Low';
}

/** The most characters of a filter that are shown. */
const MAX_FILTER_CHARACTERS = 200;
const MAX_INDEXES = 20;

/**
 * Which parts of the filter were decided before documents were read, in the form of Cosmos DB's index metrics. There
 * are no potential indexes, because no index here depends on a policy.
 *
 * The first version is base64, which the Python client decodes. The second is percent-encoded, which the clients for
 * JavaScript and .NET decode.
 *
 * @see https://learn.microsoft.com/azure/cosmos-db/nosql/index-metrics
 */
export function indexMetricsHeader(
  headers: CosmosRequest['headers'],
  pushdown: Pushdown,
  definition: ContainerDefinition,
  inOnePartition: boolean,
): Readonly<Record<string, string>> {
  const isSecond = headerFlag(headers, 'x-ms-cosmos-populateindexmetrics-v2');
  if (!isSecond && !headerFlag(headers, 'x-ms-cosmos-populateindexmetrics')) return {};
  const indexes = utilized(pushdown, definition, inOnePartition);
  const shown = isSecond ? indexes.filter(isFirstOfItsPath) : indexes;
  for (let most = MAX_INDEXES; ; most--) {
    const some = shown.slice(0, most);
    const metrics = isSecond
      ? encodeURIComponent(JSON.stringify(secondVersion(some)).toWellFormed())
      : Buffer.from(JSON.stringify(firstVersion(some))).toString('base64');
    if (metrics.length <= MAX_HEADER_BYTES) return { 'x-ms-cosmos-index-utilization': metrics };
  }
}

const isFirstOfItsPath = ({ IndexSpec }: SingleIndex, index: number, all: readonly SingleIndex[]): boolean =>
  all.findIndex((other) => other.IndexSpec === IndexSpec) === index;

const firstVersion = (indexes: readonly SingleIndex[]) => ({
  UtilizedSingleIndexes: indexes,
  PotentialSingleIndexes: [],
  UtilizedCompositeIndexes: [],
  PotentialCompositeIndexes: [],
});

const secondVersion = (indexes: readonly SingleIndex[]) => ({
  UtilizedIndexes: { SingleIndexes: indexes.map(({ IndexSpec }) => ({ IndexSpec })), CompositeIndexes: [] },
  PotentialIndexes: { SingleIndexes: [], CompositeIndexes: [] },
});

function utilized(pushdown: Pushdown, definition: ContainerDefinition, inOnePartition: boolean): SingleIndex[] {
  const keyPaths = partitionKeyPaths(definition);
  // A hierarchical key narrows the scan by its leading components.
  const components = Math.min(...partitionKeysIn(pushdown, definition).map(({ length }) => length));
  const leading = keyPaths.slice(0, components).map(pathText);
  const isNarrow = inOnePartition || leading.length === keyPaths.length;
  // The key that comes with the request is not part of the filter.
  const given = inOnePartition ? keyPaths.map((path) => byKey(`${pathText(path)}/?`)) : [];
  const filtered = pushdown.paths.flatMap((comparison): SingleIndex[] => {
    const path = pathText(comparison.path);
    const found = (byLookup: boolean, decides: boolean): SingleIndex => ({
      FilterExpression: filterText(comparison),
      IndexSpec: `${path}/?`,
      FilterPreciseSet: decides,
      IndexPreciseSet: byLookup,
      IndexImpactScore: byLookup ? 'High' : 'Low',
    });
    // Without the partition key, ids are compared row by row; with it they are looked up.
    if (path === '/id' && (comparison.op === '=' || comparison.op === 'in')) return [found(isNarrow, true)];
    if (path === '/_ts' && comparison.op !== 'in' && typeof comparison.values[0] === 'number') {
      return [found(false, true)];
    }
    // Even in one partition, the items with the value are looked up, whatever their keys are.
    if (isOfClearPath(comparison, definition)) return [found(true, false)];
    const isNamed = (comparison.op === '=' || comparison.op === 'in') && leading.includes(path);
    return isNamed && !inOnePartition ? [found(true, false)] : [];
  });
  return [...given, ...filtered];
}

const byKey = (IndexSpec: string): SingleIndex => ({
  FilterExpression: '',
  IndexSpec,
  FilterPreciseSet: true,
  IndexPreciseSet: true,
  IndexImpactScore: 'High',
});

const pathText = (path: readonly string[]): string => path.map((name) => `/${name}`).join('');

function filterText({ path, op, values }: PathComparison): string {
  const shown = values.map((value) => JSON.stringify(value)).join(', ');
  const text = `(ROOT.${path.join('.')} ${op === 'in' ? `IN (${shown})` : `${op} ${shown}`})`;
  return text.length <= MAX_FILTER_CHARACTERS ? text : `${text.slice(0, MAX_FILTER_CHARACTERS - 1)}…`;
}
