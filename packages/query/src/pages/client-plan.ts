import type { QueryPlan } from '../compile/plan.ts';
import { describeHybridSearch, type HybridSearchInfo } from './hybrid-search.ts';
import { describeForPipeline, type PipelineInfo } from './pipeline.ts';

/** How a client answers a query by asking several ranges. */
export type ClientPlan = { readonly queryInfo: PipelineInfo } | { readonly hybridSearchQueryInfo: HybridSearchInfo };

/** The client that merges the results of ranges. */
export interface MergingClient {
  /** The names of the features that it supports, as it sends them. */
  readonly supported: ReadonlySet<string>;
  /** True for the Java client, which differs in some ways that its features don't show. */
  readonly isJava: boolean;
  /** True for the .NET clients. Microsoft.Azure.DocumentDB sends the same features as the JavaScript client. */
  readonly isDotNet?: boolean;
}

/** A client that gets a plan without having requested one. Of these, only the JavaScript client merges groups. */
export const UNASKED: MergingClient = { supported: new Set(['GroupBy']), isJava: false };
const UNKNOWN: MergingClient = { supported: new Set(), isJava: false };

/** @throws QueryError if the results of the ranges can't be merged to the answer of the query */
export function planForClients(plan: QueryPlan, client = UNKNOWN): ClientPlan {
  const hybridSearchQueryInfo = describeHybridSearch(plan);
  // "DCount" is sent by the .NET client, and by versions of the Java client that support it; both read the same plans.
  const mergesAsDotNet = client.supported.has('DCount');
  const groups = client.isDotNet === true ? 'documentDb' : 'javaScript';
  const dotNet = isOlderDotNet(client) ? 'olderDotNet' : 'dotNet';
  const reader = client.isJava ? 'java' : mergesAsDotNet ? dotNet : client.supported.has('GroupBy') ? groups : 'other';
  return hybridSearchQueryInfo === undefined
    ? { queryInfo: describeForPipeline(plan, reader) }
    : { hybridSearchQueryInfo };
}

/**
 * Whether the client is a .NET client from before it could sort all rows itself, such as 3.27 and 3.37. It distinguishes the rows of a
 * document by their number, and continues after one by itself. It returns partial results of the VALUE of a group as if they were whole.
 */
const isOlderDotNet = ({ supported, isJava }: MergingClient): boolean =>
  supported.has('DCount') && !isJava && !supported.has('NonStreamingOrderBy');

/**
 * The features that a client needs to answer a query by its plan, but does not declare. It would merge wrongly without noticing.
 *
 * @source `QueryFeatures` and the checks of Microsoft.Azure.Cosmos
 */
export function missingFeatures(plan: ClientPlan, client: MergingClient): readonly string[] {
  const { supported, isJava } = client;
  const needed = 'queryInfo' in plan ? ofPipeline(plan.queryInfo) : ofHybridSearch(plan.hybridSearchQueryInfo);
  // The .NET client merges lists and sets without declaring it, and refuses aggregates that it does not know.
  const unsaid = supported.has('DCount') && !isJava ? 'ListAndSetAggregate' : undefined;
  const missing = needed.filter((name) => !supported.has(name) && name !== unsaid);
  if (isOlderDotNet(client) && hasValuesOfGroups(plan)) missing.push('GroupByValueAggregate');
  // The Java client returns groups in the order of a hash table.
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
