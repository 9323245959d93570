import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { KeyRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { Neighbours, Pushdown, UserFunctions } from '@epitaph/query';
import type { AtLeast } from './common.ts';

/**
 * Where a query or feed goes on; opaque to clients, and valid over restarts. `after` is for answers in document order,
 * `sorted` for ORDER BY and GROUP BY, `ranked` for ORDER BY RANK, `skip` for all other queries, which are evaluated
 * anew for each page. Only with `skip` do items that come or go between two pages make the answer miss or repeat
 * others. All but `after` say in which order of rows they are places.
 */
export type Continuation =
  | {
      readonly kind: 'after';
      readonly birth: number;
      /** How many rows the document of this birth gave already, if it has more. */
      readonly inside?: number;
      /** For queries with TOP, OFFSET or LIMIT: rows so far, including those that OFFSET left out. */
      readonly rows?: number;
    }
  | {
      readonly kind: 'sorted';
      /**
       * The values that the last row is ordered by, each as an array of the value, or an empty array for undefined.
       * Where they are long, only the leading ones, and only the beginning of a text.
       */
      readonly keys: readonly (readonly unknown[])[];
      /** Birth of the last row's document, if its rows come from one document each. */
      readonly birth?: number;
      /** Which of that document's rows it was. */
      readonly inside?: number;
      /** Set if the next page begins at the place itself, not after it. */
      readonly include?: true;
      /** The rows around the place, where the values do not tell it exactly. */
      readonly near?: Neighbours;
      /** Rows given so far. */
      readonly rows: number;
      /** A digest of what the query orders its rows by. In another order the place would be another. */
      readonly by?: string;
    }
  | {
      readonly kind: 'ranked';
      /** Births of the documents whose rows were given or left out by OFFSET: the first, then by how much each is greater. */
      readonly births: readonly number[];
      /** Rows given so far. */
      readonly rows: number;
      /** As with `skip`, which is given instead where there are too many births. */
      readonly range?: KeyRange;
      readonly by?: string;
    }
  | {
      readonly kind: 'skip';
      readonly rows: number;
      /**
       * The range of partition keys that the rows are counted in. When it has split, its first part goes on with what
       * is left of the whole.
       */
      readonly range?: KeyRange;
      readonly by?: string;
    };

/** A place in an ordered answer, as a client has kept it. */
export interface ResumePlace {
  /** The values of ORDER BY; undefined is a value like any other. */
  readonly keys: readonly unknown[];
  /** The item that stood there; without it, all items with these values do. */
  readonly birth?: number | undefined;
  /** Which of the item's rows; without it, all of them. */
  readonly inside?: number | undefined;
  /** Leave out what stands at the place itself. */
  readonly exclude: boolean;
}

export interface CallableFunctions extends UserFunctions {
  readonly names: ReadonlySet<string>;
  /** Milliseconds that those have worked which were called so far. */
  readonly workedMs?: number;
}

export interface QueryRequest extends Scope {
  readonly sql: string;
  readonly parameters: readonly { readonly name: string; readonly value?: unknown }[];
  /** The most rows of a page. */
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** What an earlier answer called this page that was not ready yet. */
  readonly pageId?: string | undefined;
  /** Whether the page is waited for however long it takes. */
  readonly isAwaited?: boolean;
  /**
   * Where an ordered answer begins that a client goes on with by itself. A continuation takes precedence, unless this tells
   * another row.
   */
  readonly resume?: ResumePlace | undefined;
  /** What the `_rid` of a row in an ordered answer is to be. */
  readonly rowRid?: ((birth: number, inside: number) => string) | undefined;
  /** Wait for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  readonly signal?: AbortSignal | undefined;
  /** The user-defined functions that the query may call: their names, and what runs them; what that throws ends the query. */
  readonly userFunctions?: CallableFunctions | undefined;
  /**
   * Whether nothing of what lies outside its scope may show in what the query is charged or what is told of it besides
   * its rows: whoever asks may see no more than that.
   */
  readonly apart?: boolean;
  /**
   * Called with a wait that stands in the query's way, so that the caller can let others go first until it is over. By
   * default the query just waits.
   */
  readonly standAside?: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

export interface QueryPage {
  readonly rows: readonly unknown[];
  /** The same rows, each as JSON text. */
  readonly texts: readonly string[];
  readonly continuation?: Continuation;
  /** Set for a page that takes long: there are no rows yet, and it is to be asked for again, by this. */
  readonly pageId?: string;
  /** Documents that were looked at, since the page was last asked for. */
  readonly examined: number;
  /** Work on these documents beyond what every document takes, in units of some nanoseconds. */
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
