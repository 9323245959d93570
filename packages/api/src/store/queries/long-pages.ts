import { randomBytes } from 'node:crypto';
import { wait } from '../../wait.ts';
import { inThisHeap } from '../heap.ts';

/** Milliseconds that a request waits for its page. Clients give up after some 60 seconds, and ask for it anew. */
const WAIT_MS = 10_000;
/** Milliseconds that a page is worked on, or kept, while nobody waits for it. */
const UNASKED_MS = 30_000;
/** How many pages may be such that nobody has to wait for them. */
const MOST_KEPT = inThisHeap(32);

/** A page that is being made, with what its maker knows of it. */
interface Making {
  readonly page: Promise<unknown>;
  /** Called when it has ended and nobody is going to fetch it who was told to. */
  givenUp(): void;
}

interface LongPage<Made extends Making> {
  readonly made: Made;
  readonly controller: AbortController;
  isReady: boolean;
  /** Requests that wait for it now. */
  waiting: number;
  /** Set once somebody may ask for it again. */
  kept?: { readonly id: string; readonly about: string };
  /** Aborted when somebody asks for it, after nobody did for a while. */
  unasked?: AbortController;
}

export interface PageRequest {
  /** What an earlier answer has called the page, if one has. */
  readonly id: string | undefined;
  /** What the page is an answer to: it is given to nobody who asks for anything else. */
  readonly about: () => string;
  /** Whether it is waited for however long it takes. */
  readonly isAwaited: boolean;
  readonly signal: AbortSignal | undefined;
  readonly standAside: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

/**
 * Pages that take longer than clients wait for an answer. A request for one is answered before the page is there, which is
 * worked on meanwhile: whoever asks for it again by its id waits for the same page.
 *
 * One that is not known, after a restart or on another node, is begun anew under its id: so whoever is sent to and fro
 * between nodes comes to an end as well.
 */
export class LongPages<Made extends Making> {
  readonly #waitMs: number;
  readonly #kept = new Map<string, LongPage<Made>>();
  /** Of pages that were given up, until they have ended. */
  readonly #ending = new Set<Promise<unknown>>();

  /** @param waitMs milliseconds that a request waits for its page; with 0 it is told at once to ask for it again */
  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /**
   * Waits for a page for a while.
   *
   * @param make begins it; it is to end, and may fail, when its signal is aborted
   * @returns the page as its maker knows it, and, if it isn't ready, what to ask for it again by
   * @throws what the request's signal is aborted with, once it is
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
        // What another request has begun needs nothing of what this one has.
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

  /** Forgets pages that are ready and that nobody has fetched: content that they show was erased. They are made anew. */
  forgetReady(): void {
    for (const page of this.#kept.values()) if (page.isReady && page.waiting === 0) this.#end(page);
  }

  /** Gives up all pages that nobody waits for, and waits for their end. */
  async stop(): Promise<void> {
    for (const page of this.#kept.values()) if (page.waiting === 0) this.#end(page);
    await Promise.all(this.#ending);
  }

  #keep(page: LongPage<Made>, id: string, about: () => string): void {
    const former = this.#kept.get(id);
    // It is asked for something else now.
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

/** Waits until a page is ready, failed included, or until that takes too long. */
async function untilReady(page: LongPage<Making>, mostMs: number, signal: AbortSignal | undefined): Promise<void> {
  const over = new AbortController();
  const end = (): void => over.abort();
  const leave = (): void => {
    // A page that nobody can ask for again ends with its request, by what was aborted: it knows what that has cost.
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
