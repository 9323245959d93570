import type { QueryPlan } from '../compile/plan.ts';
import { queryError } from '../errors.ts';
import type { Expression, Query } from '../language/ast.ts';
import { call, member, NOWHERE, object, verbatim, ZERO } from '../language/expressions.ts';
import { printExpression, printQuery } from '../language/print.ts';
import type { RankComponent, RankStep } from '../run/ranking.ts';
import {
  inOnePage,
  documentAlias,
  NO_BOUNDS,
  notMerged,
  payloadOf,
  type PipelineInfo,
  PLAIN_PIPELINE,
} from './pipeline.ts';

/** `hybridSearchQueryInfo` of a query plan: how clients answer ORDER BY RANK by asking several ranges. */
export interface HybridSearchInfo {
  readonly globalStatisticsQuery: string;
  /** For each score: the query for each range, into which the client puts the statistics. */
  readonly componentQueryInfos: readonly PipelineInfo[];
  readonly componentWeights: readonly number[];
  readonly skip: number | null;
  readonly take: number | null;
  readonly requiresGlobalStatistics: boolean;
}

/**
 * Clients replace these by the sums of all ranges' statistics. The number is that of the text among the components, by which the .NET
 * client searches. Other clients accept any numbers that ascend in the order of the texts.
 */
const DOCUMENTS = '{documentdb-formattablehybridsearchquery-totaldocumentcount}';
const WORDS = (text: number) => `{documentdb-formattablehybridsearchquery-totalwordcount-${text}}`;
const DOCUMENTS_WITH = (text: number) => `{documentdb-formattablehybridsearchquery-hitcountsarray-${text}}`;

/** With several scores, so many times the wanted rows are fetched for each, since a row that is bad by one may be good by another. */
const CANDIDATES_PER_ROW = 10;
const MIN_CANDIDATES = 200;
/** The score of a row without one, so that it comes last. An array can't contain undefined. */
const WORST = 1e300;

/**
 * Describes how a client ranks the rows of several ranges. It asks each range for the statistics of the texts, then, with their sums, for
 * the best rows by each score, and fuses the ranks.
 *
 * @returns undefined for a query without ORDER BY RANK
 * @throws QueryError if the results of the ranges can't be merged to the answer of the query
 */
export function describeHybridSearch(plan: QueryPlan): HybridSearchInfo | undefined {
  const { query } = plan;
  const { rank } = plan.program;
  if (rank === undefined) return undefined;
  if (query.distinct) throw notMerged('DISTINCT together with ORDER BY RANK', query.orderByRank);
  const wanted = plan.top ?? (plan.limit === undefined ? undefined : (plan.offset ?? 0) + plan.limit);
  const candidates =
    wanted === undefined || rank.components.length === 1
      ? wanted
      : Math.max(MIN_CANDIDATES, CANDIDATES_PER_ROW * wanted);
  const scores = scoresOf(query, rank);
  return {
    globalStatisticsQuery: inOnePage(statisticsQuery(query, scores)),
    componentQueryInfos: scores.map((score) => componentInfo(query, score, scores, candidates)),
    componentWeights: rank.weights,
    skip: plan.offset ?? null,
    take: plan.top ?? plan.limit ?? null,
    requiresGlobalStatistics: rank.components.some(({ kind }) => kind === 'text'),
  };
}

interface Score {
  readonly component: RankComponent;
  /** The expression that is scored: a text, or a value that is the score itself. */
  readonly subject: Expression;
  readonly expression: Expression;
  readonly descending: boolean;
}

function scoresOf({ orderBy }: Query, { components }: RankStep): Score[] {
  const ranked = orderBy[0]!.expression;
  const calls = ranked.kind === 'call' && ranked.name === 'RRF' ? ranked.args : [ranked];
  let texts = 0;
  return components.map((component, index) => {
    const score = calls[index]!;
    if (component.kind === 'value') {
      const { descending } = component;
      const worst: Expression = { kind: 'literal', value: descending ? -WORST : WORST, at: NOWHERE };
      return { component, subject: score, expression: orElse(score, worst), descending };
    }
    if (score.kind !== 'call') throw queryError('syntax', 'ORDER BY RANK takes scores.', score.at);
    const subject = score.args[0]!;
    const statistics = [DOCUMENTS, WORDS(texts), DOCUMENTS_WITH(texts)].map(verbatim);
    texts += 1;
    const expression = call('_FullTextScore', subject, termsLiteral(component.terms), ...statistics);
    return { component, subject, expression, descending: true };
  });
}

/** The query for the number of documents; and for each scored text, the number of words, and of documents with each term. */
function statisticsQuery(query: Query, scores: readonly Score[]): string {
  const texts = scores.flatMap(({ component, subject }) => {
    if (component.kind !== 'text') return [];
    const hits = component.terms.map((term) => call('COUNTIF', call('FullTextContains', subject, termLiteral(term))));
    return object([
      ['totalWordCount', orElse(call('SUM', call('_FullTextWordCount', subject)), ZERO)],
      ['hitCounts', { kind: 'array', items: hits, at: NOWHERE }],
    ]);
  });
  return printQuery({
    ...query,
    ...NO_BOUNDS,
    selection: {
      kind: 'list',
      items: [
        { expression: call('COUNT', { kind: 'literal', value: 1, at: NOWHERE }), alias: 'documentCount' },
        { expression: { kind: 'array', items: texts, at: NOWHERE }, alias: 'fullTextStatistics' },
      ],
    },
    where: undefined,
    orderBy: [],
    orderByRank: undefined,
  });
}

/** `SELECT TOP n c._rid, [{"item": score}] AS orderByItems, {"payload": …, "componentScores": […]} AS payload … ORDER BY score` */
function componentInfo(
  query: Query,
  { expression, descending }: Score,
  scores: readonly Score[],
  candidates: number | undefined,
): PipelineInfo {
  const { alias, from } = documentAlias(query);
  const payload = object([
    ['payload', payloadOf(query)],
    ['componentScores', { kind: 'array', items: scores.map((score) => score.expression), at: NOWHERE }],
  ]);
  const rewritten: Query = {
    ...query,
    ...NO_BOUNDS,
    top: candidates === undefined ? undefined : { kind: 'literal', value: candidates, at: NOWHERE },
    selection: {
      kind: 'list',
      items: [
        { expression: member(verbatim(alias), '_rid'), alias: undefined },
        {
          expression: { kind: 'array', items: [object([['item', expression]])], at: NOWHERE },
          alias: 'orderByItems',
        },
        { expression: payload, alias: 'payload' },
      ],
    },
    from,
    orderBy: [{ expression, direction: descending ? 'DESC' : 'ASC' }],
    orderByRank: undefined,
  };
  return {
    ...PLAIN_PIPELINE,
    top: candidates ?? null,
    orderBy: [descending ? 'Descending' : 'Ascending'],
    orderByExpressions: [printExpression(expression)],
    rewrittenQuery: printQuery(rewritten),
    hasNonStreamingOrderBy: true,
  };
}

const termLiteral = (words: readonly string[]): Expression => ({
  kind: 'literal',
  value: words.join(' '),
  at: NOWHERE,
});
const termsLiteral = (terms: RankTerms): Expression => ({ kind: 'array', items: terms.map(termLiteral), at: NOWHERE });
type RankTerms = Extract<RankComponent, { kind: 'text' }>['terms'];

const orElse = (left: Expression, right: Expression): Expression => ({
  kind: 'binary',
  operator: '??',
  left,
  right,
  at: NOWHERE,
});
