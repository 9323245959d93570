import { status } from '@grpc/grpc-js';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

/** What a fault of the server or of the way to it means for a call. */
export type Fault =
  /** It may pass: the call can be made again, as far as it may be made twice. */
  | { readonly kind: 'transient'; readonly reason: string }
  | { readonly kind: 'access-denied'; readonly reason: string }
  /** Everything was to be read from a number that is no event's position. */
  | { readonly kind: 'no-position'; readonly reason: string }
  /** Of a stream that somebody has deleted for good, which the server tells nothing of any more. */
  | { readonly kind: 'stream-deleted'; readonly reason: string }
  /** A defect, here or there. */
  | { readonly kind: 'other'; readonly reason: string };

/** The server is there and lets the store not in, which whoever gave the credentials can put right. */
class CredentialsRefused extends StorageUnavailable {
  override readonly name = 'CredentialsRefused';
  override readonly isForOperator = true;
}

/** There was such a stream, and another program has deleted it for good, the stream of its metadata with it. */
export class StreamDeleted extends Error {
  override readonly name = 'StreamDeleted';
}

/** The server's answer to an append that it did not make, other than a wrong revision. */
export class AppendFault extends Error {
  override readonly name = 'AppendFault';
  readonly fault: Fault;

  constructor(fault: Fault) {
    super(fault.reason);
    this.fault = fault;
  }
}

const TRANSIENT = new Set<number | undefined>([
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.ABORTED,
  status.RESOURCE_EXHAUSTED,
]);

export function faultOf(error: unknown): Fault {
  if (error instanceof AppendFault) return error.fault;
  if (error instanceof StorageUnavailable) return { kind: 'transient', reason: error.message };
  const { code, message, details, metadata } = error as {
    readonly code?: number;
    readonly message?: string;
    readonly details?: string;
    readonly metadata?: { getMap?(): Record<string, unknown> };
  };
  const reason = (details ?? message ?? String(error)).replace(/\.? *Resolution note:.*$/s, '');
  const exception = metadata?.getMap?.()['exception'];
  if (code === status.UNAUTHENTICATED || code === status.PERMISSION_DENIED || exception === 'access-denied') {
    return { kind: 'access-denied', reason };
  }
  if (exception === 'stream-deleted') return { kind: 'stream-deleted', reason };
  // All that servers up to 23.10 say of it.
  if (code === status.UNKNOWN && reason.endsWith('ReadAllResult: Error')) return { kind: 'no-position', reason };
  const passing =
    TRANSIENT.has(code) ||
    exception === 'not-leader' ||
    // While a cluster elects; and what the client says when it found no node that would do.
    reason.includes('No leader info available') ||
    reason.startsWith('Failed to discover') ||
    // How gRPC for Node.js tells of a connection that was closed under a call.
    (code === status.INTERNAL && /RST_STREAM|[Ss]ession closed|GOAWAY/.test(reason)) ||
    // https://github.com/grpc/grpc-node/issues/2502
    reason.includes('write after end');
  return { kind: passing ? 'transient' : 'other', reason };
}

/** A fault as the store's callers know it. */
export function storageFaultOf(fault: Fault, cause: unknown): Error {
  // In these words already, by a call that another one stands on.
  if (cause instanceof StorageUnavailable) return cause;
  switch (fault.kind) {
    case 'transient':
      return new StorageUnavailable(`EventStoreDB can't be reached: ${fault.reason}`, { cause });
    case 'access-denied':
      return new CredentialsRefused(`EventStoreDB refuses the credentials: ${fault.reason}`, { cause });
    case 'no-position':
      return new Refusal('bad-request', 'No event of the log has that position: it is not from this store.');
    case 'stream-deleted':
      return new StreamDeleted(fault.reason, { cause });
    case 'other':
      return cause instanceof Error ? cause : new Error(fault.reason);
  }
}
