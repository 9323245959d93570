/**
 * Waits some milliseconds, or until the signal is aborted. The timer does not keep the process alive.
 *
 * Only for polling progress and for limiting how long a stop or a wait may take. What happens to items must never depend on it.
 */
export function wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    timer.unref();
    signal?.addEventListener('abort', end, { once: true });
  });
}

/**
 * A time limit for a sequence of waits, one after the other: calls back if one of them takes too long. It does not keep the process alive.
 */
export class Deadline {
  readonly #missed: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(missed: () => void) {
    this.#missed = missed;
  }

  /** Starts the limit of the next wait, in place of the previous one. */
  within(milliseconds: number): void {
    this.met();
    this.#timer = setTimeout(this.#missed, milliseconds).unref();
  }

  met(): void {
    clearTimeout(this.#timer);
  }
}
