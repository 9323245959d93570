import { wait } from '../wait.ts';

/** Milliseconds until work that a fault has cut short is tried again, doubled after each further fault. */
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 60_000;
/** Milliseconds after which no process can still be about to record a hold or floor that it gave to the vault. */
export const ABANDONED_MS = 3_600_000;

interface Asked {
  readonly work: () => Promise<void>;
  readonly waitMs: number;
}

/**
 * Repeats in the background what a fault has left undone, until it succeeds, without a request and without a restart.
 * What a crash leaves undone is done by the next start.
 */
export class Retries {
  readonly #onFault: (error: unknown) => void;
  readonly #stopped = new AbortController();
  readonly #asked = new Map<string, Asked>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #open = new Set<string>();
  readonly #mayAppendLate: boolean;

  /**
   * @param mayAppendLate whether the log's server may still append what it was sent before a fault
   */
  constructor(onFault: (error: unknown) => void, { mayAppendLate }: { readonly mayAppendLate: boolean }) {
    this.#onFault = onFault;
    this.#mayAppendLate = mayAppendLate;
  }

  /** Does the work now, and in the background if that fails. Never rejects. */
  async begin(key: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#onFault(error);
      this.again(key, work);
    }
  }

  /**
   * Does work in a moment. If it is asked for again under the same key, the wait begins again. If it is asked for while
   * it is under way, it is done once more afterwards.
   *
   * @param waitMs how long to wait, in milliseconds
   */
  again(key: string, work: () => Promise<void>, waitMs = FIRST_RETRY_MS): void {
    this.#asked.set(key, { work, waitMs });
    if (!this.#running.has(key)) this.#running.set(key, this.#run(key));
  }

  /**
   * Makes something agree with the record after a fault that leaves unknown whether the record has changed. If a server
   * may record late what was sent to it, this is done once more when that is no longer possible.
   *
   * @param isSafeNow false when something may have been sent that this would give up. While that may still be recorded,
   *   its key {@link isOpen}
   */
  settle(key: string, work: () => Promise<void>, { isSafeNow }: { readonly isSafeNow: boolean }): void {
    if (!this.#mayAppendLate) return this.again(key, work);
    if (isSafeNow) this.again(key, work);
    else this.#open.add(key);
    const inTheEnd = (): Promise<void> => {
      this.#open.delete(key);
      return work();
    };
    this.again(`${key}, in the end`, inTheEnd, ABANDONED_MS);
  }

  /**
   * True while something that was sent before a fault may still be recorded, so that what it needs must not be given
   * up.
   */
  isOpen(key: string): boolean {
    return this.#open.has(key);
  }

  /**
   * Must be called when what was sent before a fault can't be recorded any more, because something else has taken its
   * place.
   */
  close(key: string): void {
    this.#open.delete(key);
  }

  /** Begins nothing more, and waits for the work under way. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#running.values());
  }

  async #run(key: string): Promise<void> {
    const { signal } = this.#stopped;
    let retryMs = FIRST_RETRY_MS;
    for (let asked = this.#asked.get(key); asked !== undefined; asked = this.#asked.get(key)) {
      await wait(asked.waitMs, signal);
      if (signal.aborted) break;
      if (this.#asked.get(key) !== asked) continue;
      this.#asked.delete(key);
      try {
        await asked.work();
      } catch (error) {
        this.#onFault(error);
        if (!this.#asked.has(key)) this.#asked.set(key, { ...asked, waitMs: retryMs });
        retryMs = Math.min(retryMs * 2, LAST_RETRY_MS);
      }
    }
    this.#running.delete(key);
  }
}
