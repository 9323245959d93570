import { describeHybridSearch, type HybridSearchInfo } from './hybrid-search.ts';
import { describeForPipeline, type PipelineInfo } from './pipeline.ts';
import type { QueryPlan } from './plan.ts';

/** How a client answers a query by asking several ranges. */
export type ClientPlan = { readonly queryInfo: PipelineInfo } | { readonly hybridSearchQueryInfo: HybridSearchInfo };

/**
 * @param supported names of what the client can do, as it sends them
 * @throws QueryError for a query whose parts can't be merged into its answer
 */
export function planForClients(plan: QueryPlan, supported: ReadonlySet<string> = new Set()): ClientPlan {
  const hybridSearchQueryInfo = describeHybridSearch(plan);
  return hybridSearchQueryInfo === undefined
    ? { queryInfo: describeForPipeline(plan, isDotNet(supported)) }
    : { hybridSearchQueryInfo };
}

/** The .NET client alone says "DCount". */
const isDotNet = (supported: ReadonlySet<string>): boolean => supported.has('DCount');

/**
 * What a client would have to be able to do to answer a query by its plan, and does not say that it is. It would merge
 * wrongly, and not notice.
 *
 * @param supported names of what it can do, as clients send them
 * @source `QueryFeatures` and the checks of Microsoft.Azure.Cosmos
 */
export function missingFeatures(plan: ClientPlan, supported: ReadonlySet<string>): readonly string[] {
  const needed = 'queryInfo' in plan ? ofPipeline(plan.queryInfo) : ofHybridSearch(plan.hybridSearchQueryInfo);
  // The .NET client merges lists and sets without saying so, and refuses aggregates that it doesn't know.
  const unsaid = isDotNet(supported) ? 'ListAndSetAggregate' : undefined;
  return needed.filter((name) => !supported.has(name) && name !== unsaid);
}

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
