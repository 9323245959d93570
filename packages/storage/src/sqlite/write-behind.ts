import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { type ItemWritten, rowAfter, rowName } from '@epitaph/projections/items/row.ts';
import type {
  ContainerNumber,
  ItemRow,
  ReadModelChange,
  ReadModelSnapshot,
  ReadModelStore,
} from '@epitaph/projections/read-model-store.ts';

/** How far behind the store may be. */
export interface Lag {
  /** So many changes wait at most. */
  readonly changes: number;
  /** So long they wait at most, in milliseconds, where nobody asks for them; undefined: until somebody does. */
  readonly forMs: number | undefined;
}

/** Written items that are not in the store yet. */
interface Waiting {
  readonly changes: ReadModelChange[];
  /** The last write of each item, by its name, and its row where that follows from the writes that wait. */
  readonly items: Map<string, { readonly change: ItemWritten; readonly row: ItemRow | undefined }>;
  /** Their containers. */
  readonly containers: Set<ContainerNumber>;
  checkpoint: number | undefined;
  /** Of any of them, as it was applied. */
  despiteLoss: boolean;
}

const none = (): Waiting => ({
  changes: [],
  items: new Map(),
  containers: new Set(),
  checkpoint: undefined,
  despiteLoss: false,
});

/**
 * A store whose written items go into it some time after they were applied, many in one transaction. Nobody sees it: an
 * item is found among those that wait, and whatever else is read waits for them. A crash loses what the log has anyway,
 * as the checkpoint says.
 *
 * Anything but a written item is in the store when its application resolves: the purge's steps rely on each other.
 */
export class WriteBehindReadModelStore implements ReadModelStore {
  readonly #store: ReadModelStore;
  readonly #lag: Lag;
  #waiting = none();
  /** What is being put into the store. */
  #moving = none();
  #order: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  /** The store failed last: until it works again, whoever applies something is told. */
  #failed = false;

  constructor(store: ReadModelStore, lag: Lag) {
    this.#store = store;
    this.#lag = lag;
  }

  /** To be called for one batch after the other. */
  async apply(
    changes: readonly ReadModelChange[],
    checkpoint: number,
    _after?: number,
    despiteLoss = false,
  ): Promise<void> {
    if (this.#mayWait(changes)) this.#take(changes, checkpoint, despiteLoss);
    else await this.#move(changes, checkpoint, despiteLoss);
  }

  #mayWait(changes: readonly ReadModelChange[]): boolean {
    return (
      !this.#failed &&
      this.#waiting.changes.length + changes.length <= this.#lag.changes &&
      changes.every(({ kind }) => kind === 'item-written' || kind === 'log-mark')
    );
  }

  #take(changes: readonly ReadModelChange[], checkpoint: number, despiteLoss: boolean): void {
    const { items, containers } = this.#waiting;
    for (const change of changes) {
      this.#waiting.changes.push(change);
      if (change.kind !== 'item-written') continue;
      containers.add(change.container);
      const name = rowName(change.container, change.partitionKey, change.id);
      items.set(name, { change, row: rowAfter(change, (items.get(name) ?? this.#moving.items.get(name))?.row) });
    }
    this.#waiting.checkpoint = checkpoint;
    this.#waiting.despiteLoss ||= despiteLoss;
    if (this.#lag.forMs !== undefined) this.#timer ??= setTimeout(() => void this.#inTime(), this.#lag.forMs);
  }

  /** Whoever needs what waits finds out for himself that it could not be put into the store. */
  #inTime(): Promise<void> {
    return this.#move().catch(() => {});
  }

  /** Puts everything that waits into the store, and some changes behind it. */
  #move(changes: readonly ReadModelChange[] = [], checkpoint?: number, despiteLoss = false): Promise<void> {
    const moved = this.#order.then(async () => {
      const waiting = this.#waiting;
      const upTo = checkpoint ?? waiting.checkpoint;
      if (upTo === undefined) return;
      clearTimeout(this.#timer);
      this.#timer = undefined;
      this.#waiting = none();
      this.#moving = waiting;
      try {
        const mayLack = despiteLoss || waiting.despiteLoss;
        await this.#store.apply([...waiting.changes, ...changes], upTo, undefined, mayLack);
        this.#failed = false;
      } catch (error) {
        this.#failed = true;
        const since = this.#waiting;
        this.#waiting = {
          changes: [...waiting.changes, ...since.changes],
          items: new Map([...waiting.items, ...since.items]),
          containers: new Set([...waiting.containers, ...since.containers]),
          checkpoint: since.checkpoint ?? waiting.checkpoint,
          despiteLoss: since.despiteLoss || waiting.despiteLoss,
        };
        throw error;
      } finally {
        this.#moving = none();
      }
    });
    this.#order = moved.catch(() => {});
    return moved;
  }

