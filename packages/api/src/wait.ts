/**
 * Waits some milliseconds, or until the signal is aborted. For looking at progress again, and for bounding a stop or a wait;
 * what happens to items never hangs on it. It does not keep the process alive.
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

/** For one wait after the other: what is done when one of them takes too long. It does not keep the process alive. */
export class Deadline {
  readonly #missed: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(missed: () => void) {
    this.#missed = missed;
  }

  /** Begins a wait, which ends the one before. */
  within(milliseconds: number): void {
    this.met();
    this.#timer = setTimeout(this.#missed, milliseconds).unref();
  }

  met(): void {
    clearTimeout(this.#timer);
  }
}
