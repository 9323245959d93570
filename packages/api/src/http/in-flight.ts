import type { IncomingMessage } from 'node:http';
import type { Writable } from 'node:stream';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { Limits } from './limits.ts';
import { hasBody } from './read-body.ts';

/** Milliseconds after which who is turned away comes again: at least, behind the one before, and at most. */
const WAIT_MS = { least: 100, apart: 1, most: 3_000 };

type RoomLimits = Pick<Limits, 'requestsInFlight' | 'largeBodyBytes' | 'largeBodyBytesInFlight'>;

interface Room {
  requests: number;
  largeBodyBytes: number;
}

/**
 * Bounds what a server has under way, so that overload ends in quick refusals instead of a growing heap. Clients of the data
 * plane are told 429, which all of them wait for and come back after, as programs that send thousands of requests at once
 * count on; with 503 and one region they give up. Each is sent behind those turned away before it.
 *
 * A request counts from when its body is there, so slow senders hold no place. Of large bodies, which hold memory while
 * they arrive, the bytes count: who sends one slowly takes no room from others.
 */
export class InFlight {
  readonly #limits: RoomLimits;
  readonly #taken: Room = { requests: 0, largeBodyBytes: 0 };
  /** When the last of those who were turned away comes again. */
  #lastComesMs = 0;

  constructor(limits: RoomLimits) {
    this.#limits = limits;
  }

  /** A place for a request, which takes no room yet. */
  placeFor(response: Writable): Place {
    return new Place(response, this.#limits, this.#taken);
  }

  /** After how many milliseconds the next one who is turned away should come again. */
  comesBackInMs(): number {
    const nowMs = systemClocks.monotonicMs();
    const { least, apart, most } = WAIT_MS;
    this.#lastComesMs = Math.min(Math.max(this.#lastComesMs + apart, nowMs + least), nowMs + most);
    return this.#lastComesMs - nowMs;
  }
}

/**
 * The room that a request takes: until its answer is out, and, where it is told of, until the work for it is done. That may
 * go on when its client has hung up, and those who do so by the thousand would fill the memory beyond any bound.
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

  /** Counts a request; false where there are too many, and it is to be turned away. */
  enter(): boolean {
    if (this.#all.requests >= this.#limits.requestsInFlight) return false;
    this.#requests += 1;
    this.#all.requests += 1;
    // Whose client left while it was found out who that is.
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

  /** Counts a body that is about to be read, if it is large; false where there is no room for it. */
  takeBody(request: IncomingMessage): boolean {
    // What comes with a GET is nobody's body, and may come without a key: of that nothing is kept.
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

  /** Counts what has come of a large body; false where it is too much with that of many which had begun when there was room. */
  takePiece(bytes: number): boolean {
    // Of an answer that is out already nothing is kept, and nothing would give it back.
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
