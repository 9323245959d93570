import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Admitted } from './admission.ts';

/** A request of the data plane and its answer. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** In milliseconds of the monotonic clock. */
  readonly arrivedMs: number;
  /** Set once the request is let in. */
  admitted: Admitted | undefined;
}
