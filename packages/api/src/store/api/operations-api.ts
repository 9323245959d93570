import type { FollowedCopy } from '@epitaph/core/backup/backup-source.ts';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { OperatorAction } from '@epitaph/projections/operator-actions.ts';
import type { RecordedBackup } from '@epitaph/projections/purge/vault-copies.ts';
import type { Caller } from './common.ts';
import type { HistoryEntry } from './history-api.ts';

export interface PurgeStatus {
  /**
   * `held-by-clock`: be it paused as well. `waiting-for-request-units`: all that is due are expiries in containers whose
   * users leave no request units over.
   */
  readonly state: 'running' | 'idle' | 'paused' | 'held-by-clock' | 'waiting-for-request-units';
  /** False on a node that leaves the purge to others: rate, held lives and faults are what a node meets itself. */
  readonly byThisNode: boolean;
  /** Items past their deadline whose expiry is not recorded yet. */
  readonly overdueItems: number;
  /** Those of them that wait because users of their containers leave no request units over. */
  readonly waitingForRequestUnits: number;
  /** Age of the oldest of them, in milliseconds; null for none. */
  readonly oldestOverdueMs: number | null;
  /** Lives that have ended and whose content is still to be erased now. */
  readonly awaitingErasure: number;
  /** Lives whose erasure waits for the policy grace, or for the recovery window. */
  readonly inGrace: number;
  /** Lives that a hold or a retention floor keeps, or the retention of a change feed. */
  readonly heldBack: number;
  /** Items recorded and erased a second over the last minute. */
  readonly itemsPerSecond: number;
  /** Estimate from backlog and rate, null when there is no rate yet and something to do. */
  readonly millisecondsToDrain: number | null;
  readonly purgedTotal: number;
  /** How often the purge's own work met a fault, and was put off, since the start. */
  readonly faults: number;
  readonly run: { readonly id: string; readonly startedAtMs: number; readonly upToPosition: number } | null;
  /** Space that the event log has yet to give back; null where it does that by itself. */
  readonly scavenge: ScavengeStatus | null;
}

/** What is still to be recorded and erased in a container, as in {@link PurgeStatus}. */
export interface ContainerBacklog {
  readonly container: ContainerState;
  readonly overdueItems: number;
  readonly waitingForRequestUnits: number;
  readonly oldestOverdueMs: number | null;
  readonly awaitingErasure: number;
  /** Ended lives that are kept, by what keeps them; those of `hold` and `floor` as far as the purge met them lately. */
  readonly heldBack: Readonly<Record<'hold' | 'floor' | 'grace' | 'feed', number>>;
}

export interface ScavengeStatus {
  /** Purged lives, content destroyed, whose sealed bytes an event store keeps until the next run of its own. */
  readonly livesWaiting: number;
  readonly last: {
    readonly id: string;
    readonly state: 'running' | 'done' | 'failed' | 'unknown';
    readonly startedAtMs: number;
  } | null;
  /** After which a run is started by the schedule; null where there is none. */
  readonly everySeconds: number | null;
  /** When the schedule starts the next; null where there is none, or nothing to take away. May be past for a moment. */
  readonly nextAtMs: number | null;
}

export interface BackupRequest {
  /** Below the server's backup folder where it has one. */
  readonly folder: string;
  /** How long the copy of the keys is kept; it must be gone by then. */
  readonly vaultKeptSeconds: number;
}

export interface TakenBackup {
  readonly id: string;
  readonly folder: string;
  /** Without the log where that is on a server. */
  readonly parts: readonly ('log' | 'vault')[];
  readonly takenAtMs: number;
  readonly logPosition: number;
  readonly vaultLapsesAtMs: number;
  readonly bytes: number;
  /** Where the purge ledger ended when the keys were copied. */
  readonly ledgerHead: LedgerHead;
}

