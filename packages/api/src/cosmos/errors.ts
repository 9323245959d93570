import { errorCodes, Refusal, type ErrorCode } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import { RETRY_AFTER_SECONDS } from '../http/limits.ts';
import { isDamage, PartUnreadable } from '../store/damage.ts';

/** An error as Cosmos DB's clients understand it: a status, a substatus, and a body with code and message. */
export interface WireShape {
  readonly status: number;
  readonly substatus?: number;
  /** The word in the body. */
  readonly code: string;
  /** Seconds after which a client may try again. */
  readonly retryAfterSeconds?: number;
}

/** The catalogue: every error of the data plane has one of these shapes. */
export const wireShapes = {
  badRequest: { status: 400, code: 'BadRequest' },
  crossPartitionNotServable: { status: 400, substatus: 1004, code: 'BadRequest' },
  otherContainer: { status: 400, substatus: 1024, code: 'BadRequest' },
  partitionKeyMismatch: { status: 400, substatus: 1001, code: 'BadRequest' },
  unauthorized: { status: 401, code: 'Unauthorized' },
  forbidden: { status: 403, code: 'Forbidden' },
  notForIdentities: { status: 403, substatus: 5300, code: 'Forbidden' },
  notAssigned: { status: 403, substatus: 5301, code: 'Forbidden' },
  notFound: { status: 404, code: 'NotFound' },
  sessionNotAvailable: { status: 404, substatus: 1002, code: 'NotFound' },
  ownerNotFound: { status: 404, substatus: 1003, code: 'NotFound' },
  methodNotAllowed: { status: 405, code: 'MethodNotAllowed' },
  requestTimeout: { status: 408, code: 'RequestTimeout' },
  conflict: { status: 409, code: 'Conflict' },
  gone: { status: 410, code: 'Gone' },
  rangeGone: { status: 410, substatus: 1002, code: 'Gone' },
  preconditionFailed: { status: 412, code: 'PreconditionFailed' },
  patchConditionNotMet: { status: 412, substatus: 1110, code: 'PreconditionFailed' },
  tooLarge: { status: 413, code: 'RequestEntityTooLarge' },
  answerTooLarge: { status: 413, substatus: 3402, code: 'RequestEntityTooLarge' },
  targetTooLong: { status: 414, code: 'RequestUriTooLong' },
  headersTooLarge: { status: 431, code: 'RequestHeaderFieldsTooLarge' },
  retryWith: { status: 449, code: 'RetryWith' },
  tooManyRequests: { status: 429, substatus: 3200, code: 'TooManyRequests' },
  internal: { status: 500, code: 'InternalServerError' },
  insufficientStorage: { status: 507, code: 'InsufficientStorage' },
  unavailable: { status: 503, code: 'ServiceUnavailable', retryAfterSeconds: RETRY_AFTER_SECONDS },
} as const satisfies Readonly<Record<string, WireShape>>;

/** How the project's own refusals look on the wire. */
export const refusalShapes: Readonly<Record<ErrorCode, WireShape>> = {
  'bad-request': wireShapes.badRequest,
  'invalid-ttl': wireShapes.badRequest,
  'database-not-found': wireShapes.notFound,
  'container-not-found': wireShapes.notFound,
  'offer-not-found': wireShapes.notFound,
  'item-not-found': wireShapes.notFound,
  'user-not-found': wireShapes.notFound,
  'permission-not-found': wireShapes.notFound,
  'client-encryption-key-not-found': wireShapes.notFound,
  'script-not-found': wireShapes.notFound,
  'already-exists': wireShapes.conflict,
  'unique-key-taken': wireShapes.conflict,
  'precondition-failed': wireShapes.preconditionFailed,
  'patch-condition-not-met': wireShapes.patchConditionNotMet,
  'ttl-change-braked': wireShapes.preconditionFailed,
  'ttl-change-scheduled': wireShapes.preconditionFailed,
  'no-ttl-change-scheduled': wireShapes.notFound,
  'not-erased': wireShapes.conflict,
  held: wireShapes.conflict,
  'hold-not-found': wireShapes.notFound,
  'hold-too-wide': wireShapes.badRequest,
  'content-erased': wireShapes.conflict,
  'purge-run-not-found': wireShapes.notFound,
  'partition-key-mismatch': wireShapes.partitionKeyMismatch,
  'too-large': wireShapes.tooLarge,
  'session-not-available': wireShapes.sessionNotAvailable,
  'clock-held': wireShapes.unavailable,
  busy: wireShapes.unavailable,
  'storage-unavailable': wireShapes.unavailable,
  'backup-failed': wireShapes.insufficientStorage,
  'not-supported': wireShapes.badRequest,
};

/** What Cosmos DB says of it in gateway mode and in direct mode, together: clients' tests look for the one or the other. */
const NOT_FOUND =
  'Entity with the specified id does not exist in the system. Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found';

/** Messages that clients and their tests look for, in place of the store's own words. */
const refusalMessages: Partial<Readonly<Record<ErrorCode, string>>> = {
  'item-not-found': NOT_FOUND,
  'user-not-found': NOT_FOUND,
  'permission-not-found': NOT_FOUND,
  'client-encryption-key-not-found': NOT_FOUND,
  'script-not-found': NOT_FOUND,
  'already-exists': 'Entity with the specified id already exists in the system.',
  'unique-key-taken': 'Unique index constraint violation.',
  'precondition-failed': 'One of the specified pre-condition is not met.',
  'patch-condition-not-met': 'One of the specified pre-condition is not met.',
  'session-not-available': 'The read session is not available for the input session token.',
};

