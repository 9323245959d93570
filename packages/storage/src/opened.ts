type Closing = () => Promise<void> | void;

/**
 * What was opened so far of something that is opened in steps, to be closed in the reverse order. Each goes only after the
 * one before it has: a log that could not be closed is not put down as closed in order.
 */
export class Opened {
  readonly #closings: Closing[] = [];

  add(...closings: readonly Closing[]): void {
    this.#closings.push(...closings);
  }

  /** Closed again, nothing happens. */
  async close(): Promise<void> {
    for (const close of this.#closings.splice(0).reverse()) await close();
  }
}