export interface ProjectionStatus {
  readonly name: string;
  /** False on a node that follows another, of which a rebuild is asked. */
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
  /** Events read in a second at most; as fast as it goes when not given. */
  readonly eventsPerSecond?: number | undefined;
}

/** A part of the read models in which the version before differed. */
export type DifferingPart = { readonly itemsBefore: number; readonly itemsRebuilt: number } & (
  | { readonly part: 'catalog' }
  | { readonly part: 'container'; readonly database: string; readonly container: string; readonly rid: string }
);

export interface RebuildStatus {
  /** `interrupted`: a stop or a crash has cut it short, and the next rebuild goes on with it. */
  readonly state: 'running' | 'comparing' | 'done' | 'cancelled' | 'failed' | 'interrupted';
  readonly version: number;
  /** The position from which this one took up an interrupted rebuild; 0 for one from the start of the log. */
  readonly resumedFrom: number;
  readonly position: number;
  readonly headPosition: number;
  readonly eventsPerSecond: number;
  readonly millisecondsLeft: number | null;
  /** Null when it was started by an earlier run of the server. */
  readonly startedAtMs: number | null;
  /** Parts that differ; absent while it runs, and when the version before could not be compared. */
  readonly differences?: number;
  /** Those parts, the first hundred of them. */
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

/** What operators see and have done. */
export interface OperationsApi {
  /**
   * @param backlogs given by callers who have them already: finding them takes the longer, the more containers there
   *   are
   */
  purgeStatus(backlogs?: readonly ContainerBacklog[]): Promise<PurgeStatus>;
  /** The purge's work by container; of those that are gone the ones with any left. */
  purgeBacklogs(): Promise<readonly ContainerBacklog[]>;
  /**
   * Runs a pass now, and resolves with what it did when nothing due is left.
   *
   * @param options.waitMs how long to wait for request units that users leave over, in milliseconds; by default for ever
   */
  runPurge(options?: {
    readonly waitMs?: number;
    readonly signal?: AbortSignal;
  }): Promise<{ readonly expired: number; readonly purged: number; readonly heldBack: number }>;
  pausePurge(caller: Caller): Promise<void>;
  resumePurge(caller: Caller): Promise<void>;
  /**
   * Has the event log's server give back the space of what was purged, or joins the run under way.
   *
   * @throws Refusal not-supported where the log does that by itself
   */
  startScavenge(caller: Caller): Promise<void>;
  /**
   * Copies log and keys into a folder of the server's machine while the store goes on.
   *
   * @throws Refusal not-supported, bad-request, busy, already-exists, backup-failed
   */
  backup(caller: Caller, request: BackupRequest, follow?: FollowedCopy): Promise<TakenBackup>;
  /** Those on record, oldest first. */
  backups(): readonly RecordedBackup[];
  /** Where the ledger of destroyed keys ends. @throws Refusal not-supported for a store that keeps none */
  purgeLedgerHead(): Promise<LedgerHead>;
  projections(): Promise<readonly ProjectionStatus[]>;
  /** Starts a rebuild, or goes on with the one that was cut short, and resolves at once; follow it with {@link rebuildStatus}. */
  startRebuild(name: string, request?: RebuildRequest): RebuildStatus;
  rebuildStatus(name: string): RebuildStatus | null;
  cancelRebuild(name: string): Promise<void>;
  fsck(onProgress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<FsckReport>;
  /** Not ready, with reasons, while projections lag, the clock is held or the store is closing. */
  health(): { readonly ready: boolean; readonly reasons: readonly string[] };
  /**
   * Puts on record what an operator asks of the store as a whole, and who it is. {@link runPurge}, {@link startRebuild},
   * {@link cancelRebuild} and the clock's methods take no caller and record nothing: whoever uses them for an operator
   * calls this as well.
   */
  recordAction(caller: Caller, action: OperatorAction): Promise<void>;
  /** What operators had done to the store as a whole, oldest first. */
  actionsOnStore(): Promise<readonly HistoryEntry[]>;
}
