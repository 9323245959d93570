import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { KeyRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { Neighbours, Pushdown } from '@epitaph/query';
import type { AtLeast } from './common.ts';

/**
 * Where a query or feed goes on. Opaque to clients, and valid over restarts: `after` for feeds in document order,
 * `sorted` for ORDER BY and GROUP BY, `ranked` for ORDER BY RANK, `skip` for other queries that are evaluated anew for each
 * page. What comes and goes between two pages makes none but the last miss or repeat anything else.
 */
export type Continuation =
  | {
      readonly kind: 'after';
      readonly birth: number;
      /** Rows that the document of this birth gave already, where it has more. */
      readonly inside?: number;
      /** Rows that the query gave so far, those included that its OFFSET left out; for queries with bounds. */
      readonly rows?: number;
    }
  | {
      readonly kind: 'sorted';
      /**
       * The values of the last row's place: each an array of the value, or an empty one where it is undefined. Leading ones
       * alone, and the beginning of a text, where they are long.
       */
      readonly keys: readonly (readonly unknown[])[];
      /** Birth of the last row's document, of rows that are of one. */
      readonly birth?: number;
      /** Which of its rows it was. */
      readonly inside?: number;
      /** Goes on at the place, not after it. */
      readonly include?: true;
      /** The rows around a place that the values don't tell. */
      readonly near?: Neighbours;
      /** Rows given so far. */
      readonly rows: number;
    }
  | {
      readonly kind: 'ranked';
      /** Births of the documents whose rows were given or left out by OFFSET: the first, then by how much each is greater. */
      readonly births: readonly number[];
      /** Rows given so far. */
      readonly rows: number;
      /** As with `skip`, which takes its place where there are too many. */
      readonly range?: KeyRange;
    }
  | {
      readonly kind: 'skip';
      readonly rows: number;
      /** What the rows are counted in. When it splits, one of its parts goes on with what is left of all. */
      readonly range?: KeyRange;
    };

/** A place in an ordered answer, as a client has kept it. */
export interface ResumePlace {
  /** The values of ORDER BY; undefined is a value like any other. */
  readonly keys: readonly unknown[];
  /** The item that stood there; without it, all items with these values do. */
  readonly birth?: number | undefined;
  /** Leave out what stands at the place itself. */
  readonly exclude: boolean;
}

export interface QueryRequest extends Scope {
  readonly sql: string;
  readonly parameters: readonly { readonly name: string; readonly value?: unknown }[];
  /** Rows a page at most. */
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** Where an ordered answer begins that a client goes on with; its continuation counts more. */
  readonly resume?: ResumePlace | undefined;
  /** Wait for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Waits for something in the caller's way, who may let others go before meanwhile; without it there is no such way. */
  readonly standAside?: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

export interface QueryPage {
  readonly rows: readonly unknown[];
  /** The same rows, each as JSON text. */
  readonly texts: readonly string[];
  readonly continuation?: Continuation;
  /** Documents that were looked at. */
  readonly examined: number;
  /** What was worked on them beyond what every document takes, in units of some nanoseconds. */
  readonly extraWork: number;
  /** What it took, in milliseconds: all in all, parsing, planning, finding rows, reading documents. */
  readonly metrics: {
    readonly totalMs: number;
    readonly compileMs: number;
    readonly planMs: number;
    readonly lookupMs: number;
    readonly loadMs: number;
  };
  /** What of the filter could be decided without reading documents. */
  readonly pushdown: Pushdown;
}

export interface QueriesApi {
  /** @throws QueryError for what the language does not have. */
  queryItems(container: ContainerState, request: QueryRequest): Promise<QueryPage>;
}
