import type { AggregateName } from '../functions/aggregates.ts';
import type { Compiled, CompiledTest } from './frame.ts';
import type { RankStep } from './ranking.ts';

/** One step of FROM after the documents themselves: it binds a slot to each value it finds. */
export type Source = (
  | { readonly kind: 'path'; readonly run: Compiled }
  | { readonly kind: 'query'; readonly program: Program }
) & {
  readonly slot: number;
  readonly iterates: boolean;
  /** What of WHERE can be told before it: otherwise it need not be bound. */
  readonly onlyIf?: CompiledTest;
};

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
  /** What of WHERE no source has. */
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
  /** Whether anything in it, subqueries included, calls user-defined functions. */
  readonly callsFunctions: boolean;
}
