import type { QueryPlan } from '../compile/plan.ts';
import { describeHybridSearch, type HybridSearchInfo } from './hybrid-search.ts';
import { describeForPipeline, type PipelineInfo } from './pipeline.ts';

/** How a client answers a query by asking several ranges. */
export type ClientPlan = { readonly queryInfo: PipelineInfo } | { readonly hybridSearchQueryInfo: HybridSearchInfo };

/** Who merges. */
export interface MergingClient {
  /** Names of what it can do, as it sends them. */
  readonly supported: ReadonlySet<string>;
  /** For the Java client, which does some things in ways of its own and says nothing of them. */
  readonly isJava: boolean;
  /** For the .NET clients, of which Microsoft.Azure.DocumentDB says what the JavaScript client says. */
  readonly isDotNet?: boolean;
}

/** Of those who don't ask for a plan first and get one all the same, the JavaScript client alone merges groups. */
export const UNASKED: MergingClient = { supported: new Set(['GroupBy']), isJava: false };
const UNKNOWN: MergingClient = { supported: new Set(), isJava: false };

/** @throws QueryError for a query whose parts can't be merged into its answer */
export function planForClients(plan: QueryPlan, client = UNKNOWN): ClientPlan {
  const hybridSearchQueryInfo = describeHybridSearch(plan);
  // The .NET client says "DCount", and the Java client, which reads the same plans, since it can.
  const mergesAsDotNet = client.supported.has('DCount');
  const groups = client.isDotNet === true ? 'documentDb' : 'javaScript';
  const dotNet = isOlderDotNet(client) ? 'olderDotNet' : 'dotNet';
  const reader = client.isJava ? 'java' : mergesAsDotNet ? dotNet : client.supported.has('GroupBy') ? groups : 'other';
  return hybridSearchQueryInfo === undefined
    ? { queryInfo: describeForPipeline(plan, reader) }
    : { hybridSearchQueryInfo };
}

/**
 * A .NET client from before it could sort all rows anew, as 3.27 and 3.37 are: it tells the rows of a document apart by their
 * number, and goes on from one by itself. It gives parts of the VALUE of a group for the whole.
 */
const isOlderDotNet = ({ supported, isJava }: MergingClient): boolean =>
  supported.has('DCount') && !isJava && !supported.has('NonStreamingOrderBy');

/**
 * What a client would have to be able to do to answer a query by its plan, and does not say that it is. It would merge
 * wrongly, and not notice.
 *
 * @source `QueryFeatures` and the checks of Microsoft.Azure.Cosmos
 */
export function missingFeatures(plan: ClientPlan, client: MergingClient): readonly string[] {
  const { supported, isJava } = client;
  const needed = 'queryInfo' in plan ? ofPipeline(plan.queryInfo) : ofHybridSearch(plan.hybridSearchQueryInfo);
  // The .NET client merges lists and sets without saying so, and refuses aggregates that it doesn't know.
  const unsaid = supported.has('DCount') && !isJava ? 'ListAndSetAggregate' : undefined;
  const missing = needed.filter((name) => !supported.has(name) && name !== unsaid);
  if (isOlderDotNet(client) && hasValuesOfGroups(plan)) missing.push('GroupByValueAggregate');
  // The Java client gives groups in the order of a hash table.
  return isJava && hasOrderedGroups(plan) ? [...missing, 'OrderedGroupBy'] : missing;
}

const hasOrderedGroups = (plan: ClientPlan): boolean =>
  'queryInfo' in plan && plan.queryInfo.groupByExpressions.length > 0 && plan.queryInfo.orderBy.length > 0;

const hasValuesOfGroups = (plan: ClientPlan): boolean =>
  'queryInfo' in plan && plan.queryInfo.groupByExpressions.length > 0 && plan.queryInfo.aggregates.length > 0;

function ofPipeline(info: PipelineInfo): string[] {
  const inRows = Object.values(info.groupByAliasToAggregateType).filter((type) => type !== null);
  const aggregates = [...info.aggregates, ...inRows];
  const needed: Readonly<Record<string, boolean>> = {
    Aggregate: info.aggregates.length > 0,
    NonValueAggregate: inRows.length > 0,
    MultipleAggregates: inRows.length > 1,
    CountIf: aggregates.includes('CountIf'),
    ListAndSetAggregate: aggregates.includes('MakeList') || aggregates.includes('MakeSet'),
    GroupBy: info.groupByExpressions.length > 0,
    Distinct: info.distinctType !== 'None',
    DCount: info.dCountInfo !== null,
    Top: info.top !== null,
    OffsetAndLimit: info.offset !== null || info.limit !== null,
    OrderBy: info.orderBy.length === 1,
    MultipleOrderBy: info.orderBy.length > 1,
    NonStreamingOrderBy: info.hasNonStreamingOrderBy,
  };
  return Object.keys(needed).filter((name) => needed[name] === true);
}

function ofHybridSearch({ componentWeights }: HybridSearchInfo): string[] {
  const isWeighted = componentWeights.some((weight) => weight !== 1);
  return isWeighted ? ['HybridSearch', 'WeightedRankFusion'] : ['HybridSearch'];
}
