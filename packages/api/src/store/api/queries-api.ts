import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { KeyRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { Neighbours, Pushdown, UserFunctions } from '@epitaph/query';
import type { AtLeast, ItemSnapshot } from './common.ts';

/**
 * Where a query or feed goes on. It is opaque to clients and stays valid over restarts. `after` is for answers in
 * document order, `sorted` for ORDER BY and GROUP BY, `ranked` for ORDER BY RANK. `skip` is for all other queries,
 * which are evaluated again for each page. Only with `skip` can an answer miss or repeat items because others are added
 * or removed between two pages. All kinds but `after` name the order of rows in which they are a place.
 */
export type Continuation =
  | {
      readonly kind: 'after';
      readonly birth: number;
      /** How many rows the document of this birth has returned already, if it has more. */
      readonly inside?: number;
      /** For queries with TOP, OFFSET or LIMIT: the rows so far, including those that OFFSET skipped. */
      readonly rows?: number;
    }
  | {
      readonly kind: 'sorted';
      /**
       * The values by which the last row is ordered. Each is an array with the value, or an empty array for undefined.
       * If they are long, only the leading ones are given, and only the beginning of a text.
       */
      readonly keys: readonly (readonly unknown[])[];
      /** Birth of the last row's document, if its rows come from one document each. */
      readonly birth?: number;
      /** Which of that document's rows it was. */
      readonly inside?: number;
      /** Set if the next page begins at the place itself, not after it. */
      readonly include?: true;
      /** The rows around the place, if the values do not define it exactly. */
      readonly near?: Neighbours;
      /** Rows returned so far. */
      readonly rows: number;
      /** A digest of the expressions that order the rows. In another order the place would be another. */
      readonly by?: string;
    }
  | {
      readonly kind: 'ranked';
      /**
       * Births of the documents whose rows were returned or skipped by OFFSET: the first birth, then the differences.
       */
      readonly births: readonly number[];
      /** Rows returned so far. */
      readonly rows: number;
      /** As with `skip`, which is returned instead when there are too many births. */
      readonly range?: KeyRange;
      readonly by?: string;
    }
  | {
      readonly kind: 'skip';
      readonly rows: number;
      /**
       * The range of partition keys in which the rows are counted. After the range has split, its first part returns
       * the rest of the whole range.
       */
      readonly range?: KeyRange;
      readonly by?: string;
    };

/** A place in an ordered answer that a client has kept. */
export interface ResumePlace {
  /** The values of ORDER BY. Undefined is a value like any other. */
  readonly keys: readonly unknown[];
  /** The item at the place. Without it, the place is all items with these values. */
  readonly birth?: number | undefined;
  /** Which of the item's rows. Without it, all of them. */
  readonly inside?: number | undefined;
  /** Whether to leave out what is at the place itself. */
  readonly exclude: boolean;
}

export interface CallableFunctions extends UserFunctions {
  readonly names: ReadonlySet<string>;
  /** Milliseconds that the functions called so far have worked. */
  readonly workedMs?: number;
}

export interface QueryRequest extends Scope {
  readonly sql: string;
  readonly parameters: readonly { readonly name: string; readonly value?: unknown }[];
  /** The most rows of a page. */
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** The id of this page in an earlier answer, when the page was not ready. */
  readonly pageId?: string | undefined;
  /** Whether to wait for the page however long it takes. */
  readonly isAwaited?: boolean;
  /**
   * The place from which a client resumes an ordered answer by itself. A continuation takes precedence, unless this
   * names another row.
   */
  readonly resume?: ResumePlace | undefined;
  /** Gives the `_rid` of a row in an ordered answer. */
  readonly rowRid?: ((birth: number, inside: number) => string) | undefined;
  /** The query waits for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  /** What to read from, instead of the items as they are now. */
  readonly snapshot?: ItemSnapshot | undefined;
  readonly signal?: AbortSignal | undefined;
  /**
   * The user-defined functions that the query may call: their names, and what runs them. An error that this throws ends
   * the query.
   */
  readonly userFunctions?: CallableFunctions | undefined;
  /**
   * If true, neither the charge nor anything else about the query, besides its rows, may depend on what lies outside
   * its scope, because the caller may not see that.
   */
  readonly apart?: boolean;
  /**
   * Called with a wait that blocks the query, so that the caller can let others go first until it is over. By default
   * the query just waits.
   */
  readonly standAside?: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

export interface QueryPage {
  readonly rows: readonly unknown[];
  /** The same rows, each as JSON text. */
  readonly texts: readonly string[];
  readonly continuation?: Continuation;
  /** Set for a page that takes long: it has no rows yet, and must be asked for again by this id. */
  readonly pageId?: string;
  /** Documents that were examined since the page was last asked for. */
  readonly examined: number;
  /** Work on these documents beyond what every document takes, in units of some nanoseconds. */
  readonly extraWork: number;
  /** Times in milliseconds: total, parsing, planning, finding rows, reading documents. */
  readonly metrics: {
    readonly totalMs: number;
    readonly compileMs: number;
    readonly planMs: number;
    readonly lookupMs: number;
    readonly loadMs: number;
  };
  /** The part of the filter that was decided without reading documents. */
  readonly pushdown: Pushdown;
}

export interface QueriesApi {
  /** @throws QueryError for anything that the language does not have */
  queryItems(container: ContainerState, request: QueryRequest): Promise<QueryPage>;
}
