import type { FollowedCopy } from '@epitaph/core/backup/backup-source.ts';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { OperatorAction } from '@epitaph/projections/operator-actions.ts';
import type { RecordedBackup } from '@epitaph/projections/purge/vault-copies.ts';
import type { Caller } from './common.ts';
import type { HistoryEntry } from './history-api.ts';

export interface PurgeStatus {
  /**
   * `held-by-clock`: also if it is paused as well. `waiting-for-request-units`: all that is due are expiries in
   * containers whose users leave no request units over.
   */
  readonly state: 'running' | 'idle' | 'paused' | 'held-by-clock' | 'waiting-for-request-units';
  /**
   * False on a node that leaves the purge to others. Its rate, held lives and faults are only those that it met itself.
   */
  readonly byThisNode: boolean;
  /** Items past their deadline whose expiry is not recorded yet. */
  readonly overdueItems: number;
  /** Those of the overdue items that wait because the users of their containers leave no request units over. */
  readonly waitingForRequestUnits: number;
  /** Age of the oldest overdue item, in milliseconds; null for none. */
  readonly oldestOverdueMs: number | null;
  /** Ended lives whose content is due to be erased now. */
  readonly awaitingErasure: number;
  /** Lives whose erasure waits for the policy grace or for the recovery window. */
  readonly inGrace: number;
  /** Lives that are kept by a hold, by a retention floor, or by the retention of a change feed. */
  readonly heldBack: number;
  /** Items recorded as ended, and erased, per second over the last minute. */
  readonly itemsPerSecond: number;
  /** Estimate from backlog and rate; null when there is work but no rate yet. */
  readonly millisecondsToDrain: number | null;
  readonly purgedTotal: number;
  /** How often a fault has put off the purge's own work since the start. */
  readonly faults: number;
  readonly run: { readonly id: string; readonly startedAtMs: number; readonly upToPosition: number } | null;
  /** Space that the event log has not given back yet; null for a log that does so by itself. */
  readonly scavenge: ScavengeStatus | null;
}

/** What remains to be recorded and erased in a container, as in {@link PurgeStatus}. */
export interface ContainerBacklog {
  readonly container: ContainerState;
  readonly overdueItems: number;
  readonly waitingForRequestUnits: number;
  readonly oldestOverdueMs: number | null;
  readonly awaitingErasure: number;
  /** Ended lives that are kept, by what keeps them. `hold` and `floor` count only what the purge met recently. */
  readonly heldBack: Readonly<Record<'hold' | 'floor' | 'grace' | 'feed', number>>;
}

export interface ScavengeStatus {
  /** Purged lives: their keys are destroyed, but the event store keeps their sealed bytes until its next scavenge. */
  readonly livesWaiting: number;
  readonly last: {
    readonly id: string;
    readonly state: 'running' | 'done' | 'failed' | 'unknown';
    readonly startedAtMs: number;
  } | null;
  /** Seconds after which the schedule starts a run; null for no schedule. */
  readonly everySeconds: number | null;
  /**
   * When the schedule starts the next run; null without a schedule or with nothing to remove. May be in the past for a
   * moment.
   */
  readonly nextAtMs: number | null;
}

export interface BackupRequest {
  /** Below the server's backup folder if it has one. */
  readonly folder: string;
  /** How long the copy of the keys is kept. The operator must delete it by then. */
  readonly vaultKeptSeconds: number;
}

export interface TakenBackup {
  readonly id: string;
  readonly folder: string;
  /** The parts of the backup. The log is not among them if it is on a server. */
  readonly parts: readonly ('log' | 'vault')[];
  readonly takenAtMs: number;
  readonly logPosition: number;
  readonly vaultLapsesAtMs: number;
  readonly bytes: number;
  /** The end of the purge ledger when the keys were copied. */
  readonly ledgerHead: LedgerHead;
}

export interface ProjectionStatus {
  readonly name: string;
  /** False on a node that does not project. A rebuild must be started on the node that does. */
  readonly byThisNode: boolean;
  readonly version: number;
  readonly position: number;
  readonly headPosition: number;
  readonly lagEvents: number;
  readonly state: 'live' | 'catching-up' | 'failed';
  readonly error?: string;
  readonly rebuild: RebuildStatus | null;
}

