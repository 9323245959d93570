import { endLost } from '@epitaph/core/item/read-life.ts';
import type { EventLog, LogListener } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { concatMap, defer, interval, Observable, retry, Subscription, timer } from './rxjs.ts';
import { Catalog } from './catalog/catalog.ts';
import { changesOf } from './changes.ts';
import { ClearCopies, type ClearSources } from './items/clear-copies.ts';
import { named } from './items/unreadable-items.ts';
import { followsOnLoss } from './items/follows-on-loss.ts';
import { LogMarks } from './log-marks.ts';
import { PositionWaiters, type Projection } from './projection.ts';
import type { ReadModelChange, ReadModelStore } from './read-model-store.ts';

/** How long a projector that met a fault waits before it reads on from its checkpoint. */
const RETRY_DELAY_MS = 1_000;

export interface ProjectorOptions extends ClearSources {
  readonly log: EventLog;
  /** The read models in use; asked again after each {@link Projector.resume}. */
  readonly store: () => ReadModelStore;
  /** Told of changes before they are applied, and when that failed. */
  readonly onApplying?: (changes: readonly ReadModelChange[]) => void;
  readonly onFailed?: () => void;
  /** Told of every change after readers can see it. */
  readonly onApplied?: (changes: readonly ReadModelChange[]) => void;
  /** Told that readers see more than that: what was applied before it began, or by a transaction whose answer was lost. */
  readonly onMissed?: () => void;
  /** Told of each event that can't be read: it costs its own item or container, and all others are gone on with. */
  readonly onUnreadable?: ((error: UnreadableEvent) => void) | undefined;
  /** Wraps the application of each batch of so many events, for whoever measures. */
  readonly around?: ((events: number, apply: () => Promise<void>) => Promise<void>) | undefined;
  /**
   * True where other nodes know of the progress by the checkpoint alone: it is moved on, too, past positions that
   * change nothing.
   */
  readonly recordsIdleProgress?: boolean;
  /** Told each second while a batch is being applied that takes as long as there are items of a partition key. */
  readonly onTakesLong?: () => void;
  /** Those who wait for positions; given where they are to go on waiting for another projector if this one stops. */
  readonly waiters?: PositionWaiters;
}

/** How often what is loaded may turn out to be of two moments. */
const LOAD_ATTEMPTS = 5;

/**
 * Everything of one moment: a batch of whoever projected before may be applied meanwhile. What that has changed in the
 * catalog comes in no batch that follows.
 */
async function loaded(
  store: ReadModelStore,
): Promise<{ readonly catalog: Catalog; readonly logMarks: LogMarks; readonly position: number }> {
  let position = await store.checkpoint();
  for (let attempt = 1; attempt <= LOAD_ATTEMPTS; attempt++) {
    const catalog = await Catalog.load(store);
    const logMarks = await LogMarks.load(store);
    const now = await store.checkpoint();
    if (now === position) return { catalog, logMarks, position };
    position = now;
  }
  throw new StorageUnavailable('somebody else writes to the read models');
}

/** A fault that may be gone the next time, without anybody's doing. */
const mayPass = (error: Error): boolean => error instanceof StorageUnavailable && !error.isForOperator;

interface Batch {
  readonly events: readonly RecordedEvent[];
  /** Where the read models stand when they are applied. */
  readonly position: number;
  readonly done: () => void;
}

/**
 * Keeps the read models up with the log: subscribes after the checkpoint, applies batch by batch, and after a
 * fault goes on from where it had come to. Nothing else writes the read models.
 */
