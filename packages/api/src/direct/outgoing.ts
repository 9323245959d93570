import type { TLSSocket } from 'node:tls';

/** Bytes that the socket has at a time, some more with the last of them. */
const AT_ONCE_BYTES = 64 * 1024;

/** What goes out on a connection, one buffer after the other. */
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

  /** @param taken called when all of them are taken, or when it is certain that they won't be */
  send(buffers: readonly Buffer[], taken: (error?: Error | null) => void): void {
    for (const [index, buffer] of buffers.entries()) {
      this.#waiting.push([buffer, index === buffers.length - 1 ? taken : undefined]);
      this.#waitingBytes += buffer.length;
    }
    this.#hand();
    // Whatever is taken begins this time anew.
    if (this.bytes > 0) this.#socket.setTimeout(this.#unsentTimeoutMs);
  }

  /**
   * Of what the socket has at once Node.js tells over TLS only when all of it is taken. So whoever takes what has piled up slowly would
   * pass for one who takes nothing, if it had that.
   */
  #hand(): void {
    while (this.#waiting.length > 0 && this.#socket.writableLength < AT_ONCE_BYTES) {
      const [buffer, taken] = this.#waiting.shift()!;
      this.#waitingBytes -= buffer.length;
      this.#socket.write(buffer, (error) => {
        this.#hand();
        if (this.bytes === 0) this.#socket.setTimeout(0);
        taken?.(error);
      });
    }
  }
}
