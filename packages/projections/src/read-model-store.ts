import type { ClientEncryptionKeyState } from '@epitaph/core/client-encryption-key/state.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { TimeSpan } from '@epitaph/core/history/preview.ts';
import type { PurgeCause } from '@epitaph/core/item/events.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { KnownHold } from '@epitaph/core/retention/hold-register.ts';
import type { Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { ScriptState } from '@epitaph/core/script/state.ts';
import type { UserState } from '@epitaph/core/user/state.ts';
import type { ClearCondition, ClearCopy, ClearEntry } from './items/clear-values.ts';
import type { PurgeRunState } from './purge/state.ts';

/** A container's number in the read models: the position of its creation in the log. */
export type ContainerNumber = number;

/** Identifies one life of an item. */
export interface LifeName {
  readonly container: ContainerNumber;
  readonly partitionKey: string;
  readonly id: string;
  readonly life: number;
}

/** One current item. Facts only; the body stays in the log. */
export interface ItemRow extends LifeName {
  /** Position of the life's first event. */
  readonly birth: number;
  /** Position of the last write. */
  readonly position: number;
  /** `_ts`, seconds. */
  readonly ts: number;
  /** The item's own ttl in seconds, null for none. */
  readonly ttl: number | null;
  /** Id of the life's key in the vault. */
  readonly key: number;
}

/** A sealed body with everything that is needed to open it. Stores whose log is on another machine keep it beside the row. */
export interface SealedWrite {
  /** Position of the write in the log. */
  readonly position: number;
  readonly stream: string;
  readonly revision: number;
  readonly eventId: string;
  readonly body: Uint8Array;
}

/** A life that has ended and whose content is not erased yet. */
export interface EndedRow extends LifeName {
  readonly stream: string;
  /** Position of the event that ended the life. For a life that left with its partition key, position of its last write. */
  readonly position: number;
  readonly cause: 'expired' | 'deleted';
  readonly endedAtMs: number;
  readonly byPolicyStart: boolean;
}

/** A life that left with its partition key, and whose own stream does not say so yet. */
export type UnrecordedEnd = LifeName & Pick<EndedRow, 'position' | 'endedAtMs'>;

export interface DisappearanceRow extends LifeName {
  /**
   * As in {@link EndedRow}. For a life that left with its container, position of its first write. No two rows have the
   * same position.
   */
  readonly position: number;
  readonly cause: PurgeCause;
  /** When the item left: at its deadline, its delete, or its container's delete; in milliseconds. */
  readonly atMs: number;
  readonly recordedAtMs: number;
  readonly purgedAtMs: number | null;
  /**
   * Who deleted the item or its container, or requested its erasure. Null for an expired item: there the policy says
   * who set it.
   */
  readonly actor: string | null;
  /** Only for expired items. The same goes for the next two. */
  readonly rule: 'container-default' | 'item-ttl' | null;
  readonly ttl: number | null;
  readonly policyVersion: number | null;
}

/**
 * The parts of the catalog besides databases and containers. Each is a whole state, and there are few enough to hold
 * all of them in memory. The number is the position of the creation in the log.
 */
export type CatalogEntry =
  | { readonly kind: 'user'; readonly number: number; readonly state: UserState }
  | { readonly kind: 'client-encryption-key'; readonly number: number; readonly state: ClientEncryptionKeyState }
  | { readonly kind: 'script'; readonly number: number; readonly state: ScriptState };

/** True for an entry whose resource was deleted. Such entries are not kept. */
export const isGone = ({ state }: CatalogEntry): boolean => 'status' in state && state.status === 'deleted';

/** What one event changes in the read models. Computed only from events. */
export type ReadModelChange =
  | { readonly kind: 'database'; readonly number: number; readonly state: DatabaseState }
  | {
      readonly kind: 'container';
      readonly number: ContainerNumber;
      readonly state: ContainerState;
      /** The container's state in the store once the changes before this one are applied. Absent if that is not known. */
      readonly before?: ContainerState | undefined;
      /**
       * The holds that the change places or releases, in their state after it. If a hold is in it more than once, the
       * last one counts.
       */
      readonly holds?: readonly KnownHold[];
    }
  | CatalogEntry
  | (LifeName & {
      readonly kind: 'item-written';
      readonly revision: number;
      readonly position: number;
      readonly ts: number;
      readonly ttl: number | null;
      readonly key: number;
      readonly unreadableTtl: boolean;
      /**
       * Stands for an event of any type that can't be read, and is made by unreadable-items.ts. It changes nothing in a
       * life that has left already.
       */
      readonly isUnreadable?: true;
      /** Absent if the log left the body out. Then it is read from the log. */
      readonly sealed?: Omit<SealedWrite, 'position' | 'revision'>;
      /**
       * The values at the container's clear paths. They replace the item's earlier values, and are removed with the
       * item's row.
       */
      readonly clear?: readonly ClearEntry[];
    })
  /**
   * Every item of the partition key that is visible by the watermarks leaves at once. Its row becomes an unrecorded end
   * and a disappearance (`deleted`), both at the position of its last write.
   */
  | {
      readonly kind: 'partition-key-deleted';
      readonly container: ContainerNumber;
      readonly partitionKey: string;
      readonly atMs: number;
      readonly actor: string;
      readonly marks: Watermarks;
    }
  /**
   * For a life with an unrecorded end at the same position, this only makes the end a recorded one: time and way of the
   * end stay the same. If they differ, this change counts, because it was recorded by somebody who could see all of the
   * life. A projector that reads a log during a purge may have seen the life's first writes, but not those that were
   * truncated in the meantime.
   */
  | {
      readonly kind: 'item-ended';
      readonly row: EndedRow;
      readonly disappearance: DisappearanceRow;
    }
  | (LifeName & {
      readonly kind: 'item-purged';
      readonly purgedAtMs: number;
      /** For a life that ends with its purge: the disappearance that follows from this event. */
      readonly disappearance: DisappearanceRow;
    })
  | {
      readonly kind: 'purge-run';
      readonly stream: string;
      /** Position of the run's start. */
      readonly position: number;
      readonly state: PurgeRunState;
    }
  | { readonly kind: 'purge-run-completed'; readonly stream: string }
  | ({ readonly kind: 'log-mark' } & LogMark);

/** A position of the log, and a time. No event up to the position happened later than the time. */
export interface LogMark {
  readonly position: number;
  readonly atMs: number;
}

/** A change in the catalog. */
export type CatalogChange = Extract<ReadModelChange, { kind: 'database' | 'container' }> | CatalogEntry;

export interface OverdueStatistics {
  readonly count: number;
  /** Smallest `_ts` of the items without a ttl of their own, in seconds. Null if there are none. */
  readonly oldestTs: number | null;
  /** Smallest `_ts + ttl` of the items with one. Null if there are none. */
  readonly oldestDue: number | null;
}

/** A condition on the columns of a row. All given parts of it must be true. */
export interface RowCondition {
  /** `id` is one of these; from one to {@link MOST_IDS_SOUGHT} of them. */
  readonly ids?: readonly string[] | undefined;
  /** `_ts` is this or later, in seconds. */
  readonly minTs?: number | undefined;
  /** `_ts` is this or earlier, in seconds. */
  readonly maxTs?: number | undefined;
}

/**
 * Selects one of the items whose `_ts` is after `after` and up to `upTo`, in seconds: the one that has `behind` others before it, counted
 * from one end of that order.
 */
export interface PlaceInTime {
  readonly after: number;
  readonly upTo: number;
  readonly behind: number;
  readonly from: 'oldest' | 'newest';
}

/** How many ids a {@link RowCondition} may name. */
export const MOST_IDS_SOUGHT = 256;

export interface ItemScan {
  /** Only this logical partition. */
  readonly partitionKey?: string | undefined;
  /** Leading components of a hierarchical key: only partitions that begin with them; see core's partition-key/scope.ts. */
  readonly prefix?: string | undefined;
  /**
   * Wanted are items that satisfy all of these. A store may ignore a condition that would exclude too few items, so it
   * may return others, too.
   */
  readonly clear?: readonly ClearCondition[] | undefined;
  /**
   * Only items that satisfy this are returned. The store skips the others where they are stored, which costs a
   * twentieth of returning them. The values found by `clear` may be those of other items.
   */
  readonly where?: RowCondition | undefined;
  readonly afterBirth: number;
  readonly limit: number;
  readonly marks: Watermarks;
}

/** Looks up and scans the current items. */
export interface ItemsReader {
  /** The row of an item, whether or not it has expired. */
  findItem(container: ContainerNumber, partitionKey: string, id: string): MaybePromise<ItemRow | undefined>;
  /** Items that are visible by the watermarks, in order of birth. */
  scanItems(container: ContainerNumber, scan: ItemScan): MaybePromise<ItemRow[]>;
  countVisible(container: ContainerNumber, marks: Watermarks): MaybePromise<number>;
  /**
   * `_ts`, in seconds, of one item, chosen by its place in time among the items without a ttl of their own. Undefined
   * if there are too few.
   */
  tsAt(container: ContainerNumber, place: PlaceInTime): MaybePromise<number | undefined>;
  /** Items of a container in order of birth, visible or not; up to the last one by default. */
  allItems(container: ContainerNumber, afterBirth: number, limit: number, upToBirth?: number): MaybePromise<ItemRow[]>;
}

/** The items of a container at one moment. */
export interface ItemsSnapshot extends ItemsReader {
  close(): Promise<void>;
}

/**
 * The store that projections write and everybody else reads. Changes and checkpoint are written in one transaction.
 * Everything in it can be thrown away and built again from the log.
 */
export interface ReadModelStore extends ItemsReader {
  /**
   * The sealed bodies of the current writes of some items of a container, which are given by their births. Only those
   * that the store has; of large ones only the first few. Absent for a store that keeps none, because reading the log
   * is as fast.
   */
  readonly sealedBodies?: (container: ContainerNumber, births: readonly number[]) => Promise<SealedWrite[]>;

  /**
   * Applies changes in order and moves the checkpoint, all or nothing. Readers see the changes when this resolves. If
   * the store writes them to its files later and that fails, it rejects all later changes.
   *
   * @param after the checkpoint that the changes were computed for. A store that other processes may write, too,
   *   refuses changes that were made for another one; the caller must then look again. Not checked if not given
   * @param despiteLoss true if everything in the store was made from this log, and the log is read strictly. Then, if a
   *   write finds no item, or a life follows on no end, the log has lost the events before it, and the write is taken
   *   as it is. Otherwise it is refused, because rows may be missing here
   */
  apply(changes: readonly ReadModelChange[], checkpoint: number, after?: number, despiteLoss?: boolean): Promise<void>;
  checkpoint(): MaybePromise<number>;

  databases(): MaybePromise<{ readonly number: number; readonly state: DatabaseState }[]>;
  containers(): MaybePromise<readonly { readonly number: ContainerNumber; readonly state: ContainerState }[]>;
  /** The entries as they were last applied, in order of their numbers, without deleted ones. */
  catalogEntries(): MaybePromise<CatalogEntry[]>;

  /** True only if {@link lastLife} is undefined, as far as can be told without reading the stored rows. */
  isUnknown(container: ContainerNumber, partitionKey: string, id: string): boolean;
  /** The highest number of an item's lives that have content, ended or not. Undefined if there are none. */
  lastLife(container: ContainerNumber, partitionKey: string, id: string): MaybePromise<number | undefined>;
  /** Births, in a range, of items that the index of deadlines has at another time than their row says. For examinations. */
  dueOtherwise(container: ContainerNumber, afterBirth: number, upToBirth: number): MaybePromise<number[]>;
  countItems(container: ContainerNumber): MaybePromise<number>;
  /** Containers with content: with items, visible or not, or with ended lives, unrecorded ends included. */
  containersWithContent(): MaybePromise<ContainerNumber[]>;
  /** The values in clear of a container's items, in order of path, value and birth, after a place in that order. */
  clearCopies(container: ContainerNumber, after: ClearCopy | undefined, limit: number): MaybePromise<ClearCopy[]>;

  /**
   * Expired items whose expiry is not recorded. Those without a ttl of their own come first, and each group is in order
   * of time.
   */
  overdueItems(container: ContainerNumber, marks: Watermarks, limit: number): MaybePromise<ItemRow[]>;
  overdueStatistics(container: ContainerNumber, marks: Watermarks): MaybePromise<OverdueStatistics>;
  /** Smallest `_ts` of the items without a ttl and smallest `_ts + ttl` of those with one, in seconds, after the watermarks. */
  nextDeadlines(
    container: ContainerNumber,
    marks: Watermarks,
  ): MaybePromise<{ readonly ts: number | null; readonly due: number | null }>;

  /** For each span, how many items have their time in it, and the oldest `_ts` among them; null if there are none. */
  countByTimes(
    container: ContainerNumber,
    spans: readonly TimeSpan[],
  ): MaybePromise<{ readonly items: number; readonly oldestTs: number | null }[]>;
  /** Items whose times are in a span, in order of time. */
  itemsByTimes(container: ContainerNumber, span: TimeSpan, limit: number): MaybePromise<ItemRow[]>;
  /** How many items have an own ttl of -1, and how many a `ttl` that is not readable, which expire like those without a ttl. */
  countOddTtls(
    container: ContainerNumber,
    marks: Watermarks,
  ): MaybePromise<{ readonly never: number; readonly unreadable: number }>;

  /** Ends that are not recorded in the life's own stream yet, oldest write first. These don't count as ended lives yet. */
  unrecordedEnds(container: ContainerNumber, limit: number): MaybePromise<UnrecordedEnd[]>;
  /** Ended lives, oldest first, after a position in that order. Either those that a policy's start ended, or all others. */
  endedLives(
    container: ContainerNumber,
    scan: {
      readonly byPolicyStart: boolean;
      readonly endedAtOrBeforeMs: number;
      readonly after: { readonly endedAtMs: number; readonly position: number } | undefined;
      readonly limit: number;
    },
  ): MaybePromise<EndedRow[]>;
  /** Counts unrecorded ends, too. */
  countEnded(container: ContainerNumber, byPolicyStart: boolean, endedAtOrBeforeMs: number): MaybePromise<number>;

  /**
   * What is recorded of lives that have left. Lives that left with their container are still among its items until they
   * are erased.
   */
  disappearances(
    container: ContainerNumber,
    filter: {
      readonly fromMs: number;
      readonly toMs: number;
      readonly cause: PurgeCause | undefined;
      readonly after: { readonly atMs: number; readonly position: number } | undefined;
      readonly limit: number;
    },
  ): MaybePromise<DisappearanceRow[]>;
  /** Disappearances whose content was erased in a period, in order of the erasure, after a place in that order. */
  erasures(
    container: ContainerNumber,
    scan: {
      readonly fromMs: number;
      readonly toMs: number;
      readonly after: { readonly purgedAtMs: number; readonly position: number } | undefined;
      readonly limit: number;
    },
  ): MaybePromise<DisappearanceRow[]>;
  /** Number of disappearances whose content was erased, in a container or in one of its partition keys. */
  countErased(container: ContainerNumber, partitionKey?: string): MaybePromise<number>;
  countPurged(): MaybePromise<number>;
  openPurgeRuns(): MaybePromise<{ readonly stream: string; readonly state: PurgeRunState }[]>;
  /** Purge runs in the order of their starts in the log, completed or not, after a position. */
  purgeRuns(
    afterPosition: number,
    limit: number,
  ): MaybePromise<{ readonly stream: string; readonly position: number }[]>;

  /** Position of the last log mark before a time: no event up to there happened at that time or later. 0 if there is none. */
  logMarkBefore(atMs: number): MaybePromise<number>;
  lastLogMark(): MaybePromise<LogMark | undefined>;

  /**
   * A container's items as they are now. Later changes don't appear in it. The caller must close it, and within seconds:
   * meanwhile the store can't remove the data that it replaces.
   */
  itemsSnapshot(container: ContainerNumber): Promise<ItemsSnapshot>;
  /** The present contents, which don't change in the snapshot while the store is written. The caller closes it. */
  snapshot(): Promise<ReadModelSnapshot>;
  close(): Promise<void>;
}

/** A summary of a part of the read models. */
export interface PartDigest {
  /** Current items; 0 for the catalog. */
  readonly items: number;
  /** The same for equal contents, in whatever order they were built. */
  readonly digest: string;
}

/** The contents of a store at one moment, to be compared with those of another. */
export interface ReadModelSnapshot {
  /**
   * A digest of each container that has rows, and of the catalog. It covers everything but the checkpoint and the purge
   * runs. Takes time in proportion to the number of rows, and lets other work run in between.
   *
   * @throws the signal's reason when it is aborted
   */
  digests(signal?: AbortSignal): Promise<ReadonlyMap<'catalog' | ContainerNumber, PartDigest>>;
  close(): Promise<void>;
}

/** One version of the read models. */
export interface ReadModelVersion {
  readonly version: number;
  readonly store: ReadModelStore;
}

/** Makes and swaps whole versions of the read models, for rebuilds. */
export interface ReadModelVersions {
  /** True if other processes write the read models, too. */
  readonly shared: boolean;
  /** A better description of an error that was met while the read models were brought up to date, if there is one. */
  readonly explained?: (error: unknown) => unknown;
  /** The version in use. */
  readonly current: ReadModelVersion;
  /**
   * The version that a rebuild was building when its process ended, as found when the read models were opened.
   * Undefined if there was none.
   */
  readonly unfinished: { readonly version: number; readonly position: number } | undefined;
  /** The version that a rebuild left unfinished, to be continued. Undefined if there is none. */
  openUnfinished(): Promise<ReadModelVersion | undefined>;
  /** A new, empty version beside the one in use. */
  createNext(): Promise<ReadModelVersion>;
  /** Makes a version the one in use, durably and at once. The old one is closed and removed. */
  swapTo(version: number): Promise<void>;
  /** Throws away a version that is not in use. */
  discard(version: number): Promise<void>;
}
