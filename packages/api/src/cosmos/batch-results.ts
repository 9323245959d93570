import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { BatchResult } from '../store/api/items-api.ts';
import { charge, chargeOfWrite } from '../request-units/charge.ts';
import { withSystemProperties } from '../store/items/system-properties.ts';
import { describeError, wireShapes, type WireShape } from './errors.ts';
import { ownerGone } from './request.ts';
import type { Asked, SentOperation } from './batch-operations.ts';

/** The result of one operation, before it is written in the format of the request. */
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

/** The result of a read that no longer fits into the answer. It is charged, and the client reads the item again. */
export const answerTooLarge = (requestCharge: number): OperationResult => ({
  statusCode: wireShapes.answerTooLarge.status,
  subStatusCode: wireShapes.answerTooLarge.substatus,
  requestCharge,
  message: ANSWER_TOO_LARGE,
});

export const failed = ({ statusCode }: OperationResult): boolean => statusCode >= 400;

/** The answer to an operation that was done. */
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

/** The answer to an operation that was refused. @throws the error itself unless it is an expected refusal */
export function failure(sent: SentOperation, error: unknown): OperationResult {
  const described = describeError(ownerGone(error) ?? error);
  if (described === undefined) throw error;
  let shape: WireShape = described.shape;
  // A write was recorded but readers do not see it yet. The client must learn that it may have been done.
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
