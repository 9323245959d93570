/** Where in the query text something is wrong; UTF-16 offsets, `end` exclusive. */
export interface SourceLocation {
  readonly start: number;
  readonly end: number;
}

/** One entry of the list that Cosmos DB answers to a query it can't run. */
export interface QueryErrorDetail {
  readonly severity: 'Error';
  readonly location?: SourceLocation;
  readonly code: string;
  readonly message: string;
}

/**
 * The codes this package gives. Those at first are Cosmos DB's, by which programs tell one error from another; the
 * others, for what it doesn't say or in a way not known, follow its scheme (1 syntax, 2 meaning, 3 limits).
 */
const queryErrorCodes = {
  syntax: 'SC1001',
  endOfText: 'SC1002',
  invalidToken: 'SC1010',
  openString: 'SC1012',
  unresolvedIdentifier: 'SC2001',
  unknownFunction: 'SC2005',
  selectStarOfGroups: 'SC2041',
  wrongArgumentCount: 'SC2050',
  topNotInteger: 'SC2060',
  limitTooLarge: 'SC2061',
  offsetTooLarge: 'SC2062',
  nestedAggregate: 'SC2101',
  notGrouped: 'SC2102',
  sortedSimilarity: 'SC2210',
  tooLong: 'SC3020',
  selectStar: 'SC2040',
  misplacedAggregate: 'SC2103',
  cardinality: 'SC2104',
  undeclaredParameter: 'SC2107',
  invalidValue: 'SC2110',
  notSupported: 'SC2201',
  tooComplex: 'SC3001',
  tooMuchHeld: 'SC3002',
} as const;

/** The query is at fault: its text, its parameters, or what it asks for. Never a fault of the store. */
export class QueryError extends Error {
  override readonly name = 'QueryError';
  readonly errors: readonly QueryErrorDetail[];

  constructor(errors: readonly QueryErrorDetail[]) {
    super(`Message: ${JSON.stringify({ errors })}`);
    this.errors = errors;
  }
}

/** A QueryError of one entry. */
export function queryError(kind: keyof typeof queryErrorCodes, message: string, location?: SourceLocation): QueryError {
  const code = queryErrorCodes[kind];
  return new QueryError([
    location === undefined
      ? { severity: 'Error', code, message }
      : {
          severity: 'Error',
          location: { start: location.start, end: location.end },
          code,
          message,
        },
  ]);
}

/**
 * Runs something that recurses as deep as a query or a document is nested. Both are limited, but the stack left by
 * the caller is not ours to know, so its end is told as an error of the query too.
 */
export function guardStack<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw asQueryError(error);
  }
}

/** The error to throw for one that evaluation met: the ends of the stack and of a string's length are RangeErrors. */
export function asQueryError(error: unknown): unknown {
  return error instanceof RangeError
    ? queryError('tooComplex', 'The query or a document is too large or nested too deep to be evaluated.')
    : error;
}
