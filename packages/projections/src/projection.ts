import type { Catalog } from './catalog/catalog.ts';

/** What keeps the read models up with the log, as the rest of a node sees it; on this node or on another. */
export interface Projection {
  /** Position up to which readers see everything. */
  readonly position: number;
  /** The catalog as of {@link position}. */
  readonly catalog: Catalog;
  /** What went wrong last, while it has not been overcome. */
  readonly error: string | undefined;
  /** True when this node writes the read models, and may rebuild them. */
  readonly projects: boolean;

  /** Loads what was projected before and resolves when everything in the log by now is projected too. */
  start(): Promise<void>;
  /** Stops after the batch under way. Waiters stay, for {@link resume}. */
  stop(): Promise<void>;
  /** Stops for good; on several nodes another one goes on. */
  close(): Promise<void>;
  /** Goes on from the checkpoint of the read models that are in use now. */
  resume(): Promise<void>;
  /**
   * Resolves when readers see everything up to a position; undefined when they do already.
   *
   * @throws {ProjectionLag} after a few seconds in which that did not happen
   */
  waitFor(position: number): Promise<void> | undefined;
}

/**
 * The projection did not reach a position in time. What was written is in the log, but readers don't see it yet. Its
 * cause is what the projection failed with, if it did.
 */
export class ProjectionLag extends Error {
  override readonly name = 'ProjectionLag';
}

/** How many sweeps a waiter outlives before it is told that the projection lags; a sweep a second. */
const PATIENCE_SWEEPS = 5;

interface Waiter {
  readonly position: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  sweepsLeft: number;
}

/** Those who wait for positions. */
export class PositionWaiters {
  #waiters: Waiter[] = [];

  wait(position: number, patience: 'some' | 'endless' = 'some'): Promise<void> {
    const sweepsLeft = patience === 'some' ? PATIENCE_SWEEPS : Number.POSITIVE_INFINITY;
    return new Promise((resolve, reject) => this.#waiters.push({ position, resolve, reject, sweepsLeft }));
  }

  reached(position: number): void {
    const waiting: Waiter[] = [];
    for (const waiter of this.#waiters) {
      if (waiter.position <= position) waiter.resolve();
      else waiting.push(waiter);
    }
    this.#waiters = waiting;
  }

  /** Ends the wait of those who have no end to it: only an operator can put right what is in the way. */
  giveUp(error: Error): void {
    this.#waiters = this.#waiters.filter(({ sweepsLeft, reject }) => {
      if (sweepsLeft !== Number.POSITIVE_INFINITY) return true;
      reject(error);
      return false;
    });
  }

  /** Called once a second; tells those who have waited long enough. */
  sweep(cause: unknown): void {
    this.#waiters = this.#waiters.filter((waiter) => {
      waiter.sweepsLeft -= 1;
      if (waiter.sweepsLeft > 0) return true;
      const reason = cause instanceof Error ? cause.message : 'the projection is behind the log';
      waiter.reject(new ProjectionLag(reason, { cause }));
      return false;
    });
  }
}