  /** Reads when everything is in the store that was applied so far; what is read of one container waits only for its own. */
  #read<Result>(
    read: (store: ReadModelStore) => MaybePromise<Result>,
    container?: ContainerNumber,
  ): MaybePromise<Result> {
    const waits = ({ containers, checkpoint }: Waiting) =>
      container === undefined ? checkpoint !== undefined : containers.has(container);
    return waits(this.#waiting) || waits(this.#moving) ? this.#move().then(() => read(this.#store)) : read(this.#store);
  }

  findItem(container: number, partitionKey: string, id: string): MaybePromise<ItemRow | undefined> {
    const name = rowName(container, partitionKey, id);
    const waiting = this.#waiting.items.get(name) ?? this.#moving.items.get(name);
    if (waiting === undefined) return this.#store.findItem(container, partitionKey, id);
    if (waiting.row !== undefined) return waiting.row;
    const before = this.#store.findItem(container, partitionKey, id);
    const row = before instanceof Promise ? undefined : rowAfter(waiting.change, before);
    return row ?? this.#read((store) => store.findItem(container, partitionKey, id), container);
  }

  /** Ends never wait, and a life that does is a later one than all that have ended. */
  lastLife(container: number, partitionKey: string, id: string): MaybePromise<number | undefined> {
    const name = rowName(container, partitionKey, id);
    const waiting = this.#waiting.items.get(name) ?? this.#moving.items.get(name);
    return waiting?.change.life ?? this.#store.lastLife(container, partitionKey, id);
  }

  checkpoint(): MaybePromise<number> {
    return this.#read((store) => store.checkpoint());
  }

  databases(): ReturnType<ReadModelStore['databases']> {
    return this.#read((store) => store.databases());
  }

  containers(): ReturnType<ReadModelStore['containers']> {
    return this.#read((store) => store.containers());
  }

  catalogEntries(): ReturnType<ReadModelStore['catalogEntries']> {
    return this.#read((store) => store.catalogEntries());
  }

  scanItems(...args: Parameters<ReadModelStore['scanItems']>): ReturnType<ReadModelStore['scanItems']> {
    return this.#read((store) => store.scanItems(...args), args[0]);
  }

  countVisible(...args: Parameters<ReadModelStore['countVisible']>): ReturnType<ReadModelStore['countVisible']> {
    return this.#read((store) => store.countVisible(...args), args[0]);
  }

  tsAt(...args: Parameters<ReadModelStore['tsAt']>): ReturnType<ReadModelStore['tsAt']> {
    return this.#read((store) => store.tsAt(...args), args[0]);
  }

  allItems(...args: Parameters<ReadModelStore['allItems']>): ReturnType<ReadModelStore['allItems']> {
    return this.#read((store) => store.allItems(...args), args[0]);
  }

  dueOtherwise(...args: Parameters<ReadModelStore['dueOtherwise']>): ReturnType<ReadModelStore['dueOtherwise']> {
    return this.#read((store) => store.dueOtherwise(...args), args[0]);
  }

  countItems(container: number): MaybePromise<number> {
    return this.#read((store) => store.countItems(container), container);
  }

  containersWithContent(): ReturnType<ReadModelStore['containersWithContent']> {
    return this.#read((store) => store.containersWithContent());
  }

  clearCopies(...args: Parameters<ReadModelStore['clearCopies']>): ReturnType<ReadModelStore['clearCopies']> {
    return this.#read((store) => store.clearCopies(...args), args[0]);
  }

  overdueItems(...args: Parameters<ReadModelStore['overdueItems']>): ReturnType<ReadModelStore['overdueItems']> {
    return this.#read((store) => store.overdueItems(...args), args[0]);
  }

  overdueStatistics(
    ...args: Parameters<ReadModelStore['overdueStatistics']>
  ): ReturnType<ReadModelStore['overdueStatistics']> {
    return this.#read((store) => store.overdueStatistics(...args), args[0]);
  }

  nextDeadlines(...args: Parameters<ReadModelStore['nextDeadlines']>): ReturnType<ReadModelStore['nextDeadlines']> {
    return this.#read((store) => store.nextDeadlines(...args), args[0]);
  }

  countByTimes(...args: Parameters<ReadModelStore['countByTimes']>): ReturnType<ReadModelStore['countByTimes']> {
    return this.#read((store) => store.countByTimes(...args), args[0]);
  }

  itemsByTimes(...args: Parameters<ReadModelStore['itemsByTimes']>): ReturnType<ReadModelStore['itemsByTimes']> {
    return this.#read((store) => store.itemsByTimes(...args), args[0]);
  }

  countOddTtls(...args: Parameters<ReadModelStore['countOddTtls']>): ReturnType<ReadModelStore['countOddTtls']> {
    return this.#read((store) => store.countOddTtls(...args), args[0]);
  }

  unrecordedEnds(...args: Parameters<ReadModelStore['unrecordedEnds']>): ReturnType<ReadModelStore['unrecordedEnds']> {
    return this.#read((store) => store.unrecordedEnds(...args), args[0]);
  }

  endedLives(...args: Parameters<ReadModelStore['endedLives']>): ReturnType<ReadModelStore['endedLives']> {
    return this.#read((store) => store.endedLives(...args), args[0]);
  }

  countEnded(...args: Parameters<ReadModelStore['countEnded']>): ReturnType<ReadModelStore['countEnded']> {
    return this.#read((store) => store.countEnded(...args), args[0]);
  }

  disappearances(...args: Parameters<ReadModelStore['disappearances']>): ReturnType<ReadModelStore['disappearances']> {
    return this.#read((store) => store.disappearances(...args), args[0]);
  }

  countErased(...args: Parameters<ReadModelStore['countErased']>): ReturnType<ReadModelStore['countErased']> {
    return this.#read((store) => store.countErased(...args), args[0]);
  }

  erasures(...args: Parameters<ReadModelStore['erasures']>): ReturnType<ReadModelStore['erasures']> {
    return this.#read((store) => store.erasures(...args), args[0]);
  }

  countPurged(): MaybePromise<number> {
    return this.#read((store) => store.countPurged());
  }

  openPurgeRuns(): ReturnType<ReadModelStore['openPurgeRuns']> {
    return this.#read((store) => store.openPurgeRuns());
  }

  purgeRuns(...args: Parameters<ReadModelStore['purgeRuns']>): ReturnType<ReadModelStore['purgeRuns']> {
    return this.#read((store) => store.purgeRuns(...args));
  }

  logMarkBefore(atMs: number): MaybePromise<number> {
    return this.#read((store) => store.logMarkBefore(atMs));
  }

  lastLogMark(): ReturnType<ReadModelStore['lastLogMark']> {
    return this.#read((store) => store.lastLogMark());
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    return this.#read((store) => store.snapshot());
  }

  /** What can't be put into the store any more is found in the log by the next start. */
  async close(): Promise<void> {
    await this.#inTime();
    clearTimeout(this.#timer);
    await this.#store.close();
  }
}
