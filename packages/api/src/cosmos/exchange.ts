import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { Admitted, Asked } from './admission.ts';

/** Where an answer is written. */
export interface Reply extends Writable {
  readonly socket: Socket | null;
  /** @param headers names, each followed by its value */
  writeHead(status: number, headers: string[]): unknown;
}

/** A request of the data plane and its answer. */
export interface Exchange {
  readonly request: Asked;
  readonly response: Reply;
  /** True for direct mode, false for HTTP. */
  readonly isDirect: boolean;
  /** When it arrived, in milliseconds of the monotonic clock. */
  readonly arrivedMs: number;
  /** Set once the request is let in. */
  admitted: Admitted | undefined;
}
