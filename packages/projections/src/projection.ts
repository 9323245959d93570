import type { Catalog } from './catalog/catalog.ts';

/** What keeps the read models up to date with the log, on this node or on another, as the rest of a node sees it. */
export interface Projection {
  /** Position up to which readers see everything. */
  readonly position: number;
  /** The catalog as of {@link position}. */
  readonly catalog: Catalog;
  /** The last fault, until it has been overcome. */
  readonly error: string | undefined;
  /** True when this node writes the read models, and may rebuild them. */
  readonly projects: boolean;

  /** Loads what was projected before, and resolves when everything that is in the log by now is projected, too. */
  start(): Promise<void>;
  /** Stops after the batch in progress. Waiters stay, for {@link resume}. */
  stop(): Promise<void>;
  /** Stops for good. With several nodes another one takes over. */
  close(): Promise<void>;
  /** Continues from the checkpoint of the read models that are in use now. */
  resume(): Promise<void>;
  /**
   * Resolves when readers see everything up to a position. Undefined if they see it already.
   *
   * @throws {ProjectionLag} after a few seconds without that
   */
  waitFor(position: number): Promise<void> | undefined;
}

/**
 * The projection did not reach a position in time. What was written is in the log, but readers don't see it yet. The
 * `cause` is the projection's fault, if there is one.
 */
export class ProjectionLag extends Error {
  override readonly name = 'ProjectionLag';
}

/** A waiter is told that the projection lags after this many sweeps. There is one per second. */
const PATIENCE_SWEEPS = 5;

interface Waiter {
  readonly position: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  sweepsLeft: number;
}

/** The callers that wait for positions. */
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

  /** Rejects the waiters without a time limit, because only an operator can correct the fault. */
  giveUp(error: Error): void {
    this.#waiters = this.#waiters.filter(({ sweepsLeft, reject }) => {
      if (sweepsLeft !== Number.POSITIVE_INFINITY) return true;
      reject(error);
      return false;
    });
  }

  /** Called once a second. Rejects those who have waited long enough. */
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
