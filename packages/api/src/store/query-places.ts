import { TURN_MS, Turns } from '@epitaph/core/turn.ts';
import { inThisHeap } from './heap.ts';
import { Places } from './places.ts';
import type { Run } from './query-run.ts';
import { IsSlow } from './slow-lane.ts';
import type { QueryRequest } from './api/queries-api.ts';

/** Bytes from which on a query holds much. */
const MUCH_BYTES = inThisHeap(1024 * 1024);
/** Queries that hold much and run at once. */
const HOLDING_AT_ONCE = 2;

/** Queries at once that work longer on a document. */
const SLOW_AT_ONCE = 4;

/** What queries have worked, in the units of {@link QueryPage.extraWork}, that ended in an error: by that. */
export const workUntil = new WeakMap<Error, number>();

/** A query comes to hold much, and no place is free for it. It has changed nothing, and can be run anew when one is. */
class NeedsPlace extends Error {
  override readonly name = 'NeedsPlace';
}

/** Who may run at once, of queries that hold much or work long on a document; all others run as they come. */
export class QueryPlaces {
  readonly #holding = new Places(HOLDING_AT_ONCE);
  readonly #slow = new Places(SLOW_AT_ONCE);
  readonly #turns = new Turns();

  /** Runs a query; one that turns out slow, or comes to hold much where no place is free for that, is run anew in a place. */
  async toItsEnd<Result>(
    { signal, standAside }: QueryRequest,
    begin: (isSlow: boolean) => Promise<Run>,
    work: (run: Run) => Promise<Result>,
  ): Promise<{ readonly run: Run; readonly result: Result }> {
    const enter = async (places: Places): Promise<void> => {
      const place = () => places.take(signal);
      await (standAside === undefined ? place() : standAside(place));
    };
    let isSlow = false;
    let hasPlace = false;
    try {
      for (;;) {
        const run = await begin(isSlow);
        run.hasPlace = hasPlace;
        try {
          return { run, result: await work(run) };
        } catch (error) {
          if (!(error instanceof IsSlow) && !(error instanceof NeedsPlace)) {
            if (error instanceof Error) workUntil.set(error, run.extraWork);
            throw error;
          }
          if (error instanceof IsSlow) {
            // Who waits holds no place that another, who has this one, may wait for.
            if (run.hasPlace) this.#holding.giveBack();
            run.hasPlace = false;
            await enter(this.#slow);
            isSlow = true;
          } else {
            await enter(this.#holding);
            run.hasPlace = true;
          }
        } finally {
          hasPlace = run.hasPlace;
        }
      }
    } finally {
      if (hasPlace) this.#holding.giveBack();
      if (isSlow) this.#slow.giveBack();
    }
  }

  /**
   * Lets others have their turn, if a query had its own for long.
   *
   * @throws NeedsPlace for one that holds much and has no place for that
   */
  async giveWay(run: Run): Promise<void> {
    const { signal } = run.request;
    if (run.turnMs() >= TURN_MS) {
      await this.#turns.next();
      signal?.throwIfAborted();
      run.turnMs = run.clock();
    }
    if (run.hasPlace || run.memory.heldBytes < MUCH_BYTES) return;
    run.hasPlace = this.#holding.takeIfFree();
    if (!run.hasPlace) throw new NeedsPlace();
  }
}
