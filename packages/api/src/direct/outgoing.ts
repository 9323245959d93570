import type { TLSSocket } from 'node:tls';

/**
 * The data sent on a connection. Each buffer is written when the one before it has been taken, and so gets TLS records
 * of its own.
 *
 * If two answers are in one record, the Java client takes the data after the first for its bytes, and gives one answer
 * the other's content. And Node.js reports what was written to a socket only when all of it has been taken: if
 * everything were written at once, a client that reads slowly would look like one that reads nothing.
 *
 * @source `RntbdResponseDecoder` of the Java client's public source, which discards the buffer that its answers are
 *   still read from
 */
export class Outgoing {
  readonly #socket: TLSSocket;
  readonly #unsentTimeoutMs: number;
  readonly #waiting: (readonly [buffer: Buffer, taken: ((error?: Error | null) => void) | undefined])[] = [];
  #waitingBytes = 0;

  /** @param unsentTimeoutMs how long the client may read nothing */
  constructor(socket: TLSSocket, unsentTimeoutMs: number) {
    this.#socket = socket;
    this.#unsentTimeoutMs = unsentTimeoutMs;
  }

  /** Bytes that the client has not read yet. */
  get bytes(): number {
    return this.#waitingBytes + this.#socket.writableLength;
  }

  /**
   * @param message nothing else may be written to the socket
   * @param taken called when all of it has been taken, or when it is certain that it will not be
   */
  send(message: readonly Buffer[], taken: (error?: Error | null) => void = () => {}): void {
    for (const [index, buffer] of message.entries()) {
      this.#waiting.push([buffer, index === message.length - 1 ? taken : undefined]);
      this.#waitingBytes += buffer.length;
    }
    this.#hand();
    // Each piece that is taken starts this timeout again.
    if (this.bytes > 0) this.#socket.setTimeout(this.#unsentTimeoutMs);
  }

  #hand(): void {
    if (this.#socket.writableLength > 0) return;
    const [buffer, taken] = this.#waiting.shift() ?? [];
    if (buffer === undefined) return;
    this.#waitingBytes -= buffer.length;
    this.#socket.write(buffer, (error) => {
      this.#hand();
      if (this.bytes === 0) this.#socket.setTimeout(0);
      taken?.(error);
    });
  }
}
