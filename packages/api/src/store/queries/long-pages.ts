import { randomBytes } from 'node:crypto';
import { wait } from '../../wait.ts';
import { inThisHeap } from '../heap.ts';

/**
 * Milliseconds that a request waits for its page. Clients give up after about 60 seconds and send the request again.
 */
const WAIT_MS = 10_000;
/** Milliseconds that a page is worked on, or kept, while no request waits for it. */
const UNASKED_MS = 30_000;
/** How many pages may be kept for a later request. */
const MOST_KEPT = inThisHeap(32);

/** A page that is being made, together with what its maker needs. */
interface Making {
  readonly page: Promise<unknown>;
  /** Called when the page has ended, if a client was told to fetch it and did not. */
  givenUp(): void;
}

interface LongPage<Made extends Making> {
  readonly made: Made;
  readonly controller: AbortController;
  isReady: boolean;
  /** The number of requests that wait for the page now. */
  waiting: number;
  /** Set once a client may ask for the page again. */
  kept?: { readonly id: string; readonly about: string };
  /** Ends the time for which the page is kept without a request. Aborted by the next request for the page. */
  unasked?: AbortController;
}

export interface PageRequest {
  /** The id that an earlier answer gave the page, if there was one. */
  readonly id: string | undefined;
  /** Identifies the question. A page is never returned for another question. */
  readonly about: () => string;
  /** Whether the request waits for the page however long that takes. */
  readonly isAwaited: boolean;
  readonly signal: AbortSignal | undefined;
  readonly standAside: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

/**
 * Pages that take longer to make than clients wait for an answer. A request for such a page is answered before the page
 * is ready, and the work goes on. A client that asks for it again by its id waits for the same page.
 *
 * If the id is unknown, after a restart or on another node, the page is begun again under the same id. So a client
 * whose requests alternate between nodes gets its page too.
 */
export class LongPages<Made extends Making> {
  readonly #waitMs: number;
  readonly #kept = new Map<string, LongPage<Made>>();
  /** Pages that were given up and have not ended yet. */
  readonly #ending = new Set<Promise<unknown>>();

  /**
   * @param waitMs milliseconds that a request waits for its page; with 0 the client is told at once to ask again
   */
  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /**
   * Waits for a page for a limited time.
   *
   * @param make begins the page; its work must end, and may fail, when the signal is aborted
   * @returns the page, and, if it isn't ready, the id by which the client must ask for it again
   * @throws the reason of the request's signal, if that is aborted
   */
  async ask(
    { id, about, isAwaited, signal, standAside }: PageRequest,
    make: (signal: AbortSignal) => Made,
  ): Promise<{ readonly made: Made; readonly again?: string }> {
    const known = id === undefined ? undefined : this.#kept.get(id);
    const page = known !== undefined && known.kept!.about === about() ? known : begin(make);
    if (page !== known && id !== undefined) this.#keep(page, id, about);
    page.waiting += 1;
    page.unasked?.abort();
    let isTaken = false;
    try {
      if (this.#waitMs > 0) {
        const soon = () => untilReady(page, this.#waitMs, signal);
        // A page that another request has begun does not need the resources that this request holds.
        await (page === known && standAside !== undefined ? standAside(soon) : soon());
      }
      for (; !page.isReady; await untilReady(page, WAIT_MS, signal)) {
        if (isAwaited) continue;
        if (page.kept === undefined) this.#keep(page, randomBytes(12).toString('base64url'), about);
        if (page.kept !== undefined) return { made: page.made, again: page.kept.id };
      }
      isTaken = true;
      return { made: page.made };
    } finally {
      page.waiting -= 1;
      if (page.waiting === 0) this.#left(page, isTaken);
    }
  }

  /**
   * Drops pages that are ready and not fetched, because they may show content that was erased. They are made again on
   * request.
   */
  forgetReady(): void {
    for (const page of this.#kept.values()) if (page.isReady && page.waiting === 0) this.#end(page);
  }

  /** Gives up all pages for which no request waits, and waits for their end. */
  async stop(): Promise<void> {
    for (const page of this.#kept.values()) if (page.waiting === 0) this.#end(page);
    await Promise.all(this.#ending);
  }

  #keep(page: LongPage<Made>, id: string, about: () => string): void {
    const former = this.#kept.get(id);
    // The id is now used for another question.
    if (former !== undefined && former.waiting === 0) this.#giveUp(former);
    if (this.#kept.size >= MOST_KEPT || this.#kept.has(id)) return;
    page.kept = { id, about: about() };
    this.#kept.set(id, page);
  }

  #left(page: LongPage<Made>, isTaken: boolean): void {
    if (isTaken || page.kept === undefined) return this.#end(page);
    const unasked = (page.unasked = new AbortController());
    void wait(UNASKED_MS, unasked.signal).then(() => {
      if (!unasked.signal.aborted) this.#giveUp(page);
    });
  }

  #giveUp(page: LongPage<Made>): void {
    this.#end(page);
    const { made } = page;
    const givenUp = () => made.givenUp();
    made.page.then(givenUp, givenUp);
  }

  #end(page: LongPage<Made>): void {
    page.unasked?.abort();
    if (page.kept !== undefined) this.#kept.delete(page.kept.id);
    if (page.isReady) return;
    page.controller.abort(new Error('Nobody waits for this page any more.'));
    const ended = page.made.page.catch(() => {}).finally(() => this.#ending.delete(ended));
    this.#ending.add(ended);
  }
}

function begin<Made extends Making>(make: (signal: AbortSignal) => Made): LongPage<Made> {
  const controller = new AbortController();
  const page: LongPage<Made> = { made: make(controller.signal), controller, isReady: false, waiting: 0 };
  const ready = (): void => {
    page.isReady = true;
  };
  page.made.page.then(ready, ready);
  return page;
}

/** Waits until a page is ready or has failed, for at most `mostMs`. */
async function untilReady(page: LongPage<Making>, mostMs: number, signal: AbortSignal | undefined): Promise<void> {
  const over = new AbortController();
  const end = (): void => over.abort();
  const leave = (): void => {
    // If no client can ask for the page again, it ends with its request, and for the same reason, which knows the cost
    // so far.
    if (page.kept === undefined) page.controller.abort(signal!.reason);
    else end();
  };
  page.made.page.then(end, end);
  if (signal?.aborted === true) leave();
  signal?.addEventListener('abort', leave, { once: true });
  await wait(mostMs, over.signal);
  signal?.removeEventListener('abort', leave);
  if (page.kept !== undefined) signal?.throwIfAborted();
}
