import type { IncomingMessage } from 'node:http';
import type { Writable } from 'node:stream';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { Limits } from './limits.ts';
import { hasBody } from './read-body.ts';

/**
 * Milliseconds after which a refused client should come again: the least time, the distance to the one before, and the
 * most.
 */
const WAIT_MS = { least: 100, apart: 1, most: 3_000 };

type RoomLimits = Pick<Limits, 'requestsInFlight' | 'largeBodyBytes' | 'largeBodyBytesInFlight'>;

interface Room {
  requests: number;
  largeBodyBytes: number;
}

/**
 * Limits the requests that a server has under way, so that overload ends in quick refusals and not in a growing heap.
 * Clients of the data plane get 429. All of them wait for that and come back, as programs that send thousands of
 * requests at once expect; with 503 and one region they give up. Each is told to come after those refused before it.
 *
 * A request counts once its body has arrived, so slow senders hold no place. For large bodies, which hold memory while
 * they arrive, the bytes count, so a client that sends one slowly takes no room from others.
 */
export class InFlight {
  readonly #limits: RoomLimits;
  readonly #taken: Room = { requests: 0, largeBodyBytes: 0 };
  /** When the last of the refused clients should come again. */
  #lastComesMs = 0;

  constructor(limits: RoomLimits) {
    this.#limits = limits;
  }

  /** A place for a request, which takes no room yet. */
  placeFor(response: Writable): Place {
    return new Place(response, this.#limits, this.#taken);
  }

  /** Milliseconds after which the next refused client should come again. */
  comesBackInMs(): number {
    const nowMs = systemClocks.monotonicMs();
    const { least, apart, most } = WAIT_MS;
    this.#lastComesMs = Math.min(Math.max(this.#lastComesMs + apart, nowMs + least), nowMs + most);
    return this.#lastComesMs - nowMs;
  }
}

/**
 * The room that a request takes until its answer has been sent and, if that is reported, until the work for it is done.
 * The work may go on when the client has hung up. Clients that do so by the thousand would otherwise fill the memory.
 */
export class Place {
  readonly #limits: RoomLimits;
  readonly #all: Room;
  #requests = 0;
  #largeBodyBytes = 0;
  #isOut: boolean;
  #isWorkedOn = false;

  constructor(response: Writable, limits: RoomLimits, all: Room) {
    this.#limits = limits;
    this.#all = all;
    this.#isOut = response.closed;
    response.once('close', () => {
      this.#isOut = true;
      this.#giveBack();
    });
  }

  /** Counts a request. Returns false when there are too many and it must be refused. */
  enter(): boolean {
    if (this.#all.requests >= this.#limits.requestsInFlight) return false;
    this.#requests += 1;
    this.#all.requests += 1;
    // The client left while its identity was checked.
    this.#giveBack();
    return true;
  }

  /** Keeps the room until {@link workEnds} is called. */
  workBegins(): void {
    this.#isWorkedOn = true;
  }

  workEnds(): void {
    this.#isWorkedOn = false;
    this.#giveBack();
  }

  /** Counts a body that is about to be read, if it is large. Returns false when there is no room for it. */
  takeBody(request: IncomingMessage): boolean {
    // A GET has no meaningful body and may come without a key, so nothing of its body is kept.
    if (!hasBody(request) || !isLarge(request, this.#limits.largeBodyBytes)) return true;
    if (!this.hasRoomForBody()) return false;
    request.on('data', (chunk: Buffer) => {
      if (!this.takePiece(chunk.length)) request.destroy();
    });
    return true;
  }

  hasRoomForBody(): boolean {
    return this.#all.largeBodyBytes < this.#limits.largeBodyBytesInFlight;
  }

  /**
   * Counts a piece of a large body. Returns false when it is too much, together with many bodies that began while there
   * was room.
   */
  takePiece(bytes: number): boolean {
    // Once the answer is sent nothing is kept, and nothing would free the room.
    if (this.#isOut) return true;
    this.#largeBodyBytes += bytes;
    this.#all.largeBodyBytes += bytes;
    return this.#all.largeBodyBytes <= 2 * this.#limits.largeBodyBytesInFlight;
  }

  #giveBack(): void {
    if (!this.#isOut || this.#isWorkedOn) return;
    this.#all.requests -= this.#requests;
    this.#all.largeBodyBytes -= this.#largeBodyBytes;
    this.#requests = this.#largeBodyBytes = 0;
  }
}

function isLarge({ headers }: IncomingMessage, largeBodyBytes: number): boolean {
  const length = headers['content-length'];
  return length === undefined ? headers['transfer-encoding'] !== undefined : Number(length) >= largeBodyBytes;
}
