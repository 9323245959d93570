import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { type ItemWritten, rowAfter, rowName } from '@epitaph/projections/items/row.ts';
import type {
  ContainerNumber,
  ItemRow,
  ItemsSnapshot,
  ReadModelChange,
  ReadModelSnapshot,
  ReadModelStore,
} from '@epitaph/projections/read-model-store.ts';

/** How far the store may lag behind. */
export interface Lag {
  /** The largest number of changes that may wait. */
  readonly changes: number;
  /** How long changes may wait, in milliseconds, if no reader needs them; undefined: until a reader does. */
  readonly forMs: number | undefined;
}

/** Written items that are not in the store yet. */
interface Waiting {
  readonly changes: ReadModelChange[];
  /** By name: the last write of each item, and the item's row if the waiting writes determine it. */
  readonly items: Map<string, { readonly change: ItemWritten; readonly row: ItemRow | undefined }>;
  /** The containers of the changes. */
  readonly containers: Set<ContainerNumber>;
  checkpoint: number | undefined;
  /** True if any of the changes was applied with `despiteLoss`. */
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
 * Delays the writing of items into a store, in order to write many in one transaction. Readers don't notice: an item is found among the
 * waiting changes, and all other reads wait until these are written. A crash loses only changes that the log has anyway: the stored
 * checkpoint is before them.
 *
 * All other changes are in the store when `apply` resolves, since the steps of the purge depend on each other.
 */
export class WriteBehindReadModelStore implements ReadModelStore {
  readonly #store: ReadModelStore;
  readonly #lag: Lag;
  #waiting = none();
  /** The changes that are being written into the store. */
  #moving = none();
  #order: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | undefined;
  /** Whether the last write into the store failed. Until one succeeds, `apply` waits for the store, and so reports its errors. */
  #failed = false;

  constructor(store: ReadModelStore, lag: Lag) {
    this.#store = store;
    this.#lag = lag;
  }