export interface RebuildRequest {
  /** The most events to read per second; without a limit when not given. */
  readonly eventsPerSecond?: number | undefined;
}

/** A part of the read models that differed from the version before. */
export type DifferingPart = { readonly itemsBefore: number; readonly itemsRebuilt: number } & (
  | { readonly part: 'catalog' }
  | { readonly part: 'container'; readonly database: string; readonly container: string; readonly rid: string }
);

export interface RebuildStatus {
  /** `interrupted`: a stop or a crash has cut it short, and the next rebuild continues it. */
  readonly state: 'running' | 'comparing' | 'done' | 'cancelled' | 'failed' | 'interrupted';
  readonly version: number;
  /** The position from which an interrupted rebuild was continued; 0 for one from the start of the log. */
  readonly resumedFrom: number;
  readonly position: number;
  readonly headPosition: number;
  readonly eventsPerSecond: number;
  readonly millisecondsLeft: number | null;
  /** Null when an earlier run of the server started it. */
  readonly startedAtMs: number | null;
  /** The number of parts that differ. Absent while it runs, and when the version before could not be compared. */
  readonly differences?: number;
  /** The first hundred of those parts. */
  readonly differing?: readonly DifferingPart[];
  readonly error?: string;
}

export interface FsckReport {
  readonly ok: boolean;
  readonly events: number;
  readonly items: number;
  readonly lives: number;
  readonly problems: readonly { readonly code: string; readonly subject: string; readonly message: string }[];
  readonly durationMs: number;
}

/** What operators can see and do. */
export interface OperationsApi {
  /**
   * @param backlogs may be given by callers that have them: finding them takes time in proportion to the containers
   */
  purgeStatus(backlogs?: readonly ContainerBacklog[]): Promise<PurgeStatus>;
  /** The purge's work by container. Deleted containers are included if they have any left. */
  purgeBacklogs(): Promise<readonly ContainerBacklog[]>;
  /**
   * Runs a pass now. Resolves with what it did once nothing is due any more.
   *
   * @param options.waitMs how long to wait for request units that users leave over, in milliseconds; by default without
   *   a limit
   */
  runPurge(options?: {
    readonly waitMs?: number;
    readonly signal?: AbortSignal;
  }): Promise<{ readonly expired: number; readonly purged: number; readonly heldBack: number }>;
  pausePurge(caller: Caller): Promise<void>;
  resumePurge(caller: Caller): Promise<void>;
  /**
   * Makes the event log's server give back the space of purged lives, or joins the run under way.
   *
   * @throws Refusal not-supported for a log that does so by itself
   */
  startScavenge(caller: Caller): Promise<void>;
  /**
   * Copies the log and the keys into a folder of the server's machine while the store goes on.
   *
   * @throws Refusal not-supported, bad-request, busy, already-exists, backup-failed
   */
  backup(caller: Caller, request: BackupRequest, follow?: FollowedCopy): Promise<TakenBackup>;
  /** The recorded backups, oldest first. */
  backups(): readonly RecordedBackup[];
  /** The end of the ledger of destroyed keys. @throws Refusal not-supported for a store without a ledger */
  purgeLedgerHead(): Promise<LedgerHead>;
  projections(): Promise<readonly ProjectionStatus[]>;
  /**
   * Starts a rebuild, or continues one that was cut short, and resolves at once; {@link rebuildStatus} shows its
   * progress.
   */
  startRebuild(name: string, request?: RebuildRequest): RebuildStatus;
  rebuildStatus(name: string): RebuildStatus | null;
  cancelRebuild(name: string): Promise<void>;
  fsck(onProgress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<FsckReport>;
  /** Not ready, with the reasons, while projections lag, the clock is held or the store is closing. */
  health(): { readonly ready: boolean; readonly reasons: readonly string[] };
  /**
   * Records what an operator did to the store as a whole, and who that was. {@link runPurge}, {@link startRebuild},
   * {@link cancelRebuild} and the clock's methods take no caller and record nothing. Whoever calls them for an operator
   * must call this as well.
   */
  recordAction(caller: Caller, action: OperatorAction): Promise<void>;
  /** What operators did to the store as a whole, oldest first. */
  actionsOnStore(): Promise<readonly HistoryEntry[]>;
}
