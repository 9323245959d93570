import { errorCodes, Refusal, type ErrorCode } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import { QueryError } from '@epitaph/query';
import { describeError, refusalShapes, type WireShape } from '../cosmos/errors.ts';
import { RETRY_AFTER_SECONDS } from '../http/limits.ts';
import { damageIn, isDamage } from '../store/damage.ts';

/** The most bytes in a request's body. That is enough for a hold on the largest number of items, with the longest ids and keys. */
export const BODY_BYTES = 1024 * 1024;

/** The management plane's own error codes, in addition to those of the core. */
export const managementCodes = {
  unauthorized: 'The request has no key of this store.',
  forbidden: 'The key does not allow this.',
  'route-not-found': 'There is no such call.',
  'projection-not-found': 'There is no projection of that name.',
  'rebuild-not-found': 'No rebuild of this projection was started since the start of the server.',
  'purge-fault':
    'A life can not be ended or erased, because the event log, the key vault or the read models are damaged.',
  unreadable:
    'The requested data can not be read, because the event log or the key vault is damaged, or the log was written by a newer version.',
  internal: 'An internal error occurred.',
} as const;

/** Every code that a problem can have. A test keeps docs/errors.md equal to this list. */
export const problemCodes = [...Object.keys(errorCodes), ...Object.keys(managementCodes)] as readonly ProblemCode[];

export type ProblemCode = ErrorCode | keyof typeof managementCodes;

const managementStatus: Readonly<Record<keyof typeof managementCodes, number>> = {
  unauthorized: 401,
  forbidden: 403,
  'route-not-found': 404,
  'projection-not-found': 404,
  'rebuild-not-found': 404,
  'purge-fault': 500,
  unreadable: 500,
  internal: 500,
};

/** An expected refusal by the management plane. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly code: ProblemCode;
  /** The faults of the request, each with the path of the part that is wrong. */
  readonly errors: readonly { readonly path: string; readonly message: string }[] | undefined;
  /** Properties of the answer beside those that every problem has. */
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(
    code: ProblemCode,
    detail: string = titleOf(code),
    errors?: Problem['errors'],
    details?: Problem['details'],
  ) {
    super(detail);
    this.details = details;
    this.code = code;
    this.errors = errors;
  }
}

/** Problem details as in RFC 9457, with a stable code in addition. */
export interface ProblemDetails {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly code: ProblemCode;
  /** Identifies this occurrence; the server's log has it as `correlationId`. */
  readonly instance: string;
  readonly errors?: NonNullable<Problem['errors']>;
  readonly [detail: string]: unknown;
}

export function problemDetails(problem: Problem, correlationId: string): ProblemDetails {
  return {
    ...problem.details,
    type: `urn:epitaph:problem:${problem.code}`,
    title: titleOf(problem.code),
    status: statusOf(problem.code),
    detail: problem.message,
    code: problem.code,
    instance: `urn:uuid:${correlationId}`,
    ...(problem.errors === undefined ? {} : { errors: problem.errors }),
  };
}

/** The problem that an error is reported as; undefined for a defect, whose details clients must not learn. */
export function problemOf(error: unknown): Problem | undefined {
  if (error instanceof Problem) return error;
  // A management call has no session, so its client must not be told about one. The read model has not caught up in time, either with the
  // recorded change or with what was to be read.
  if (error instanceof Refusal && error.code === 'session-not-available') {
    return new Problem('storage-unavailable', errorCodes['storage-unavailable']);
  }
  if (error instanceof Refusal) return new Problem(error.code, error.message, undefined, error.details);
  if (error instanceof StorageUnavailable) {
    return new Problem('storage-unavailable', `${errorCodes['storage-unavailable']} The server's log says why.`);
  }
  // Streams are named by keyed hashes, so the message does not reveal whose life it is about.
  if (error instanceof PurgeFault) return new Problem('purge-fault', error.message);
  if (isDamage(error)) return new Problem('unreadable', damageIn(error));
  if (error instanceof QueryError) return new Problem('bad-request', queryAtFault(error));
  if (error instanceof Error && 'code' in error && error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') {
    return new Problem('too-large', `The body of the request has more than ${BODY_BYTES} bytes.`);
  }
  const described = describeError(error);
  return described === undefined ? undefined : new Problem(codeOfShape(described.shape), described.message);
}

/** What is wrong with a query, without the envelope that Cosmos DB's clients expect around it. */
function queryAtFault({ errors }: QueryError): string {
  return errors
    .map(({ code, message, location }) => {
      const place = location === undefined ? '' : `, at position ${location.start} of the query`;
      return `The query can't be used: ${message} (${code}${place})`;
    })
    .join(' ');
}

/** Seconds after which a client should retry; undefined for problems that do not pass by themselves. */
export function retryAfterSeconds({ status }: ProblemDetails): number | undefined {
  return status === 503 ? RETRY_AFTER_SECONDS : undefined;
}

function titleOf(code: ProblemCode): string {
  return isManagementCode(code) ? managementCodes[code] : errorCodes[code];
}

function statusOf(code: ProblemCode): number {
  return isManagementCode(code) ? managementStatus[code] : refusalShapes[code].status;
}

function isManagementCode(code: ProblemCode): code is keyof typeof managementCodes {
  return Object.hasOwn(managementCodes, code);
}

/** The code of a refusal that both planes share: too many requests, a body that can't be read, a host that is not this server's. */
function codeOfShape({ status }: WireShape): ProblemCode {
  const codes: Readonly<Record<number, ProblemCode>> = { 403: 'forbidden', 413: 'too-large', 449: 'busy', 503: 'busy' };
  return codes[status] ?? 'bad-request';
}
