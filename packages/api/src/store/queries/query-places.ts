import { TURN_MS, Turns } from '@epitaph/core/turn.ts';
import { Places } from '@epitaph/core/places.ts';
import type { QueryPage, QueryRequest } from '../api/queries-api.ts';
import { inThisHeap } from '../heap.ts';
import { IsSlow } from '../slow-lane.ts';
import type { Run } from './query-run.ts';

/** A query that holds this many bytes in memory needs a place to go on. */
const MUCH_BYTES = inThisHeap(1024 * 1024);
/** How many queries that hold much memory may run at once. */
const HOLDING_AT_ONCE = 2;

/** How many queries that take long on a single document may run at once. */
const SLOW_AT_ONCE = 4;

/** The work that a query had done when it failed, by its error. */
export const workUntil = new WeakMap<Error, Pick<QueryPage, 'examined' | 'extraWork'>>();

/**
 * Thrown when a query comes to hold much memory and no place is free. It has changed nothing, so it can be run again
 * when a place is free.
 */
class NeedsPlace extends Error {
  override readonly name = 'NeedsPlace';
}

/**
 * Limits how many queries that hold much memory or take long on a single document run at once. All others run without a
 * limit.
 */
export class QueryPlaces {
  readonly #holding = new Places(HOLDING_AT_ONCE);
  readonly #slow = new Places(SLOW_AT_ONCE);
  readonly #turns = new Turns();

  /**
   * Runs a query to its end. A query that turns out to be slow, or comes to hold much memory while no place is free, is
   * run again from its beginning once it has a place.
   */
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
            if (error instanceof Error) workUntil.set(error, { examined: run.examined, extraWork: run.extraWork });
            throw error;
          }
          if (error instanceof IsSlow) {
            // The query gives back its other place while it waits, because the query that it waits for may be waiting
            // for that place.
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
   * Gives other work a turn, once a query has had its own for long.
   *
   * @throws NeedsPlace for a query that holds much memory and finds no place free
   */
  async giveWay(run: Run): Promise<void> {
    const { signal } = run.request;
    if (run.turnMs() >= TURN_MS) {
      await this.#turns.next();
      signal?.throwIfAborted();
      run.turnMs = run.clock();
    }
    if (run.hasPlace || run.heldBytes < MUCH_BYTES) return;
    run.hasPlace = this.#holding.takeIfFree();
    if (!run.hasPlace) throw new NeedsPlace();
  }
}
