import { Writable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { answerMessage } from './answer.ts';
import type { Outgoing } from './outgoing.ts';

/** What a reply needs. */
export interface ReplyTo {
  readonly socket: TLSSocket;
  readonly outgoing: Outgoing;
  readonly activityId: string;
  readonly transportId: number;
  readonly clientVersion: string;
  readonly headPosition: () => number;
}

/** The answer to one request of a connection. It is written like one over HTTP, and sent as one message. */
export class DirectReply extends Writable {
  readonly #to: ReplyTo;
  readonly #body: Buffer[] = [];
  readonly #headers = new Map<string, string>();
  #status = 0;

  constructor(to: ReplyTo) {
    super();
    this.#to = to;
    // Users of the reply learn of its end from the `close` event.
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
    const { outgoing, headPosition } = this.#to;
    const answer = { status: this.#status, headers: this.#headers, body: this.#body, headPosition: headPosition() };
    outgoing.send(answerMessage(answer, this.#to), done);
  }

  /** Without an answer, a client would wait for ever, so the connection is closed. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.writableFinished) this.socket.destroy();
    done(error);
  }
}
