/**
 * The project's catalogue of expected errors. Only packages/api maps them to HTTP status codes. A test keeps
 * docs/errors.md equal to this list.
 */
export const errorCodes = {
  'bad-request': 'The request is malformed or contradicts itself.',
  'invalid-ttl': 'A ttl or defaultTtl is not -1 or a whole number of seconds from 1 to 2147483647.',
  'database-not-found': 'No database of that name exists.',
  'container-not-found': 'No container of that name exists in the database.',
  'offer-not-found': 'No offer has that id, or its database or container has no throughput of its own.',
  'item-not-found': 'No visible item has that id and partition key.',
  'user-not-found': 'No user of that name exists in the database.',
  'permission-not-found': 'The user has no permission of that name.',
  'client-encryption-key-not-found': 'No client encryption key of that name exists in the database.',
  'script-not-found': 'The container has no script of that kind and name.',
  'already-exists': 'A resource with that id exists already.',
  'unique-key-taken': "Another item of the partition key has the document's values of a unique key.",
  'precondition-failed': 'The etag given with the request is not the current one.',
  'patch-condition-not-met': 'The condition of the patch does not hold.',
  'ttl-change-braked':
    'The TTL change would make more items expire at once than the container allows without confirmation.',
  'ttl-change-scheduled': 'A TTL change is scheduled for a later time; withdraw it before you make another.',
  'no-ttl-change-scheduled': 'No TTL change is scheduled.',
  'not-erased': 'The content has not been erased.',
  held: 'A hold or a retention floor forbids the erasure.',
  'hold-not-found': 'No hold of that id was ever placed on the container.',
  'hold-too-wide': 'The query finds more lives than one hold can name.',
  'content-erased': 'The content has been erased.',
  'purge-run-not-found': 'No purge run of that id is on record.',
  'partition-key-mismatch': 'The partition key given is not the one in the document.',
  'too-large': 'The document is larger than the store accepts.',
  'session-not-available': 'The session token is ahead of what this server has.',
  'clock-held':
    'The clock is held: nothing is written or erased until it is right again or is confirmed (/_epitaph/health/ready says why).',
  busy: 'The store is overloaded or closing; try again.',
  'storage-unavailable':
    "The store can't reach its disk or its servers; it is not known whether a write was made. Try again.",
  'backup-failed': 'The backup could not be written, or was cancelled; its files were removed.',
  'not-supported': 'The store does not support this.',
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** An expected error that ends a request. Everything else that is thrown is a defect, or a fault of the machine. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly code: ErrorCode;
  /** More facts for programs; part of the answer on management calls. */
  readonly details: Readonly<Record<string, unknown>> | undefined;

  /** @param options the cause, which is for the server's log and not for the client */
  constructor(
    code: ErrorCode,
    message: string = errorCodes[code],
    details?: Readonly<Record<string, unknown>>,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.code = code;
    this.details = details;
  }
}
