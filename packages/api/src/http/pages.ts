import { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { systemClocks } from '@epitaph/core/clock.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import { wait } from '../wait.ts';
import type { Limits } from './limits.ts';

/** How long a client may take for its answer, in milliseconds, even while others wait for the room of that answer. */
const PATIENCE_MS = 1_000;

/**
 * Pages of feeds and queries, the largest answers. Each takes time to make, and stays in memory until its client has
 * read it. Only a few milliseconds' worth of pages are begun at a time, so that other requests get their turn, and none
 * while too much is unread. A client that reads nothing is cut off: after a while, or soon if others wait for the room.
 */
export class Pages {
  readonly #limits: Pick<Limits, 'pagesInFlight' | 'unsentBytes' | 'unsentTimeoutMs'>;
  readonly #waiting: (() => void)[] = [];
  /** When the first page was begun in this turn of the event loop, if one was. */
  #turnStartedMs: number | undefined;
  #underWay = 0;
  /** Answers that have not been read completely, the oldest first. */
  readonly #unsent = new Map<Writable, { readonly bytes: number; readonly sinceMs: number }>();
  #unsentBytes = 0;
  #isRelieving = false;

  constructor(limits: Pick<Limits, 'pagesInFlight' | 'unsentBytes' | 'unsentTimeoutMs'>) {
    this.#limits = limits;
  }

  /**
   * Makes a page when it is its turn.
   *
   * @param page gets a function for waits during which other pages may be made
   */
  async make<Page>(page: (standAside: (wait: () => Promise<void>) => Promise<void>) => Promise<Page>): Promise<Page> {
    const turn = this.#enter();
    if (turn !== undefined) await turn;
    let isIn = true;
    let isOver = false;
    try {
      return await page(async (wait) => {
        if (isOver) return wait();
        this.#leave();
        isIn = false;
        try {
          await wait();
        } finally {
          if (!isOver) {
            await this.#enter();
            // The work on the page may go on after its request was answered.
            if (isOver) this.#leave();
            else isIn = true;
          }
        }
      });
    } finally {
      isOver = true;
      if (isIn) this.#leave();
    }
  }

  #enter(): Promise<void> | undefined {
    if (this.#waiting.length > 0 || !this.#mayBegin) return this.#inTurn();
    this.#begin();
    this.#underWay += 1;
    return undefined;
  }

  async #inTurn(): Promise<void> {
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#underWay += 1;
  }

  #leave(): void {
    this.#underWay -= 1;
    this.#next();
  }

  /**
   * Must be called when an answer was handed to its connection. Not needed for small ones, which fit into the system's
   * buffers.
   */
  handedOver(answer: Writable & { readonly socket: Socket | null }, bytes: number): void {
    const { socket } = answer;
    // A test that injects its requests has no connection. And a client that has left meanwhile causes no further event.
    if (answer.writableFinished || answer.destroyed || !(socket instanceof Socket)) return;
    // Each piece that is read starts this timeout again. The server sets its own when the answer has been sent.
    socket.setTimeout(this.#limits.unsentTimeoutMs);
    this.#unsent.set(answer, { bytes, sinceMs: systemClocks.monotonicMs() });
    this.#unsentBytes += bytes;
    answer.once('close', () => this.#forget(answer));
    this.#relieve();
  }

  get #mayBegin(): boolean {
    const { pagesInFlight, unsentBytes } = this.#limits;
    if (this.#underWay >= pagesInFlight || this.#unsentBytes >= unsentBytes) return false;
    return this.#turnStartedMs === undefined || systemClocks.monotonicMs() - this.#turnStartedMs < TURN_MS;
  }

  #begin(): void {
    if (this.#turnStartedMs !== undefined) return;
    this.#turnStartedMs = systemClocks.monotonicMs();
    setImmediate(() => {
      this.#turnStartedMs = undefined;
      this.#next();
    });
  }

  #next(): void {
    if (this.#waiting.length === 0 || !this.#mayBegin) return;
    this.#begin();
    this.#waiting.shift()!();
  }

  #relieve(): void {
    for (const [answer, { sinceMs }] of this.#unsent) {
      if (this.#unsentBytes < this.#limits.unsentBytes) return;
      if (systemClocks.monotonicMs() - sinceMs < PATIENCE_MS) break;
      this.#forget(answer);
      answer.destroy();
    }
    if (this.#isRelieving || this.#unsentBytes < this.#limits.unsentBytes) return;
    this.#isRelieving = true;
    void wait(PATIENCE_MS / 4).then(() => {
      this.#isRelieving = false;
      this.#relieve();
    });
  }

  #forget(answer: Writable): void {
    const unsent = this.#unsent.get(answer);
    if (unsent === undefined) return;
    this.#unsent.delete(answer);
    this.#unsentBytes -= unsent.bytes;
    this.#next();
  }
}
