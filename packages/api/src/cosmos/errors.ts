import { errorCodes, Refusal, type ErrorCode } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import { RETRY_AFTER_SECONDS } from '../http/limits.ts';
import { isDamage, PartUnreadable } from '../store/damage.ts';

/** An error in the form that Cosmos DB's clients expect: a status, a substatus, and a body with code and message. */
export interface WireShape {
  readonly status: number;
  readonly substatus?: number;
  /** The `code` of the body. */
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

/** The form of each of the store's refusals. */
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

/**
 * The messages of Cosmos DB in gateway mode and in direct mode, joined: clients' tests look for one or the other.
 */
const NOT_FOUND =
  'Entity with the specified id does not exist in the system. Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found';

/** Messages that clients and their tests look for. They replace the store's own. */
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

/** A refusal by the data plane itself. */
export class WireError extends Error {
  override readonly name = 'WireError';
  readonly shape: WireShape;
  readonly additionalErrorInfo: string | undefined;

  /**
   * @param additionalErrorInfo what clients need to go on, such as the plan of a query that they must run themselves
   */
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

/** The container's budget is spent. Nothing was done; there are request units again after `retryAfterMs`. */
export const tooManyRequests = (retryAfterMs: number): WireError =>
  new WireError(
    'tooManyRequests',
    wrappedErrors(
      'Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429',
    ),
    { retryAfterMs },
  );

/** More requests than the server works on at once. Nothing was done; there may be room after `retryAfterMs`. */
export const overloaded = (retryAfterMs: number): WireError =>
  new WireError('tooManyRequests', 'The server is overloaded, so nothing was done; try again.', { retryAfterMs });

export const badRequest = (message: string): WireError => new WireError('badRequest', message);

export const tooLarge = (): WireError => new WireError('tooLarge', wrappedErrors('Request size is too large'));

/**
 * The id of a document, container or database, as far as the same rules apply to all.
 *
 * @throws WireError 400 for an invalid id; if it is missing, with Cosmos DB's own text, which people search for
 */
export function requiredId(id: unknown): string {
  if (id === undefined) throw missingProperty('id');
  if (typeof id === 'string' && id !== '') return id;
  throw badRequest("One of the specified inputs is invalid: the property 'id' is empty or not a string.");
}

/** With Cosmos DB's own text. */
export const missingProperty = (name: string): WireError =>
  badRequest(wrappedErrors(`The input content is invalid because the required properties - '${name}; ' - are missing`));

/** A message wrapped as Cosmos DB wraps those of its inner parts. Some clients parse it. */
export const wrappedErrors = (message: string): string => `Message: ${JSON.stringify({ Errors: [message] })}`;

const DAMAGED = 'The request can not be carried out, because the event log or the key vault is damaged.';

/** The form and message of an error for clients. Undefined for a defect, about which clients learn nothing. */
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
  // The message about damage may name another item, so it only goes into the log.
  if (isDamage(error)) {
    return { shape: wireShapes.internal, message: error instanceof PartUnreadable ? error.message : DAMAGED };
  }
  // Streams are named by keyed hashes, so the message does not show whose life it is.
  if (error instanceof PurgeFault) return { shape: wireShapes.internal, message: error.message };
  if (error instanceof StorageUnavailable) {
    // The server's own message is for the log, not for clients.
    return { shape: refusalShapes['storage-unavailable'], message: errorCodes['storage-unavailable'] };
  }
  // Checked by name, so that the query language need not be loaded for other errors.
  if (error.name === 'QueryError') return { shape: wireShapes.badRequest, message: error.message };
  // The write lost against other writers repeatedly, so the client may try again. Source: Cosmos DB, HTTP status 449.
  if (error.name === 'TooMuchContention') {
    return { shape: wireShapes.retryWith, message: 'Conflicting requests were made to the resource. Please retry.' };
  }
  return describeHttpError(error);
}

/** Errors of HTTP itself, and those of the management plane's framework before it looks for a route. */
function describeHttpError(
  error: Error & { readonly code?: unknown },
): { readonly shape: WireShape; readonly message: string } | undefined {
  if (error.code === 'FST_ERR_BAD_URL' || error.code === 'FST_ERR_MAX_PARAM_LENGTH') {
    return {
      shape: wireShapes.badRequest,
      message: 'The request target is not a valid URI, or a part of it is too long.',
    };
  }
  // The client hung up while it sent its body. No one reads the answer, and it is not a defect.
  if (error.code === 'ECONNRESET' || error.code === 'ABORT_ERR' || error.name === 'AbortError') {
    return { shape: wireShapes.badRequest, message: 'The request was aborted.' };
  }
  return undefined;
}

export function errorBody(code: string, message: string, activityId: string, additionalErrorInfo?: string): string {
  return JSON.stringify({ code, message: `${message}\r\nActivityId: ${activityId}`, additionalErrorInfo });
}
