import type { AggregateName } from './aggregates.ts';
import type { Compiled, CompiledTest } from './frame.ts';
import type { RankStep } from './ranking.ts';

/** One step of FROM after the documents themselves: it binds a slot to each value it finds. */
export type Source =
  | { readonly kind: 'path'; readonly slot: number; readonly run: Compiled; readonly iterates: boolean }
  | { readonly kind: 'query'; readonly slot: number; readonly program: Program; readonly iterates: boolean };

export interface AggregateStep {
  readonly name: AggregateName;
  readonly argument: Compiled;
  /** Its place in the frame. */
  readonly index: number;
}

export interface Grouping {
  readonly keys: readonly { readonly run: Compiled; readonly index: number }[];
  readonly aggregates: readonly AggregateStep[];
}

export interface OrderStep {
  readonly run: Compiled;
  readonly descending: boolean;
}

/** A compiled query or subquery: the clauses in the order they run. */
export interface Program {
  readonly sources: readonly Source[];
  readonly where: CompiledTest | undefined;
  /** Present when rows are groups: there is a GROUP BY or an aggregate. */
  readonly grouping: Grouping | undefined;
  readonly project: Compiled;
  readonly orderBy: readonly OrderStep[];
  /** ORDER BY RANK, which takes the place of ORDER BY. */
  readonly rank: RankStep | undefined;
  readonly distinct: boolean;
  readonly offset: number;
  /** TOP or LIMIT. */
  readonly limit: number | undefined;
  /** Units of work that a row takes, without subqueries and without what depends on the size of values. */
  readonly weight: number;
}
