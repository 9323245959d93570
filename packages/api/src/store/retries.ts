import { wait } from '../wait.ts';

/** Milliseconds until what a fault has cut short is tried again; twice that after each further fault. */
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 60_000;
/** After so many milliseconds nobody can still be about to record what the vault was told to keep. */
export const ABANDONED_MS = 3_600_000;

interface Asked {
  readonly work: () => Promise<void>;
  readonly waitMs: number;
}

/**
 * Does in the background what a fault has left undone, again and again until it succeeds, without anybody asking and
 * without a restart. What a crash leaves of it is done by the next start.
 */
export class Retries {
  readonly #onFault: (error: unknown) => void;
  readonly #stopped = new AbortController();
  readonly #asked = new Map<string, Asked>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #open = new Set<string>();
  readonly #mayAppendLate: boolean;

  /** @param mayAppendLate whether the log's server may still record what it was sent before a fault */
  constructor(onFault: (error: unknown) => void, { mayAppendLate }: { readonly mayAppendLate: boolean }) {
    this.#onFault = onFault;
    this.#mayAppendLate = mayAppendLate;
  }

  /** Does it now, and in the background if that fails. Rejects never. */
  async begin(key: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#onFault(error);
      this.again(key, work);
    }
  }

  /**
   * Does work in a moment. Asked for again under the same key, it waits anew; asked for while it is under way, it is
   * done once more afterwards.
   *
   * @param waitMs how long to wait, in milliseconds
   */
  again(key: string, work: () => Promise<void>, waitMs = FIRST_RETRY_MS): void {
    this.#asked.set(key, { work, waitMs });
    if (!this.#running.has(key)) this.#running.set(key, this.#run(key));
  }

  /**
   * Makes something equal to what is on record, after a fault that leaves unknown whether the record has changed. Where a
   * server may record what was sent to it a while later, this is done once more when that can no longer be.
   *
   * @param isSafeNow false where something may have been sent that this would give up; where that may yet come on record,
   *   its key {@link isOpen} until the end
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

  /** True while something that was sent before a fault may yet come on record: what it needs must not be given up. */
  isOpen(key: string): boolean {
    return this.#open.has(key);
  }

  /** Told that what was sent before a fault can't come on record any more: something else has come in its place. */
  close(key: string): void {
    this.#open.delete(key);
  }

  /** Begins nothing more, and waits for what is under way. */
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
