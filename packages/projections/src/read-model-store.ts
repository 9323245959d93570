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

/** Which life of which item. */
export interface LifeName {
  readonly container: ContainerNumber;
  readonly partitionKey: string;
  readonly id: string;
  readonly life: number;
}

/** One current item: facts only, the body stays in the log. */
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

/** A sealed body with what it takes to open it, kept beside a row by stores whose log is far away. */
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
  /** Position of the event that ended it; of the last write, for a life that left with its partition key. */
  readonly position: number;
  readonly cause: 'expired' | 'deleted';
  readonly endedAtMs: number;
  readonly byPolicyStart: boolean;
}

/** A life that left with its partition key, which its own stream does not say yet. */
export type UnrecordedEnd = LifeName & Pick<EndedRow, 'position' | 'endedAtMs'>;

export interface DisappearanceRow extends LifeName {
  /** As of {@link EndedRow}; of the first write, for a life that left with its container. No two rows have the same. */
  readonly position: number;
  readonly cause: PurgeCause;
  /** When it left: the deadline, the delete, the container's delete; milliseconds. */
  readonly atMs: number;
  readonly recordedAtMs: number;
  readonly purgedAtMs: number | null;
  /** Who deleted it, or its container, or had it erased; null for what expired, of which the policy says who set it. */
  readonly actor: string | null;
  /** Only for expired ones, as what follows. */
  readonly rule: 'container-default' | 'item-ttl' | null;
  readonly ttl: number | null;
  readonly policyVersion: number | null;
}

/**
 * What databases have besides containers, and containers besides items: whole states, few enough to be held in memory. The
 * number is the position of the creation in the log.
 */
export type CatalogEntry =
  | { readonly kind: 'user'; readonly number: number; readonly state: UserState }
  | { readonly kind: 'client-encryption-key'; readonly number: number; readonly state: ClientEncryptionKeyState }
  | { readonly kind: 'script'; readonly number: number; readonly state: ScriptState };

/** True for an entry whose resource is gone: it is no longer kept. */
export const isGone = ({ state }: CatalogEntry): boolean => 'status' in state && state.status === 'deleted';

/** What one event changes in the read models. Computed from events alone. */
export type ReadModelChange =
  | { readonly kind: 'database'; readonly number: number; readonly state: DatabaseState }
  | {
      readonly kind: 'container';
      readonly number: ContainerNumber;
      readonly state: ContainerState;
      /** What the store has of it, when the changes before this are applied; absent when that is not known. */
      readonly before?: ContainerState | undefined;
      /** The holds that it places or releases, as they are then; the last of one counts. */
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
       * It stands for an event that can't be read, of whatever type: nothing is changed by it in a life that has left already. As
       * unreadable-items.ts makes it.
       */
      readonly isUnreadable?: true;
      /** Absent where the log left it out; then it is read from there. */
      readonly sealed?: Omit<SealedWrite, 'position' | 'revision'>;
      /**
       * What the container's clear paths copy. It takes the place of what the item had of that before, and goes with
       * the item's row.
       */
      readonly clear?: readonly ClearEntry[];
    })
  /**
   * Every item of the partition key that the watermarks leave visible leaves at once: its row becomes an unrecorded
   * end and a disappearance (`deleted`), both at the position of its last write.
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
   * For a life with an unrecorded end at the position that this says, it only makes the end a recorded one: when and how
   * it left stays as it was. Where they differ this holds, for it was recorded with all of the life in sight; who projects
   * a log beside a purge may have seen the life's first writes, and not those that were truncated meanwhile.
   */
  | {
      readonly kind: 'item-ended';
      readonly row: EndedRow;
      readonly disappearance: DisappearanceRow;
    }
  | (LifeName & {
      readonly kind: 'item-purged';
      readonly purgedAtMs: number;
      /** For a life that ends by its purge: the disappearance that this event states. */
      readonly disappearance: DisappearanceRow;
    })
  | {
      readonly kind: 'purge-run';
      readonly stream: string;
      /** Of the run's start. */
      readonly position: number;
      readonly state: PurgeRunState;
    }
  | { readonly kind: 'purge-run-completed'; readonly stream: string }
  | ({ readonly kind: 'log-mark' } & LogMark);

/** A position of the log, and a time after which nothing up to there happened. */
export interface LogMark {
  readonly position: number;
  readonly atMs: number;
}

/** A change of what the catalog holds. */
export type CatalogChange = Extract<ReadModelChange, { kind: 'database' | 'container' }> | CatalogEntry;

export interface OverdueStatistics {
  readonly count: number;
  /** Smallest `_ts` of those without a ttl, in seconds; null for none. */
  readonly oldestTs: number | null;
  /** Smallest `_ts + ttl` of those with one. */
  readonly oldestDue: number | null;
}

