/** The location of an error in the text of a query, as UTF-16 offsets. `end` is exclusive. */
export interface SourceLocation {
  readonly start: number;
  readonly end: number;
}

/** One entry of the list that Cosmos DB returns for a query that it can't run. */
export interface QueryErrorDetail {
  readonly severity: 'Error';
  readonly location?: SourceLocation;
  readonly code: string;
  readonly message: string;
}

/**
 * The error codes of this package. The first ones are Cosmos DB's, by which programs distinguish errors. The others follow its scheme
 * (1 syntax, 2 meaning, 3 limits); they are for errors that Cosmos DB does not report, or whose code is not known.
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

/** An error of the query: of its text, its parameters, or of what it requests. It is never a fault of the store. */
export class QueryError extends Error {
  override readonly name = 'QueryError';
  readonly errors: readonly QueryErrorDetail[];

  constructor(errors: readonly QueryErrorDetail[]) {
    super(`Message: ${JSON.stringify({ errors })}`);
    this.errors = errors;
  }
}

/** Makes a QueryError with one entry. */
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
 * Runs a function that recurses as deeply as a query or a document is nested. Both are limited, but it is not known how much stack the
 * caller has left. So an overflow is reported as an error of the query too.
 */
export function guardStack<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw asQueryError(error);
  }
}

/** Converts an error of an evaluation: a RangeError, from an overflow of the stack or of a string's length, becomes a QueryError. */
export function asQueryError(error: unknown): unknown {
  return error instanceof RangeError
    ? queryError('tooComplex', 'The query or a document is too large or nested too deep to be evaluated.')
    : error;
}