export class Projector implements Projection {
  readonly projects = true;
  readonly #log: EventLog;
  readonly #store: () => ReadModelStore;
  readonly #onApplying: (changes: readonly ReadModelChange[]) => void;
  readonly #onFailed: () => void;
  readonly #onApplied: (changes: readonly ReadModelChange[]) => void;
  readonly #onMissed: () => void;
  readonly #onTakesLong: () => void;
  readonly #around: NonNullable<ProjectorOptions['around']>;
  #subscriptions: Subscription | undefined;
  #ended: Promise<void> = Promise.resolve();
  #applying: Promise<void> = Promise.resolve();
  #loading: Promise<void> = Promise.resolve();
  #position = 0;
  /** It is making all that the read models have, and has not come to the log's end yet: what comes after that is no loss. */
  #makesAnew = false;
  #catalog = new Catalog();
  #error: Error | undefined;
  /** A batch is being applied that takes as long as there are items of a partition key: nothing lags, however long that is. */
  #takesLong = false;
  readonly #recordsIdleProgress: boolean;
  readonly #waiters: PositionWaiters;
  readonly #clearCopies: ClearCopies;
  readonly #onUnreadable: NonNullable<ProjectorOptions['onUnreadable']>;
  /** Whether what is read now is without truncated events that the log still has. */
  #readsStrictly = false;
  /** What was applied last contradicted what the read models have. */
  #isContradicted = false;
  /** Whether the batch under way has events that can't be read. */
  #hasUnreadable = false;
  #logMarks = new LogMarks();
  /** See {@link changesOf}: those that have lost what stood behind the position which was begun at. */
  #lostEnds = new Set<string>();

  constructor(options: ProjectorOptions) {
    this.#recordsIdleProgress = options.recordsIdleProgress ?? false;
    this.#waiters = options.waiters ?? new PositionWaiters();
    this.#clearCopies = new ClearCopies(options);
    this.#log = options.log;
    this.#store = options.store;
    this.#onApplying = options.onApplying ?? (() => {});
    this.#onFailed = options.onFailed ?? (() => {});
    this.#onApplied = options.onApplied ?? (() => {});
    this.#onMissed = options.onMissed ?? (() => {});
    this.#onUnreadable = options.onUnreadable ?? (() => {});
    this.#onTakesLong = options.onTakesLong ?? (() => {});
    this.#around = options.around ?? ((_events, apply) => apply());
  }

  /** Position up to which readers see everything. */
  get position(): number {
    return this.#position;
  }

  /** The catalog as of {@link position}. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  /** What went wrong last, as long as it has not been overcome. */
  get error(): string | undefined {
    return this.#error?.message;
  }

