import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { Admitted, Asked } from './admission.ts';

/** What takes an answer. */
export interface Reply extends Writable {
  readonly socket: Socket | null;
  /** @param headers names, each with its value behind it */
  writeHead(status: number, headers: string[]): unknown;
}

/** A request of the data plane and its answer. */
export interface Exchange {
  readonly request: Asked;
  readonly response: Reply;
  /** In direct mode, and not over HTTP. */
  readonly isDirect: boolean;
  /** In milliseconds of the monotonic clock. */
  readonly arrivedMs: number;
  /** Set once the request is let in. */
  admitted: Admitted | undefined;
}