  /** Must be called for one batch after the other. */
  readonly apply: ReadModelStore['apply'] = async (changes, checkpoint, _after, despiteLoss = false) => {
    if (this.#mayWait(changes)) this.#take(changes, checkpoint, despiteLoss);
    else await this.#move(changes, checkpoint, despiteLoss);
  };

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
      items.set(name, { change, row: rowAfter(change, this.#lastWrite(name)?.row) });
    }
    this.#waiting.checkpoint = checkpoint;
    this.#waiting.despiteLoss ||= despiteLoss;
    if (this.#lag.forMs !== undefined) this.#timer ??= setTimeout(() => void this.#inTime(), this.#lag.forMs);
  }

  /** Writes the waiting changes, and ignores errors: a reader that needs the changes gets them by its own call. */
  #inTime(): Promise<void> {
    return this.#move().catch(() => {});
  }

  /** Writes all waiting changes into the store, followed by the given ones. */
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

  /** Reads once all changes applied so far are in the store. A read of one container only waits for the changes of that container. */
  #read<Result>(
    read: (store: ReadModelStore) => MaybePromise<Result>,
    container?: ContainerNumber,
  ): MaybePromise<Result> {
    const waits = ({ containers, checkpoint }: Waiting) =>
      container === undefined ? checkpoint !== undefined : containers.has(container);
    return waits(this.#waiting) || waits(this.#moving) ? this.#move().then(() => read(this.#store)) : read(this.#store);
  }

  /** The last write of an item by its name, if it is not in the store yet. */
  #lastWrite(name: string) {
    return this.#waiting.items.get(name) ?? this.#moving.items.get(name);
  }

  findItem(container: number, partitionKey: string, id: string): MaybePromise<ItemRow | undefined> {
    const name = rowName(container, partitionKey, id);
    const waiting = this.#lastWrite(name);
    if (waiting === undefined) return this.#store.findItem(container, partitionKey, id);
    if (waiting.row !== undefined) return waiting.row;
    const before = this.#store.findItem(container, partitionKey, id);
    const row = before instanceof Promise ? undefined : rowAfter(waiting.change, before);
    return row ?? this.#read((store) => store.findItem(container, partitionKey, id), container);
  }

  isUnknown(container: number, partitionKey: string, id: string): boolean {
    const name = rowName(container, partitionKey, id);
    return this.#lastWrite(name) === undefined && this.#store.isUnknown(container, partitionKey, id);
  }

  /** A waiting write is of a later life than all that have ended, since ends never wait. */
  lastLife(container: number, partitionKey: string, id: string): MaybePromise<number | undefined> {
    const name = rowName(container, partitionKey, id);
    return this.#lastWrite(name)?.change.life ?? this.#store.lastLife(container, partitionKey, id);
  }

  readonly checkpoint: ReadModelStore['checkpoint'] = () => this.#read((store) => store.checkpoint());
  readonly databases: ReadModelStore['databases'] = () => this.#read((store) => store.databases());
  readonly containers: ReadModelStore['containers'] = () => this.#read((store) => store.containers());
  readonly catalogEntries: ReadModelStore['catalogEntries'] = () => this.#read((store) => store.catalogEntries());
  readonly scanItems: ReadModelStore['scanItems'] = (...args) =>
    this.#read((store) => store.scanItems(...args), args[0]);
  readonly countVisible: ReadModelStore['countVisible'] = (...args) =>
    this.#read((store) => store.countVisible(...args), args[0]);
  readonly tsAt: ReadModelStore['tsAt'] = (...args) => this.#read((store) => store.tsAt(...args), args[0]);
  readonly allItems: ReadModelStore['allItems'] = (...args) => this.#read((store) => store.allItems(...args), args[0]);
  readonly dueOtherwise: ReadModelStore['dueOtherwise'] = (...args) =>
    this.#read((store) => store.dueOtherwise(...args), args[0]);
  readonly countItems: ReadModelStore['countItems'] = (...args) =>
    this.#read((store) => store.countItems(...args), args[0]);
  readonly containersWithContent: ReadModelStore['containersWithContent'] = () =>
    this.#read((store) => store.containersWithContent());
  readonly clearCopies: ReadModelStore['clearCopies'] = (...args) =>
    this.#read((store) => store.clearCopies(...args), args[0]);
  readonly overdueItems: ReadModelStore['overdueItems'] = (...args) =>
    this.#read((store) => store.overdueItems(...args), args[0]);
  readonly overdueStatistics: ReadModelStore['overdueStatistics'] = (...args) =>
    this.#read((store) => store.overdueStatistics(...args), args[0]);
  readonly nextDeadlines: ReadModelStore['nextDeadlines'] = (...args) =>
    this.#read((store) => store.nextDeadlines(...args), args[0]);
  readonly countByTimes: ReadModelStore['countByTimes'] = (...args) =>
    this.#read((store) => store.countByTimes(...args), args[0]);
  readonly itemsByTimes: ReadModelStore['itemsByTimes'] = (...args) =>
    this.#read((store) => store.itemsByTimes(...args), args[0]);
  readonly countOddTtls: ReadModelStore['countOddTtls'] = (...args) =>
    this.#read((store) => store.countOddTtls(...args), args[0]);
  readonly unrecordedEnds: ReadModelStore['unrecordedEnds'] = (...args) =>
    this.#read((store) => store.unrecordedEnds(...args), args[0]);
  readonly endedLives: ReadModelStore['endedLives'] = (...args) =>
    this.#read((store) => store.endedLives(...args), args[0]);
  readonly countEnded: ReadModelStore['countEnded'] = (...args) =>
    this.#read((store) => store.countEnded(...args), args[0]);
  readonly disappearances: ReadModelStore['disappearances'] = (...args) =>
    this.#read((store) => store.disappearances(...args), args[0]);
  readonly countErased: ReadModelStore['countErased'] = (...args) =>
    this.#read((store) => store.countErased(...args), args[0]);
  readonly erasures: ReadModelStore['erasures'] = (...args) => this.#read((store) => store.erasures(...args), args[0]);
  readonly countPurged: ReadModelStore['countPurged'] = () => this.#read((store) => store.countPurged());
  readonly openPurgeRuns: ReadModelStore['openPurgeRuns'] = () => this.#read((store) => store.openPurgeRuns());
  readonly purgeRuns: ReadModelStore['purgeRuns'] = (...args) => this.#read((store) => store.purgeRuns(...args));
  readonly logMarkBefore: ReadModelStore['logMarkBefore'] = (atMs) => this.#read((store) => store.logMarkBefore(atMs));
  readonly lastLogMark: ReadModelStore['lastLogMark'] = () => this.#read((store) => store.lastLogMark());

  async itemsSnapshot(container: ContainerNumber): Promise<ItemsSnapshot> {
    return this.#read((store) => store.itemsSnapshot(container), container);
  }

  async snapshot(): Promise<ReadModelSnapshot> {
    return this.#read((store) => store.snapshot());
  }

  /** Changes that can't be written any more are found in the log at the next start. */
  async close(): Promise<void> {
    await this.#inTime();
    clearTimeout(this.#timer);
    await this.#store.close();
  }
}
