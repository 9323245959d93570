import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { concatMap, defer, interval, Observable, retry, Subscription } from 'rxjs';
import { Catalog } from './catalog/catalog.ts';
import { changesOf } from './changes.ts';
import type { ReadModelChange, ReadModelStore } from './read-model-store.ts';

/** How long a projector that met a fault waits before it reads on from its checkpoint. */
const RETRY_DELAY_MS = 1_000;
/** How many sweeps a waiter outlives before it is told that the projection lags; a sweep a second. */
const PATIENCE_SWEEPS = 5;

/** The projection did not reach a position in time. What was written is in the log, but readers don't see it yet. */
export class ProjectionLag extends Error {
  override readonly name = 'ProjectionLag';
}

export interface ProjectorOptions {
  readonly log: EventLog;
  /** The read models in use; asked again after each {@link Projector.resume}. */
  readonly store: () => ReadModelStore;
  /** Told of every change after readers can see it. */
  readonly onApplied?: (changes: readonly ReadModelChange[]) => void;
}

interface Waiter {
  readonly position: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
  sweepsLeft: number;
}

interface Batch {
  readonly events: readonly RecordedEvent[];
  readonly done: () => void;
}

/**
 * Keeps the read models up with the log: subscribes after the checkpoint, applies batch by batch, and after a
 * fault goes on from where it had come to. Nothing else writes the read models.
 */
export class Projector {
  readonly #log: EventLog;
  readonly #store: () => ReadModelStore;
  readonly #onApplied: (changes: readonly ReadModelChange[]) => void;
  #subscriptions: Subscription | undefined;
  #ended: Promise<void> = Promise.resolve();
  #applying: Promise<void> = Promise.resolve();
  #position = 0;
  #catalog = new Catalog();
  #error: string | undefined;
  #waiters: Waiter[] = [];

  constructor(options: ProjectorOptions) {
    this.#log = options.log;
    this.#store = options.store;
    this.#onApplied = options.onApplied ?? (() => {});
  }

  /** Position up to which readers see everything. */
  get position(): number {
    return this.#position;
  }

  /** The catalog as of {@link position}. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  /** What went wrong last, while it has not been overcome. */
  get error(): string | undefined {
    return this.#error;
  }

  /** Loads what was projected before and resolves when everything in the log by now is projected too. */
  async start(): Promise<void> {
    await this.resume();
    const head = await this.#log.head();
    if (head > this.#position) {
      await new Promise<void>((resolve, reject) =>
        this.#waiters.push({ position: head, resolve, reject, sweepsLeft: Number.POSITIVE_INFINITY }),
      );
    }
  }

  /** Goes on from the checkpoint of the read models that are in use now. */
  async resume(): Promise<void> {
    this.#catalog = await Catalog.load(this.#store());
    this.#position = await this.#store().checkpoint();
    const stream = defer(() => this.#batches()).pipe(
      concatMap((batch) => (this.#applying = this.#apply(batch))),
      retry({ delay: RETRY_DELAY_MS, resetOnSuccess: true }),
    );
    this.#subscriptions = new Subscription();
    this.#subscriptions.add(interval(1_000).subscribe(() => this.#sweep()));
    this.#subscriptions.add(stream.subscribe());
  }

  /** Stops after the batch under way. Waiters stay, for {@link resume}. */
  async stop(): Promise<void> {
    this.#subscriptions?.unsubscribe();
    await this.#applying.catch(() => {});
    await this.#ended;
  }

  /**
   * Resolves when readers see everything up to a position.
   *
   * @throws {ProjectionLag} after a few seconds in which that did not happen
   */
  waitFor(position: number): Promise<void> | undefined {
    if (position <= this.#position) return undefined;
    return new Promise((resolve, reject) =>
      this.#waiters.push({ position, resolve, reject, sweepsLeft: PATIENCE_SWEEPS }),
    );
  }

  #batches(): Observable<Batch> {
    return new Observable<Batch>((subscriber) => {
      const subscription = this.#log.subscribe(this.#position, {
        onEvents: (events) => new Promise<void>((done) => subscriber.next({ events, done })),
        onCaughtUp: (position) => this.#reached(position),
        onError: (error) => subscriber.error(error),
      });
      return () => {
        this.#ended = subscription.unsubscribe();
      };
    });
  }

  async #apply({ events, done }: Batch): Promise<void> {
    try {
      const changes = changesOf(events, this.#catalog);
      const position = events.at(-1)!.position;
      await this.#store().apply(changes, position);
      this.#error = undefined;
      this.#onApplied(changes);
      this.#reached(position);
    } catch (error) {
      this.#error = (error as Error).message;
      this.#catalog = await Catalog.load(this.#store());
      throw error;
    } finally {
      done();
    }
  }

  #sweep(): void {
    this.#waiters = this.#waiters.filter((waiter) => {
      waiter.sweepsLeft -= 1;
      if (waiter.sweepsLeft > 0) return true;
      waiter.reject(new ProjectionLag(this.#error ?? 'the projection is behind the log'));
      return false;
    });
  }

  #reached(position: number): void {
    if (position <= this.#position) return;
    this.#position = position;
    const waiting: Waiter[] = [];
    for (const waiter of this.#waiters) {
      if (waiter.position <= position) waiter.resolve();
      else waiting.push(waiter);
    }
    this.#waiters = waiting;
  }
}
