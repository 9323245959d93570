import type { IncomingMessage, ServerResponse } from 'node:http';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { Limits } from './limits.ts';
import { hasBody } from './read-body.ts';

/** Milliseconds after which who is turned away comes again: at least, behind the one before, and at most. */
const WAIT_MS = { least: 100, apart: 1, most: 3_000 };

/**
 * Bounds what a server has under way, so that overload ends in quick refusals instead of a growing heap. Clients of the data
 * plane are told 429, which all of them wait for and come back after, as programs that send thousands of requests at once
 * count on; with 503 and one region they give up. Each is sent behind those turned away before it.
 *
 * A request counts from when its body is there until its answer is out, so slow senders hold no place. Of large
 * bodies, which hold memory while they arrive, the bytes count: who sends one slowly takes no room from others.
 */
export class InFlight {
  readonly #limits: Pick<Limits, 'requestsInFlight' | 'largeBodyBytes' | 'largeBodyBytesInFlight'>;
  #requests = 0;
  #largeBodyBytes = 0;
  /** When the last of those who were turned away comes again. */
  #lastComesMs = 0;

  constructor(limits: Pick<Limits, 'requestsInFlight' | 'largeBodyBytes' | 'largeBodyBytesInFlight'>) {
    this.#limits = limits;
  }

  /** Counts a request until its answer is out; false where there are too many, and it is to be turned away. */
  enter(response: ServerResponse): boolean {
    // Whose client left while it was found out who that is: nothing would take it off again.
    if (response.closed) return true;
    if (this.#requests >= this.#limits.requestsInFlight) return false;
    this.#requests += 1;
    response.once('close', () => {
      this.#requests -= 1;
    });
    return true;
  }

  /** Counts a body that is about to be read, if it is large; false where there is no room for it. */
  takeBody(request: IncomingMessage, response: ServerResponse): boolean {
    const { largeBodyBytes, largeBodyBytesInFlight } = this.#limits;
    // What comes with a GET is nobody's body, and may come without a key: of that nothing is kept.
    if (!hasBody(request) || !isLarge(request, largeBodyBytes)) return true;
    if (this.#largeBodyBytes >= largeBodyBytesInFlight) return false;
    let bytes = 0;
    response.once('close', () => {
      this.#largeBodyBytes -= bytes;
    });
    request.on('data', (chunk: Buffer) => {
      // Of an answer that is out already nothing would take it off again.
      if (response.closed) return;
      bytes += chunk.length;
      this.#largeBodyBytes += chunk.length;
      // Many that had begun when there was room.
      if (this.#largeBodyBytes > 2 * largeBodyBytesInFlight) request.destroy();
    });
    return true;
  }

  /** After how many milliseconds the next one who is turned away should come again. */
  comesBackInMs(): number {
    const nowMs = systemClocks.monotonicMs();
    const { least, apart, most } = WAIT_MS;
    this.#lastComesMs = Math.min(Math.max(this.#lastComesMs + apart, nowMs + least), nowMs + most);
    return this.#lastComesMs - nowMs;
  }
}

function isLarge({ headers }: IncomingMessage, largeBodyBytes: number): boolean {
  const length = headers['content-length'];
  return length === undefined ? headers['transfer-encoding'] !== undefined : Number(length) >= largeBodyBytes;
}
