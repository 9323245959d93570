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
  /** The part of WHERE that can be checked before this source is bound. If it fails, the source is not bound. */
  readonly onlyIf?: CompiledTest;
};

export interface AggregateStep {
  readonly name: AggregateName;
  readonly argument: Compiled;
  /** The aggregate's index in the frame. */
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
  /** The part of WHERE that is not checked by one of the sources. */
  readonly where: CompiledTest | undefined;
  /** Present when rows are groups: there is a GROUP BY or an aggregate. */
  readonly grouping: Grouping | undefined;
  readonly project: Compiled;
  readonly orderBy: readonly OrderStep[];
  /** ORDER BY RANK, which replaces ORDER BY. */
  readonly rank: RankStep | undefined;
  readonly distinct: boolean;
  readonly offset: number;
  /** TOP or LIMIT. */
  readonly limit: number | undefined;
  /** The units of work for a row, without subqueries and without work that depends on the size of values. */
  readonly weight: number;
  /** Whether the program, including its subqueries, calls user-defined functions. */
  readonly callsFunctions: boolean;
}
