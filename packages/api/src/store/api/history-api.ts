import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Explanation } from '@epitaph/core/history/explain.ts';
import type { ReplayVerdict, ReplayedLife } from '@epitaph/core/history/replay.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import type { DisappearanceRow } from '@epitaph/projections/read-model-store.ts';

export interface HistoryEntry {
  readonly life: number;
  readonly revision?: number;
  readonly type: string;
  readonly occurredAtMs: number;
  /** Who acted. Absent for a write that is known only from a ledger, which does not record that. */
  readonly actor?: string;
  readonly position?: number;
  readonly eventId?: string;
  readonly correlationId?: string;
  /**
   * The id of the event that caused this one, if that is not the request itself: for instance of the event that stored
   * the script which asked for it.
   */
  readonly causationId?: string;
  /** The event's data. For a write that is known only from the ledger of a purged life: what the ledger has of it. */
  readonly data: Readonly<Record<string, unknown>>;
  /** True for a write whose event was truncated, so that its facts come from the ledger. */
  readonly fromLedger?: boolean;
}

export interface HistoryPage {
  readonly entries: readonly HistoryEntry[];
  /** Where the next page begins; absent after the last. */
  readonly continuation?: string;
}

export type Disappearance = Omit<DisappearanceRow, 'container'>;

/** A period, in milliseconds. It includes `fromMs` and excludes `toMs`. */
export interface Period {
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
}

/** Selects disappearances: in a period, and after the place where the page before ended. */
export interface DisappearanceFilter extends Period {
  readonly cause?: Disappearance['cause'] | undefined;
  readonly after?: string | undefined;
  readonly limit: number;
}

/** The content of an item at an earlier instant or revision. */
export interface PastContent {
  readonly life: number;
  readonly revision: number;
  readonly writtenAtMs: number;
  readonly etag: string;
  /** The document without system properties, as JSON text. */
  readonly json: string;
}

export interface ScanProgress {
  readonly position: number;
  readonly headPosition: number;
}

export interface FollowedScan<Row> {
  /** Called with each row that is found. It is awaited, so a slow reader slows the scan down. */
  readonly onRow?: ((row: Row) => Promise<void> | void) | undefined;
  readonly onProgress?: ((progress: ScanProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A life that would have ended differently under other policies. */
export interface ReplayDifference extends ReplayedLife, ItemName {
  readonly life: number;
}

export interface ReplaySummary {
  /** The time up to which history was replayed. */
  readonly nowMs: number;
  readonly lives: number;
  readonly counts: Readonly<Record<ReplayVerdict, number>>;
  /** The first few differences. */
  readonly sample: readonly ReplayDifference[];
}

/** An item that was visible at an instant. */
export interface ItemAsOf extends ItemName {
  readonly life: number;
  /**
   * The time of its last write by then. Absent, like its ttl, if the record of its erasure had no room for that write.
   */
  readonly writtenAtMs?: number;
  readonly ttl?: number | null;
}

/**
 * What is recorded about items and containers, also deleted ones. `partitionKey` is canonical JSON of an array of
 * components.
 */
export interface HistoryApi {
  history(container: ContainerState, id: string, partitionKey: string): Promise<readonly HistoryEntry[]>;
  /** @throws Refusal bad-request for a continuation that is not one of this history */
  historyPage(
    container: ContainerState,
    id: string,
    partitionKey: string,
    page: { readonly after?: string | undefined; readonly limit?: number | undefined },
  ): Promise<HistoryPage>;
  /**
   * The container's own facts: creation, policies, deletion.
   *
   * @param afterRevision only facts after that revision
   * @param limit the most facts; all by default
   */
  containerHistory(container: ContainerState, afterRevision?: number, limit?: number): Promise<readonly HistoryEntry[]>;
  /**
   * The deletion of the container's database, if the container was deleted by that, and after which of the container's
   * own facts it was recorded.
   */
  deletionWithDatabase(
    container: ContainerState,
  ): Promise<{ readonly afterRevision: number; readonly entry: HistoryEntry } | undefined>;
  explain(container: ContainerState, id: string, partitionKey: string, atMs?: number): Promise<Explanation>;
  /**
   * The content of a visible item at an instant, or at a revision of its life.
   *
   * @throws Refusal item-not-found for an item that is not visible now, or did not exist then
   */
  contentAt(
    container: ContainerState,
    id: string,
    partitionKey: string,
    when: { readonly atMs?: number | undefined; readonly revision?: number | undefined },
  ): Promise<PastContent>;
  /**
   * Replays the whole history of a container under other policies and compares the result with what happened.
   *
   * @throws Refusal bad-request for policies that are not in order of time
   */
  replay(
    container: ContainerState,
    policies: readonly { readonly fromMs: number; readonly defaultTtl: DefaultTtl }[],
    follow?: FollowedScan<ReplayDifference>,
  ): Promise<ReplaySummary>;
  /** Finds what was visible in a container at an instant. Returns the number of items. */
  asOf(container: ContainerState, atMs: number, follow?: FollowedScan<ItemAsOf>): Promise<number>;
  disappearances(
    container: ContainerState,
    filter: DisappearanceFilter,
  ): Promise<{ readonly rows: readonly Disappearance[]; readonly continuation?: string }>;
  /**
   * How many items expired in a period without a record of their expiry yet, so that they are not among the
   * disappearances.
   */
  unrecordedExpiries(container: ContainerState, period: Period): Promise<number>;
}
