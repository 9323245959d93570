import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { BatchResult } from '../store/api/items-api.ts';
import { charge, chargeOfWrite } from '../request-units/charge.ts';
import { withSystemProperties } from '../store/items/system-properties.ts';
import { describeError, wireShapes, type WireShape } from './errors.ts';
import { ownerGone } from './request.ts';
import type { Asked, SentOperation } from './batch-operations.ts';

/** What one operation came to, before it is written in the format of the request. */
export interface OperationResult {
  readonly statusCode: number;
  readonly subStatusCode?: number | undefined;
  readonly requestCharge: number;
  readonly eTag?: string | undefined;
  /** JSON text. */
  readonly resourceBody?: string | undefined;
  readonly message?: string | undefined;
  readonly retryAfterMilliseconds?: number | undefined;
}

export const FAILED_DEPENDENCY: OperationResult = { statusCode: 424, requestCharge: 0 };

export const ANSWER_TOO_LARGE = 'Response size is too large.';

export const charactersOf = ({ resourceBody }: OperationResult): number => resourceBody?.length ?? 0;

/** What was read and no longer fits into the answer: it is paid for, and clients read it once more. */
export const answerTooLarge = (requestCharge: number): OperationResult => ({
  statusCode: wireShapes.answerTooLarge.status,
  subStatusCode: wireShapes.answerTooLarge.substatus,
  requestCharge,
  message: ANSWER_TOO_LARGE,
});

export const failed = ({ statusCode }: OperationResult): boolean => statusCode >= 400;

/** How an operation that was done is answered. */
export function shown(
  container: ContainerState,
  { minimal }: SentOperation,
  asked: Asked,
  result: BatchResult,
): OperationResult {
  if (result.kind === 'deleted') return { statusCode: 204, requestCharge: charge.delete(result.bytes) };
  const { item } = result;
  const resourceBody = withSystemProperties(container, item);
  if (result.kind === 'read') {
    const ifNoneMatch = asked.kind === 'read' ? asked.precondition?.ifNoneMatch : undefined;
    const unchanged = ifNoneMatch !== undefined && (ifNoneMatch === item.etag || ifNoneMatch === '*');
    return unchanged
      ? { statusCode: 304, requestCharge: charge.refusedRead, eTag: item.etag }
      : {
          statusCode: 200,
          requestCharge: charge.pointRead(Buffer.byteLength(resourceBody)),
          eTag: item.etag,
          resourceBody,
        };
  }
  return {
    statusCode: result.created && asked.kind !== 'rename' ? 201 : 200,
    requestCharge: chargeOfWrite(container.definition, item.json, 'item' in asked ? asked.item.document : undefined),
    eTag: item.etag,
    ...(minimal ? {} : { resourceBody }),
  };
}

/** How an operation that was refused is answered. @throws the error itself when it is no expected "no" */
export function failure(sent: SentOperation, error: unknown): OperationResult {
  const described = describeError(ownerGone(error) ?? error);
  if (described === undefined) throw error;
  let shape: WireShape = described.shape;
  // A write that is on record but not yet seen by readers: who asked for it must learn that it may be there.
  if (error instanceof Refusal && error.code === 'session-not-available' && sent.type !== 'Read') {
    shape = wireShapes.requestTimeout;
  }
  return {
    statusCode: shape.status,
    subStatusCode: shape.substatus,
    requestCharge:
      shape.status === 429 ? charge.throttled : sent.type === 'Read' ? charge.refusedRead : charge.refusedWrite,
    message: described.message,
    retryAfterMilliseconds:
      shape.retryAfterSeconds === undefined ? undefined : Math.ceil(shape.retryAfterSeconds * 1000),
  };
}

export function resultText({ resourceBody, ...result }: OperationResult): string {
  const text = JSON.stringify(result);
  return resourceBody === undefined ? text : `${text.slice(0, -1)},"resourceBody":${resourceBody}}`;
}
