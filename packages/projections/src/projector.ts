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

/** How long the projector waits after a fault before it continues from its checkpoint. */
const RETRY_DELAY_MS = 1_000;

export interface ProjectorOptions extends ClearSources {
  readonly log: EventLog;
  /** The read models in use. Called again after each {@link Projector.resume}. */
  readonly store: () => ReadModelStore;
  /** Called with changes before they are applied. The next one is called if that failed. */
  readonly onApplying?: (changes: readonly ReadModelChange[]) => void;
  readonly onFailed?: () => void;
  /** Called with every change once readers can see it. */
  readonly onApplied?: (changes: readonly ReadModelChange[]) => void;
  /**
   * Called when readers see changes that were not reported: those applied before this projector began, or by a
   * transaction whose answer was lost.
   */
  readonly onMissed?: () => void;
  /** Called for each event that can't be read. It affects only its own item or container; all other events are applied. */
  readonly onUnreadable?: ((error: UnreadableEvent) => void) | undefined;
  /** Wraps the application of each batch, with its number of events, for measurements. */
  readonly around?: ((events: number, apply: () => Promise<void>) => Promise<void>) | undefined;
  /**
   * True if other nodes know of the progress only by the checkpoint. It is then also moved past positions that change
   * nothing.
   */
  readonly recordsIdleProgress?: boolean;
  /** Called each second while a batch is being applied that takes time in proportion to the items of a partition key. */
  readonly onTakesLong?: () => void;
  /** The callers that wait for positions. Given if they must go on waiting for another projector when this one stops. */
  readonly waiters?: PositionWaiters;
}

/** How often the loaded parts may turn out to be from different moments. */
const LOAD_ATTEMPTS = 5;

/**
 * Loads everything as of one moment. Meanwhile a batch of the former projector may be applied, and its changes of the
 * catalog would be in none of the batches that follow.
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
  throw new StorageUnavailable('another program writes to the read models');
}

/** A fault that may be gone at the next attempt without anybody's action. */
const mayPass = (error: Error): boolean => error instanceof StorageUnavailable && !error.isForOperator;

interface Batch {
  readonly events: readonly RecordedEvent[];
  /** The checkpoint of the read models once the events are applied. */
  readonly position: number;
  readonly done: () => void;
}

/**
 * Keeps the read models up to date with the log: subscribes after the checkpoint, applies batch by batch, and after a
 * fault continues from where it was. Nothing else writes the read models.
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
  /**
   * It is building the read models from the log's beginning and has not reached its end. A missing event before one it
   * reads is a loss then.
   */
  #makesAnew = false;
  #catalog = new Catalog();
  #error: Error | undefined;
  /**
   * A batch is being applied that takes time in proportion to the items of a partition key. It is not reported as a
   * lag, however long it takes.
   */
  #takesLong = false;
  readonly #recordsIdleProgress: boolean;
  readonly #waiters: PositionWaiters;
  readonly #clearCopies: ClearCopies;
  readonly #onUnreadable: NonNullable<ProjectorOptions['onUnreadable']>;
  /** Whether the log is read now without truncated events that it still has. */
  #readsStrictly = false;
  /** The last batch contradicted what is in the read models. */
  #isContradicted = false;
  /** Whether the batch in progress has events that can't be read. */
  #hasUnreadable = false;
  #logMarks = new LogMarks();
  /** See {@link changesOf}: lives that have lost an event after the position at which reading began. */
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

  /** The last fault, until it has been overcome. */
  get error(): string | undefined {
    return this.#error?.message;
  }

  /**
   * Loads what was projected before, and resolves when everything that is in the log by now is projected, too.
   *
   * @throws the fault that prevents it, unless it passes by itself, such as an unreachable server
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

  /**
   * Continues from the checkpoint of the read models that are in use now. If these can't be read, it does so as soon as
   * they can.
   */
  async resume(): Promise<void> {
    try {
      await this.begin();
    } catch (error) {
      this.#error = error as Error;
      this.#subscribe();
    }
  }

  /**
   * Continues from the checkpoint.
   *
   * @throws the fault that prevents it
   */
  async begin(): Promise<void> {
    await this.#load();
    this.#subscribe();
  }

  /** Loads what is in the read models, and their checkpoint: all of it, or nothing. */
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
    // The position may be lower than before, if a standby that lags has taken the server's place.
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

  /** Stops after the batch in progress. Waiters stay, for {@link resume}. */
  async stop(): Promise<void> {
    this.#subscriptions?.unsubscribe();
    // If loading ended later, its result would be older than everything projected until then.
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
   * @throws {ProjectionLag} after a few seconds without that, not counting the time of a delete by partition key
   */
  waitFor(position: number): Promise<void> | undefined {
    if (position <= this.#position) return undefined;
    return this.#waiters.wait(position);
  }

  /** Waits before the next attempt. The second attempt reads the log strictly, so the fault of the first one may pass. */
  #faulted(error: Error, attempts: number): Observable<unknown> {
    if (attempts > 1 && !mayPass(error)) this.#waiters.giveUp(error);
    return timer(RETRY_DELAY_MS);
  }

  /** After a fault, parts of the batch may be in the catalog or in the read models, so both are loaded again. */
  async #afterFault(): Promise<void> {
    if (this.#error === undefined) return;
    // The batch may have been applied nevertheless: a connection can break between the commit and its answer.
    await this.#load();
  }

  #batches(): Observable<Batch> {
    return new Observable<Batch>((subscriber) => {
      // Applying a life has the same result with all of its truncated events and with none of them, but not with some.
      // If a scavenge has left a later write without the first one, that write finds no item. Then the next attempt
      // reads strictly.
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
          // Whatever the fault was, everything is applied now.
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
        // A batch that still waits behind another one is not applied any more, but the log waits for its promise.
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
      // The events of a life that a scavenge has left are no loss. Strict reading leaves them out.
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
