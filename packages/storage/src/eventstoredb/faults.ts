import { status } from '@grpc/grpc-js';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

/** The meaning of a fault of the server, or of the connection to it, for a call. */
export type Fault =
  /** The fault may pass: an idempotent call can be repeated. */
  | { readonly kind: 'transient'; readonly reason: string }
  | { readonly kind: 'access-denied'; readonly reason: string }
  /** A read of all events was to begin at a number that is not the position of an event. */
  | { readonly kind: 'no-position'; readonly reason: string }
  /** Somebody has deleted the stream permanently; the server returns nothing of it. */
  | { readonly kind: 'stream-deleted'; readonly reason: string }
  /** A defect of this program or of the server. */
  | { readonly kind: 'other'; readonly reason: string };

/** The server runs, but refuses the store access. The operator, who gives the credentials, can correct that. */
class CredentialsRefused extends StorageUnavailable {
  override readonly name = 'CredentialsRefused';
  override readonly isForOperator = true;
}

/** Another program has deleted the stream permanently, and its metadata too. */
export class StreamDeleted extends Error {
  override readonly name = 'StreamDeleted';
}

/** The server did not make an append, for another reason than a wrong revision. */
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
  // Servers up to 23.10 say no more than this.
  if (code === status.UNKNOWN && reason.endsWith('ReadAllResult: Error')) return { kind: 'no-position', reason };
  const passing =
    TRANSIENT.has(code) ||
    exception === 'not-leader' ||
    // A cluster is electing a leader; or the client has found no suitable node.
    reason.includes('No leader info available') ||
    reason.startsWith('Failed to discover') ||
    // gRPC for Node.js reports a connection that was closed during a call in this way.
    (code === status.INTERNAL && /RST_STREAM|[Ss]ession closed|GOAWAY/.test(reason)) ||
    // https://github.com/grpc/grpc-node/issues/2502
    reason.includes('write after end');
  return { kind: passing ? 'transient' : 'other', reason };
}

/** Converts a fault to an error for the callers of the log. */
export function storageFaultOf(fault: Fault, cause: unknown): Error {
  // An inner call has converted it already.
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