/** A "no" that the edge itself says. */
export class WireError extends Error {
  override readonly name = 'WireError';
  readonly shape: WireShape;
  readonly additionalErrorInfo: string | undefined;

  /** @param additionalErrorInfo what clients need to go on: of a query that they have to run themselves its plan */
  constructor(
    kind: keyof typeof wireShapes,
    message: string,
    {
      retryAfterMs,
      substatus,
      additionalErrorInfo,
    }: {
      readonly retryAfterMs?: number;
      readonly substatus?: number | undefined;
      readonly additionalErrorInfo?: string;
    } = {},
  ) {
    super(message);
    this.additionalErrorInfo = additionalErrorInfo;
    const shape = wireShapes[kind];
    this.shape = {
      ...shape,
      ...(substatus === undefined ? {} : { substatus }),
      ...(retryAfterMs === undefined ? {} : { retryAfterSeconds: retryAfterMs / 1000 }),
    };
  }
}

/** Over the budget: nothing was done, and after so many milliseconds there is something to spend again. */
export const tooManyRequests = (retryAfterMs: number): WireError =>
  new WireError(
    'tooManyRequests',
    wrappedErrors(
      'Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429',
    ),
    { retryAfterMs },
  );

/** More at once than the server works on: nothing was done, and after so many milliseconds there may be a place. */
export const overloaded = (retryAfterMs: number): WireError =>
  new WireError('tooManyRequests', 'The server is overloaded, so nothing was done; try again.', { retryAfterMs });

export const badRequest = (message: string): WireError => new WireError('badRequest', message);

export const tooLarge = (): WireError => new WireError('tooLarge', wrappedErrors('Request size is too large'));

/**
 * The id of a document, container or database, as far as the same is asked of all.
 *
 * @throws WireError 400 for none; in the words of the service, which people look up, where it is missing
 */
export function requiredId(id: unknown): string {
  if (id === undefined) throw missingProperty('id');
  if (typeof id === 'string' && id !== '') return id;
  throw badRequest("One of the specified inputs is invalid: the property 'id' is empty or not a string.");
}

/** In the words of the service. */
export const missingProperty = (name: string): WireError =>
  badRequest(wrappedErrors(`The input content is invalid because the required properties - '${name}; ' - are missing`));

/** A message as the service wraps those of its inner parts; some clients parse it. */
export const wrappedErrors = (message: string): string => `Message: ${JSON.stringify({ Errors: [message] })}`;

const DAMAGED = 'The request can not be carried out, because the event log or the key vault is damaged.';

/** What an error says on the wire, or undefined for a defect, of which clients learn nothing. */
export function describeError(error: unknown): { readonly shape: WireShape; readonly message: string } | undefined {
  if (error instanceof WireError) return { shape: error.shape, message: error.message };
  if (error instanceof Refusal) {
    const { code, message, details } = error;
    const shown =
      details?.['operation'] === undefined
        ? (refusalMessages[code] ?? (code === 'invalid-ttl' ? wrappedErrors(message) : message))
        : wrappedErrors(`For Operation(${Number(details['operation'])}): ${message}`);
    return { shape: refusalShapes[code], message: shown };
  }
  if (!(error instanceof Error)) return undefined;
  // What is damaged may be told in words of another's item: those are for the log.
  if (isDamage(error)) {
    return { shape: wireShapes.internal, message: error instanceof PartUnreadable ? error.message : DAMAGED };
  }
  // Streams are named by keyed hashes, so the message tells nobody whose life it is.
  if (error instanceof PurgeFault) return { shape: wireShapes.internal, message: error.message };
  if (error instanceof StorageUnavailable) {
    // What the server said of itself is for the log, not for clients.
    return { shape: refusalShapes['storage-unavailable'], message: errorCodes['storage-unavailable'] };
  }
  // By name: the edge has no need to load the language for errors it didn't raise.
  if (error.name === 'QueryError') return { shape: wireShapes.badRequest, message: error.message };
  // Lost against other writers again and again: clients may try once more. Source: Cosmos DB, HTTP status 449.
  if (error.name === 'TooMuchContention') {
    return { shape: wireShapes.retryWith, message: 'Conflicting requests were made to the resource. Please retry.' };
  }
  return describeHttpError(error);
}

/** What HTTP itself brings, or the framework of the management plane refuses before its routes are looked for. */
function describeHttpError(
  error: Error & { readonly code?: unknown },
): { readonly shape: WireShape; readonly message: string } | undefined {
  if (error.code === 'FST_ERR_BAD_URL' || error.code === 'FST_ERR_MAX_PARAM_LENGTH') {
    return {
      shape: wireShapes.badRequest,
      message: 'The request target is not a valid URI, or a part of it is too long.',
    };
  }
  // A client that hung up in the middle of its body: nobody reads the answer, and it is no defect of ours.
  if (error.code === 'ECONNRESET' || error.code === 'ABORT_ERR' || error.name === 'AbortError') {
    return { shape: wireShapes.badRequest, message: 'The request was aborted.' };
  }
  return undefined;
}

/** The body of an error. */
export function errorBody(code: string, message: string, activityId: string, additionalErrorInfo?: string): string {
  return JSON.stringify({ code, message: `${message}\r\nActivityId: ${activityId}`, additionalErrorInfo });
}
