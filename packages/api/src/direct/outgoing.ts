import type { TLSSocket } from 'node:tls';

/**
 * What goes out on a connection: each buffer when the one before it is taken, and so in TLS records of its own.
 *
 * The Java client takes what follows an answer in its record for that answer's own bytes, so that of two in one record it gives
 * the one the other's content. And of what the socket has at once Node.js tells only when all of it is taken: whoever takes slowly what
 * has piled up would pass for one who takes nothing, if it had that.
 *
 * @source `RntbdResponseDecoder` of the Java client's public source, which discards what its answers are still read from
 */
export class Outgoing {
  readonly #socket: TLSSocket;
  readonly #unsentTimeoutMs: number;
  readonly #waiting: (readonly [buffer: Buffer, taken: ((error?: Error | null) => void) | undefined])[] = [];
  #waitingBytes = 0;

  /** @param unsentTimeoutMs how long the client may take nothing */
  constructor(socket: TLSSocket, unsentTimeoutMs: number) {
    this.#socket = socket;
    this.#unsentTimeoutMs = unsentTimeoutMs;
  }

  /** Bytes that the client has not taken yet. */
  get bytes(): number {
    return this.#waitingBytes + this.#socket.writableLength;
  }

  /**
   * @param message nothing else may be written to the socket
   * @param taken called when all of it is taken, or when it is certain that it won't be
   */
  send(message: readonly Buffer[], taken: (error?: Error | null) => void = () => {}): void {
    for (const [index, buffer] of message.entries()) {
      this.#waiting.push([buffer, index === message.length - 1 ? taken : undefined]);
      this.#waitingBytes += buffer.length;
    }
    this.#hand();
    // Whatever is taken begins this time anew.
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
