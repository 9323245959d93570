import { Writable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { answerMessage } from './answer.ts';

/** What an answer goes by. */
export interface ReplyTo {
  readonly socket: TLSSocket;
  readonly activityId: string;
  readonly transportId: number;
  readonly clientVersion: string;
  /** Where the log is. */
  readonly headPosition: () => number;
  /** How long the client may take nothing of it. */
  readonly unsentTimeoutMs: number;
}

/** The answer to one request of a connection: written as over HTTP, sent as one message. */
export class DirectReply extends Writable {
  readonly #to: ReplyTo;
  readonly #body: Buffer[] = [];
  readonly #headers = new Map<string, string>();
  #status = 0;

  constructor(to: ReplyTo) {
    super();
    this.#to = to;
    // Whoever waits for its end is told by its close.
    this.on('error', () => {});
  }

  get socket(): TLSSocket {
    return this.#to.socket;
  }

  writeHead(status: number, headers: readonly string[]): void {
    this.#status = status;
    for (let index = 0; index < headers.length; index += 2) this.#headers.set(headers[index]!, headers[index + 1]!);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#body.push(chunk);
    done();
  }

  override _final(done: (error?: Error | null) => void): void {
    const { socket, headPosition, unsentTimeoutMs } = this.#to;
    const answer = { status: this.#status, headers: this.#headers, body: this.#body, headPosition: headPosition() };
    const buffers = answerMessage(answer, this.#to);
    for (const buffer of buffers.slice(0, -1)) socket.write(buffer);
    socket.write(buffers.at(-1)!, (error) => {
      if (socket.writableLength === 0) socket.setTimeout(0);
      done(error);
    });
    // Whatever is taken begins this time anew.
    if (socket.writableLength > 0) socket.setTimeout(unsentTimeoutMs);
  }

  /** Without its answer a client would wait for the request for ever. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.writableFinished) this.socket.destroy();
    done(error);
  }
}
