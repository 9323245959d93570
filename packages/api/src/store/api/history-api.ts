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
  /** Who acted; absent for a write that is known only from a ledger, which does not keep that. */
  readonly actor?: string;
  readonly position?: number;
  readonly eventId?: string;
  readonly correlationId?: string;
  /** Id of the event that it comes of, where that is not the request itself: of the script that asked for it, as it was stored. */
  readonly causationId?: string;
  /** The event's data; for a write known only from the ledger of a purged life, what the ledger says. */
  readonly data: Readonly<Record<string, unknown>>;
  /** True for a write whose event was truncated and whose facts come from the ledger. */
  readonly fromLedger?: boolean;
}

export interface HistoryPage {
  readonly entries: readonly HistoryEntry[];
  /** Where the next one begins; absent when nothing is left. */
  readonly continuation?: string;
}

export type Disappearance = Omit<DisappearanceRow, 'container'>;

/** From one instant on and before another, in milliseconds. */
export interface Period {
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
}

/** Which disappearances: those from one instant on and before another, in milliseconds, after the place of a page before. */
export interface DisappearanceFilter extends Period {
  readonly cause?: Disappearance['cause'] | undefined;
  readonly after?: string | undefined;
  readonly limit: number;
}

/** What an item held at an instant or revision in its past. */
export interface PastContent {
  readonly life: number;
  readonly revision: number;
  readonly writtenAtMs: number;
  readonly etag: string;
  /** The document without system properties, as JSON text. */
  readonly json: string;
}

/** How far a scan of the log has come. */
export interface ScanProgress {
  readonly position: number;
  readonly headPosition: number;
}

/** Who follows a scan. */
export interface FollowedScan<Row> {
  /** Told of each row as it is found; awaited, so that a slow reader slows the scan. */
  readonly onRow?: ((row: Row) => Promise<void> | void) | undefined;
  readonly onProgress?: ((progress: ScanProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A life that would have ended otherwise under other policies. */
export interface ReplayDifference extends ReplayedLife, ItemName {
  readonly life: number;
}

export interface ReplaySummary {
  /** Up to when history was replayed. */
  readonly nowMs: number;
  readonly lives: number;
  readonly counts: Readonly<Record<ReplayVerdict, number>>;
  /** The first few differences. */
  readonly sample: readonly ReplayDifference[];
}

/** An item that was visible at an instant. */
export interface ItemAsOf extends ItemName {
  readonly life: number;
  /** Of its last write by then. Absent, like its ttl, where the record of its erasure has no room for that write. */
  readonly writtenAtMs?: number;
  readonly ttl?: number | null;
}

/** What is on record of items and containers, those that are gone too. `partitionKey` is canonical JSON of an array of components. */
export interface HistoryApi {
  history(container: ContainerState, id: string, partitionKey: string): Promise<readonly HistoryEntry[]>;
  /** @throws Refusal bad-request for a continuation that none of its pages gave */
  historyPage(
    container: ContainerState,
    id: string,
    partitionKey: string,
    page: { readonly after?: string | undefined; readonly limit?: number | undefined },
  ): Promise<HistoryPage>;
  /**
   * The container's own facts: creation, policies, deletion.
   *
   * @param afterRevision only what came after that revision
   * @param limit so many at most; all by default
   */
  containerHistory(container: ContainerState, afterRevision?: number, limit?: number): Promise<readonly HistoryEntry[]>;
  explain(container: ContainerState, id: string, partitionKey: string, atMs?: number): Promise<Explanation>;
  /**
   * The content of a visible item as it was at an instant, or at a revision of its life.
   *
   * @throws Refusal item-not-found for an item that is not visible now, or was not there then
   */
  contentAt(
    container: ContainerState,
    id: string,
    partitionKey: string,
    when: { readonly atMs?: number | undefined; readonly revision?: number | undefined },
  ): Promise<PastContent>;
  /**
   * The whole history of a container under other policies, compared with what happened.
   *
   * @throws Refusal bad-request for policies that are not in order of time
   */
  replay(
    container: ContainerState,
    policies: readonly { readonly fromMs: number; readonly defaultTtl: DefaultTtl }[],
    follow?: FollowedScan<ReplayDifference>,
  ): Promise<ReplaySummary>;
  /** What was visible in a container at an instant; answers how many items. */
  asOf(container: ContainerState, atMs: number, follow?: FollowedScan<ItemAsOf>): Promise<number>;
  disappearances(
    container: ContainerState,
    filter: DisappearanceFilter,
  ): Promise<{ readonly rows: readonly Disappearance[]; readonly continuation?: string }>;
  /** How many items have expired in a period whose expiry is not on record yet, so that no disappearance tells it. */
  unrecordedExpiries(container: ContainerState, period: Period): Promise<number>;
}