  /**
   * Loads what was projected before, and resolves when everything that is in the log by now is projected, too.
   *
   * @throws what stands in the way, unless it passes by itself, like a server that is away
   */
  async start(): Promise<void> {
    try {
      await this.begin();
      const head = await this.#log.head();
      if (head > this.#position) await this.#waiters.wait(head, 'endless');
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** Goes on from the checkpoint of the read models that are in use now; where they can't be read, as soon as they can. */
  async resume(): Promise<void> {
    try {
      await this.begin();
    } catch (error) {
      this.#error = error as Error;
      this.#subscribe();
    }
  }

  /**
   * Goes on from the checkpoint, unless something stands in the way.
   *
   * @throws whatever that is
   */
  async begin(): Promise<void> {
    await this.#load();
    this.#subscribe();
  }

  /** What the read models say, and where they stand: all of it, or nothing. */
  #load(): Promise<void> {
    return (this.#loading = this.#loadAll());
  }

  async #loadAll(): Promise<void> {
    const { catalog, logMarks, position } = await loaded(this.#store());
    this.#catalog = catalog;
    this.#logMarks = logMarks;
    this.#makesAnew ||= position === 0;
    for await (const stream of this.#log.lostEnds?.(position) ?? []) {
      if (this.#lostEnds.has(stream)) continue;
      this.#lostEnds.add(stream);
      this.#onUnreadable(endLost(stream));
    }
    const isFurther = position > this.#position;
    // A standby that lags may have taken the place of their server: then it is less.
    this.#position = position;
    if (!isFurther) return;
    this.#waiters.reached(position);
    this.#onMissed();
  }

  #subscribe(): void {
    const stream = defer(() => this.#afterFault()).pipe(
      concatMap(() => this.#batches()),
      concatMap((batch) => (this.#applying = this.#apply(batch))),
      retry({ delay: (error: Error, attempts) => this.#faulted(error, attempts), resetOnSuccess: true }),
    );
    this.#subscriptions = new Subscription();
    const sweep = () => {
      if (this.#takesLong) this.#onTakesLong();
      else this.#waiters.sweep(this.#error);
    };
    this.#subscriptions.add(interval(1_000).subscribe(sweep));
    this.#subscriptions.add(stream.subscribe());
  }

  /** Stops after the batch under way. Waiters stay, for {@link resume}. */
  async stop(): Promise<void> {
    this.#subscriptions?.unsubscribe();
    // What comes of it later would be of before all that is projected until then.
    await this.#loading.catch(() => {});
    await this.#applying.catch(() => {});
    await this.#ended;
  }

  close(): Promise<void> {
    return this.stop();
  }

  /**
   * Resolves when readers see everything up to a position.
   *
   * @throws {ProjectionLag} after a few seconds in which that did not happen, not counting those of a delete by partition key
   */
  waitFor(position: number): Promise<void> | undefined {
    if (position <= this.#position) return undefined;
    return this.#waiters.wait(position);
  }

  /** The second attempt reads the log strictly, so that the first one's fault may pass. */
  #faulted(error: Error, attempts: number): Observable<unknown> {
    if (attempts > 1 && !mayPass(error)) this.#waiters.giveUp(error);
    return timer(RETRY_DELAY_MS);
  }

  /** What was being applied may be in the catalog, or in the read models: both are loaded anew. */
  async #afterFault(): Promise<void> {
    if (this.#error === undefined) return;
    // It may have been applied all the same: a connection can break between the commit and its answer.
    await this.#load();
  }

  #batches(): Observable<Batch> {
    return new Observable<Batch>((subscriber) => {
      // Applying a life comes to the same with all of its truncated events and with none, but not with some: if a
      // scavenge has left a later write without the first, that write finds no item, and the next attempt reads
      // strictly.
      this.#readsStrictly = this.#error !== undefined;
      const leniency = { mayBeTruncated: !this.#readsStrictly };
      let taken = () => {};
      const listener: LogListener = {
        onEvents: (events) =>
          new Promise<void>((done) => {
            taken = done;
            subscriber.next({ events, position: events.at(-1)!.position, done });
          }),
        onCaughtUp: (position) => {
          // Whatever it was, everything is applied now.
          this.#error = undefined;
          this.#makesAnew = false;
          this.#isContradicted = false;
          if (this.#recordsIdleProgress && position > this.#position) {
            subscriber.next({ events: [], position, done: () => {} });
          } else this.#reached(position);
        },
        onError: (error) => subscriber.error(error),
      };
      const subscription = this.#log.subscribe(this.#position, listener, leniency);
      return () => {
        this.#ended = subscription.unsubscribe();
        // A batch that still waits behind another is not applied any more, and the log waits for it.
        taken();
      };
    });
  }

  readonly #noteUnreadable = (error: UnreadableEvent): void => {
    this.#hasUnreadable = true;
    this.#onUnreadable(error);
  };

  async #apply({ events, position, done }: Batch): Promise<void> {
    this.#hasUnreadable = false;
    try {
      // What a scavenge has left of a life is no loss: a strict reading leaves it out.
      const onUnreadable = this.#readsStrictly ? this.#noteUnreadable : undefined;
      const despiteLoss =
        this.#readsStrictly && (this.#makesAnew || (this.#isContradicted && (await followsOnLoss(this.#log, events))));
      let made = changesOf(events, this.#catalog, onUnreadable, this.#lostEnds);
      if (this.#hasUnreadable) made = await named(this.#log, made, this.#catalog);
      made.push(...this.#logMarks.after(events));
      const changes = await this.#clearCopies.addTo(made, this.#catalog);
      this.#onApplying(changes);
      this.#takesLong = changes.some(({ kind }) => kind === 'partition-key-deleted');
      await this.#around(events.length, () => this.#store().apply(changes, position, this.#position, despiteLoss));
      this.#error = undefined;
      this.#onApplied(changes);
      this.#reached(position);
    } catch (error) {
      this.#error = error as Error;
      this.#isContradicted ||= !mayPass(this.#error);
      this.#onFailed();
      throw error;
    } finally {
      this.#takesLong = false;
      done();
    }
  }

  #reached(position: number): void {
    if (position <= this.#position) return;
    this.#position = position;
    this.#waiters.reached(position);
  }
}
