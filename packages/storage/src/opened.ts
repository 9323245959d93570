type Closing = () => Promise<void> | void;

/**
 * Collects what was opened in several steps, to close it in the reverse order. If closing one fails, those opened before it are not
 * closed: a log that could not be closed must not be recorded as properly closed.
 */
export class Opened {
  readonly #closings: Closing[] = [];

  add(...closings: readonly Closing[]): void {
    this.#closings.push(...closings);
  }

  /** Closes everything. A second call does nothing. */
  async close(): Promise<void> {
    for (const close of this.#closings.splice(0).reverse()) await close();
  }
}