/** What a row's own columns have to say; all of it holds together. */
export interface RowCondition {
  /** `id` is one of these: from one to {@link MOST_IDS_SOUGHT}. */
  readonly ids?: readonly string[] | undefined;
  /** Seconds; `_ts` is that or later. */
  readonly minTs?: number | undefined;
  /** Seconds; `_ts` is that or earlier. */
  readonly maxTs?: number | undefined;
}

/** Of the items whose `_ts` is after one time and not after another, in seconds: the one behind so many, from an end on. */
export interface PlaceInTime {
  readonly after: number;
  readonly upTo: number;
  readonly behind: number;
  readonly from: 'oldest' | 'newest';
}

/** How many ids a {@link RowCondition} may name. */
export const MOST_IDS_SOUGHT = 256;

export interface ItemScan {
  /** One logical partition. */
  readonly partitionKey?: string | undefined;
  /** Leading components of a hierarchical key: all partitions that begin with them; see core's partition-key/scope.ts. */
  readonly prefix?: string | undefined;
  /**
   * All of these hold for the items that are wanted. What narrows too little may be left out, so that others are
   * found besides.
   */
  readonly clear?: readonly ClearCondition[] | undefined;
  /**
   * Only items of which this holds are given: the others are passed over where they lie, which takes a twentieth of
   * giving them. What is found by `clear` may be of others.
   */
  readonly where?: RowCondition | undefined;
  readonly afterBirth: number;
  readonly limit: number;
  readonly marks: Watermarks;
}

/**
 * Where the projections write and everybody reads. Changes and checkpoint are one transaction; what an adapter
 * holds can be thrown away and built again from the log.
 */
export interface ReadModelStore {
  /**
   * The sealed bodies of the current writes of some items of a container, by their birth, as far as this store has them; of large ones
   * the first few. Absent for a store that keeps none, because the log is as near as it is itself.
   */
  readonly sealedBodies?: (container: ContainerNumber, births: readonly number[]) => Promise<SealedWrite[]>;

  /**
   * Applies changes in order and moves the checkpoint, all or nothing. Readers see them when this resolves; a store that
   * writes them to its files later fails them from then on, if it can't.
   *
   * @param after where the writer knows the store to stand. One that others may write as well takes nothing that was made
   *   for another place, and then the writer must look again; not given, it is not asked.
   * @param despiteLoss true where all that the store has was made of this log, which is read strictly: a write that finds no item, or a life that follows on
   *   no end, is then of what the log has lost, and is taken as it is. Otherwise it is refused, for rows may be missing here.
   */
  apply(changes: readonly ReadModelChange[], checkpoint: number, after?: number, despiteLoss?: boolean): Promise<void>;
  checkpoint(): MaybePromise<number>;

  databases(): MaybePromise<{ readonly number: number; readonly state: DatabaseState }[]>;
  containers(): MaybePromise<readonly { readonly number: ContainerNumber; readonly state: ContainerState }[]>;
  /** Entries as they were last applied, in order of their numbers, without those that are gone. */
  catalogEntries(): MaybePromise<CatalogEntry[]>;

  /** The row of an item, whether or not it has expired by now. */
  findItem(container: ContainerNumber, partitionKey: string, id: string): MaybePromise<ItemRow | undefined>;
  /** True only where {@link lastLife} is undefined, as far as that can be told without a look at what is stored. */
  isUnknown(container: ContainerNumber, partitionKey: string, id: string): boolean;
  /** The highest number of an item's lives of which there is content, ended or not; undefined for none. */
  lastLife(container: ContainerNumber, partitionKey: string, id: string): MaybePromise<number | undefined>;
  /** Items that the watermarks leave visible, in order of birth. */
  scanItems(container: ContainerNumber, scan: ItemScan): MaybePromise<ItemRow[]>;
  countVisible(container: ContainerNumber, marks: Watermarks): MaybePromise<number>;
  /**
   * `_ts`, in seconds, of one of the items without a ttl of their own, whose order by time it goes by; undefined where there
   * are not so many.
   */
  tsAt(container: ContainerNumber, place: PlaceInTime): MaybePromise<number | undefined>;
  /** Items of a container in order of birth, visible or not; up to the last by default. */
  allItems(container: ContainerNumber, afterBirth: number, limit: number, upToBirth?: number): MaybePromise<ItemRow[]>;
  /** The births, within a part of those, of items that are found as due at another time than their row says; for examinations. */
  dueOtherwise(container: ContainerNumber, afterBirth: number, upToBirth: number): MaybePromise<number[]>;
  countItems(container: ContainerNumber): MaybePromise<number>;
  /** Containers that have items, visible or not, or ended lives, unrecorded ends included: what there is content of. */
  containersWithContent(): MaybePromise<ContainerNumber[]>;
  /** What is in clear of a container's items: by path, value and birth, after a place in that order. */
  clearCopies(container: ContainerNumber, after: ClearCopy | undefined, limit: number): MaybePromise<ClearCopy[]>;

