import { wait } from '../config/wait.ts';

/** Milliseconds until what a fault has cut short is tried again; twice that after each further fault. */
const FIRST_RETRY_MS = 250;
const LAST_RETRY_MS = 60_000;
/** After so many milliseconds nobody is about to put on record what the vault was told to keep. */
export const ABANDONED_MS = 3_600_000;

interface Asked {
  readonly work: () => Promise<void>;
  readonly waitMs: number;
}

/**
 * Does in the background what a fault has left to do, again and again until it succeeds: nobody has to ask, and no start is
 * needed. What a crash leaves of it is for the next start.
 */
export class Retries {
  readonly #onFault: (error: unknown) => void;
  readonly #stopped = new AbortController();
  readonly #asked = new Map<string, Asked>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #open = new Set<string>();

  constructor(onFault: (error: unknown) => void) {
    this.#onFault = onFault;
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
   * Does it in a moment. Asked for again under its key, it waits anew; while it is under way, it is done once more after.
   *
   * @param waitMs how long to wait, in milliseconds
   */
  again(key: string, work: () => Promise<void>, waitMs = FIRST_RETRY_MS): void {
    this.#asked.set(key, { work, waitMs });
    if (!this.#running.has(key)) this.#running.set(key, this.#run(key));
  }

  /**
   * Makes something equal to what is on record, of which a fault has left unknown whether it has changed: a server may put on record
   * a while later what was sent to it, so this is done again when that can't be any more.
   *
   * @param isSafeNow false where something may yet come on record that this would give up; until the end it {@link isOpen}
   */
  settle(key: string, work: () => Promise<void>, { isSafeNow }: { readonly isSafeNow: boolean }): void {
    if (isSafeNow) this.again(key, work);
    else this.#open.add(key);
    const inTheEnd = (): Promise<void> => {
      this.#open.delete(key);
      return work();
    };
    this.again(`${key}, in the end`, inTheEnd, ABANDONED_MS);
  }

  /** True while something may yet come on record that was sent before a fault: what it needs is not given up. */
  isOpen(key: string): boolean {
    return this.#open.has(key);
  }

  /** What was sent before a fault comes on record no more, for something else has come in its place. */
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