  /** Expired items whose expiry is not recorded; those without a ttl of their own first, oldest first. */
  overdueItems(container: ContainerNumber, marks: Watermarks, limit: number): MaybePromise<ItemRow[]>;
  overdueStatistics(container: ContainerNumber, marks: Watermarks): MaybePromise<OverdueStatistics>;
  /** Smallest `_ts` of the items without a ttl and smallest `_ts + ttl` of those with one, in seconds, beyond the watermarks. */
  nextDeadlines(
    container: ContainerNumber,
    marks: Watermarks,
  ): MaybePromise<{ readonly ts: number | null; readonly due: number | null }>;

  /** How many items' times lie in each span, and the oldest `_ts` among them; null for none. */
  countByTimes(
    container: ContainerNumber,
    spans: readonly TimeSpan[],
  ): MaybePromise<{ readonly items: number; readonly oldestTs: number | null }[]>;
  /** Items whose times lie in a span, those whose time comes first first. */
  itemsByTimes(container: ContainerNumber, span: TimeSpan, limit: number): MaybePromise<ItemRow[]>;
  /** Items whose own ttl is -1, and items with a `ttl` that is none, which expire as those without. */
  countOddTtls(
    container: ContainerNumber,
    marks: Watermarks,
  ): MaybePromise<{ readonly never: number; readonly unreadable: number }>;

  /** Ends that are not on record in the life's own stream, oldest write first. They are no ended lives yet. */
  unrecordedEnds(container: ContainerNumber, limit: number): MaybePromise<UnrecordedEnd[]>;
  /** Ended lives, those that a policy's start ended apart from the others; oldest first, after a position in that order. */
  endedLives(
    container: ContainerNumber,
    scan: {
      readonly byPolicyStart: boolean;
      readonly endedAtOrBeforeMs: number;
      readonly after: { readonly endedAtMs: number; readonly position: number } | undefined;
      readonly limit: number;
    },
  ): MaybePromise<EndedRow[]>;
  /** Unrecorded ends included. */
  countEnded(container: ContainerNumber, byPolicyStart: boolean, endedAtOrBeforeMs: number): MaybePromise<number>;

  /** What is on record of lives: not yet those that left with their container, which are among its items till they are erased. */
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
  /** Disappearances whose content was erased in a period, in order of that time, after a place in that order. */
  erasures(
    container: ContainerNumber,
    scan: {
      readonly fromMs: number;
      readonly toMs: number;
      readonly after: { readonly purgedAtMs: number; readonly position: number } | undefined;
      readonly limit: number;
    },
  ): MaybePromise<DisappearanceRow[]>;
  /** Disappearances whose content was erased: all of a container, or those of a partition key. */
  countErased(container: ContainerNumber, partitionKey?: string): MaybePromise<number>;
  countPurged(): MaybePromise<number>;
  openPurgeRuns(): MaybePromise<{ readonly stream: string; readonly state: PurgeRunState }[]>;
  /** Runs in the order of their starts in the log, completed or not, after a position. */
  purgeRuns(
    afterPosition: number,
    limit: number,
  ): MaybePromise<{ readonly stream: string; readonly position: number }[]>;

  /** Position of the last mark of the log before a time: nothing up to there happened at that time or later. 0 for none. */
  logMarkBefore(atMs: number): MaybePromise<number>;
  lastLogMark(): MaybePromise<LogMark | undefined>;

  /** Its contents as they are now, which stay so while it is written on. To be closed. */
  snapshot(): Promise<ReadModelSnapshot>;
  close(): Promise<void>;
}

/** What a part of the read models holds, in short. */
export interface PartDigest {
  /** Current items; 0 for the catalog. */
  readonly items: number;
  /** Equal for equal contents, whatever the order of building. */
  readonly digest: string;
}

/** The contents of a store at one moment, held still to be compared with another's. */
export interface ReadModelSnapshot {
  /**
   * A digest of each container that has rows, and of the catalog: of everything but the checkpoint and the purge runs.
   * Takes as long as there are rows, and gives way to others.
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

/** Makes and swaps whole versions of the read models: what a rebuild needs. */
export interface ReadModelVersions {
  /** True when other processes write the read models, too. */
  readonly shared: boolean;
  /** What an error met in bringing them up with the log comes to, where that says more than the error. */
  readonly explained?: (error: unknown) => unknown;
  /** The version in use. */
  readonly current: ReadModelVersion;
  /** What a rebuild had under way when its process ended, as it was found when these were opened; undefined for none. */
  readonly unfinished: { readonly version: number; readonly position: number } | undefined;
  /** The version that a rebuild left unfinished, to be gone on with; undefined for none. */
  openUnfinished(): Promise<ReadModelVersion | undefined>;
  /** A new, empty version beside the one in use. */
  createNext(): Promise<ReadModelVersion>;
  /** Makes a version the one in use, durably and at once; the old one is closed and removed. */
  swapTo(version: number): Promise<void>;
  /** Throws a version away that is not in use. */
  discard(version: number): Promise<void>;
}
