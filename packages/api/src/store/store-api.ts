import type { ClockJump } from '@epitaph/core/clock.ts';
import type { FollowedCopy } from '@epitaph/core/backup/backup-source.ts';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { WrappedKey } from '@epitaph/core/client-encryption-key/events.ts';
import type { ClientEncryptionKeyState } from '@epitaph/core/client-encryption-key/state.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { TtlBrake } from '@epitaph/core/container/events.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { Refusal } from '@epitaph/core/errors.ts';
import type { Explanation } from '@epitaph/core/history/explain.ts';
import type { ChangeThroughput } from '@epitaph/core/throughput/provisioning.ts';
import type { Throughput } from '@epitaph/core/throughput/throughput.ts';
import type { ReplayedLife, ReplayVerdict } from '@epitaph/core/history/replay.ts';
import type { KeyRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import type { CertifiedFact, DisposalCertificate } from '@epitaph/core/proof/certificate.ts';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import type { RecordedScope } from '@epitaph/core/retention/events.ts';
import type { RecordedHold } from '@epitaph/core/retention/hold-register.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import type { Permission, PermissionTarget } from '@epitaph/core/user/events.ts';
import type { PermissionState, UserState } from '@epitaph/core/user/state.ts';
import type { OperatorAction } from '@epitaph/projections/operator-actions.ts';
import type { PurgeRunCertificate, PurgeRunStatement } from '@epitaph/projections/proof/run-certificate.ts';
import type { Neighbours, Pushdown } from '@epitaph/query';
import type { RecordedBackup } from '@epitaph/projections/purge/vault-copies.ts';
import type { Measurements } from '../metrics/measurements.ts';
import type { RequestUnits } from '../request-units/request-units.ts';

/** A document as clients give it, without system properties. */
export type Document = { readonly [property: string]: unknown };

/** Who asks, for which request. The store adds the time, read once per command. */
export type Caller = Pick<CommandContext, 'actor' | 'correlationId'>;

export interface Precondition {
  readonly ifMatch?: string | undefined;
  readonly ifNoneMatch?: string | undefined;
}

/** One item as it is shown: the document as JSON text plus what the system properties are made of. */
export interface ShownItem {
  readonly id: string;
  readonly partitionKey: string;
  /** The document without system properties, as JSON text of an object. */
  readonly json: string;
  /** Position of the life's first event: what `_rid` is made of. */
  readonly birth: number;
  /** `_ts`, Unix seconds. */
  readonly ts: number;
  /** `_etag`, with its quotes. */
  readonly etag: string;
}

/** An item as a read finds it. */
export interface FoundItem extends ShownItem {
  /** Log position of the write that left it so. */
  readonly position: number;
}

export interface Written<T> {
  readonly resource: T;
  /** Log position to put into the session token. */
  readonly position: number;
  /** True when a create or upsert began a new life, rather than replacing. */
  readonly created: boolean;
}

/**
 * Where a query or feed goes on. Opaque to clients, and valid over restarts: `after` for feeds in document order,
 * `sorted` for ORDER BY and GROUP BY, `ranked` for ORDER BY RANK, `skip` for other queries that are evaluated anew for each
 * page. What comes and goes between two pages makes none but the last miss or repeat anything else.
 */
export type Continuation =
  | {
      readonly kind: 'after';
      readonly birth: number;
      /** Rows that the document of this birth gave already, where it has more. */
      readonly inside?: number;
      /** Rows that the query gave so far, those included that its OFFSET left out; for queries with bounds. */
      readonly rows?: number;
    }
  | {
      readonly kind: 'sorted';
      /**
       * The values of the last row's place: each an array of the value, or an empty one where it is undefined. Leading ones
       * alone, and the beginning of a text, where they are long.
       */
      readonly keys: readonly (readonly unknown[])[];
      /** Birth of the last row's document, of rows that are of one. */
      readonly birth?: number;
      /** Which of its rows it was. */
      readonly inside?: number;
      /** Goes on at the place, not after it. */
      readonly include?: true;
      /** The rows around a place that the values don't tell. */
      readonly near?: Neighbours;
      /** Rows given so far. */
      readonly rows: number;
    }
  | {
      readonly kind: 'ranked';
      /** Births of the documents whose rows were given or left out by OFFSET: the first, then by how much each is greater. */
      readonly births: readonly number[];
      /** Rows given so far. */
      readonly rows: number;
      /** As with `skip`, which takes its place where there are too many. */
      readonly range?: KeyRange;
    }
  | {
      readonly kind: 'skip';
      readonly rows: number;
      /** What the rows are counted in. When it splits, one of its parts goes on with what is left of all. */
      readonly range?: KeyRange;
    };

/** What a valid token lets its holder do. */
export interface Grant {
  /** What events carry: `token:<rid of the permission>`. */
  readonly actor: string;
  readonly databaseRid: string;
  readonly target: PermissionTarget;
  readonly writes: boolean;
}

export type TokenVerdict =
  | { readonly ok: true; readonly grant: Grant }
  | { readonly ok: false; readonly reason: 'malformed' | 'wrong-signature' | 'expired' | 'revoked' };

/** Makes the token of a permission, valid for some seconds. */
export type TokenSigner = (user: UserState, permission: PermissionState, lifetimeSeconds: number) => string;

/**
 * What a read waits for: a position of the log, or `head`: everything that the log holds when it is asked, which on a
 * log that nodes share is what every node has written.
 */
export type AtLeast = number | 'head';

/** A place in an ordered answer, as a client has kept it. */
export interface ResumePlace {
  /** The values of ORDER BY; undefined is a value like any other. */
  readonly keys: readonly unknown[];
  /** The item that stood there; without it, all items with these values do. */
  readonly birth?: number | undefined;
  /** Leave out what stands at the place itself. */
  readonly exclude: boolean;
}

export interface QueryRequest extends Scope {
  readonly sql: string;
  readonly parameters: readonly { readonly name: string; readonly value?: unknown }[];
  /** Rows a page at most. */
  readonly maxItemCount: number;
  readonly continuation?: Continuation | undefined;
  /** Where an ordered answer begins that a client goes on with; its continuation counts more. */
  readonly resume?: ResumePlace | undefined;
  /** Wait for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Waits for something in the caller's way, who may let others go before meanwhile; without it there is no such way. */
  readonly standAside?: ((wait: () => Promise<void>) => Promise<void>) | undefined;
}

export interface QueryPage {
  readonly rows: readonly unknown[];
  /** The same rows, each as JSON text. */
  readonly texts: readonly string[];
  readonly continuation?: Continuation;
  /** Documents that were looked at. */
  readonly examined: number;
  /** What was worked on them beyond what every document takes, in units of some nanoseconds. */
  readonly extraWork: number;
  /** What it took, in milliseconds: all in all, parsing, planning, finding rows, reading documents. */
  readonly metrics: {
    readonly totalMs: number;
    readonly compileMs: number;
    readonly planMs: number;
    readonly lookupMs: number;
    readonly loadMs: number;
  };
  /** What of the filter could be decided without reading documents. */
  readonly pushdown: Pushdown;
}

/** Where a reading of a change feed begins. */
export type FeedStart =
  | { readonly kind: 'beginning' }
  /** Only what comes after this request. */
  | { readonly kind: 'now' }
  /** What happened at or after a time, in milliseconds. */
  | { readonly kind: 'time'; readonly atMs: number }
  /** After a log position that an earlier page gave. */
  | { readonly kind: 'after'; readonly position: number };

export interface ChangeFeedRequest {
  /** `latest`: every item as it is now, in order of its last write. `all-versions`: every write, delete and expiry. */
  readonly mode: 'latest' | 'all-versions';
  readonly start: FeedStart;
  /** Leaves out what happened before this time, in milliseconds, wherever the reading begins. */
  readonly notBeforeMs?: number | undefined;
  readonly scope: Scope;
  /** Changes a page at most. */
  readonly maxItemCount: number;
  /** Wait for this first (session token, consistency level). */
  readonly atLeast?: AtLeast | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A change as a feed shows it. Deletes and expiries are in the feed of all versions only. */
export type FeedChange =
  | {
      readonly kind: 'written';
      readonly item: ShownItem;
      /** Log position of the write. */
      readonly position: number;
      /** True for the first write of a life. */
      readonly created: boolean;
      /** Log position of the write that this one replaced; all versions only. */
      readonly previousPosition?: number;
    }
  | {
      readonly kind: 'deleted';
      readonly id: string;
      readonly partitionKey: string;
      readonly position: number;
      /** When it was recorded, in milliseconds. */
      readonly atMs: number;
      readonly expired: boolean;
      /** The item as it was. */
      readonly previous?: ShownItem;
      readonly previousPosition?: number;
    };

export interface ChangeFeedPage {
  readonly changes: readonly FeedChange[];
  /** Where the next page goes on: all that is at or before it has been looked at. */
  readonly position: number;
  /** False when the page ended early, to be short, and there may be more by now. */
  readonly reachedEnd: boolean;
  /** Events that were looked at. */
  readonly examined: number;
}

/** A partial change: operations as Cosmos DB's PATCH has them, already checked for shape. */
export interface PatchRequest {
  readonly operations: readonly PatchOperation[];
  /** `FROM c WHERE …`; the patch is refused with `precondition-failed` when it does not hold. */
  readonly condition?: string | undefined;
  /**
   * Called before a large document is patched, of so many bytes, when it is its turn; what it throws ends the patch, and
   * nothing is done.
   */
  readonly beforeLarge?: ((bytes: number) => void) | undefined;
}
export type PatchOperation =
  | { readonly op: 'add' | 'set' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'incr'; readonly path: string; readonly value: number | bigint }
  | { readonly op: 'remove'; readonly path: string }
  | { readonly op: 'move'; readonly path: string; readonly from: string };

/** A document to write: its id and key are those in its text. */
export interface ItemToWrite {
  readonly id: string;
  readonly partitionKey: string;
  readonly document: Document;
  readonly json: string;
}

/** One operation of a batch. */
export type BatchOperation = { readonly precondition?: Precondition | undefined } & (
  | { readonly kind: 'write'; readonly operation: 'create' | 'upsert' | 'replace'; readonly item: ItemToWrite }
  | { readonly kind: 'patch'; readonly id: string; readonly partitionKey: string; readonly patch: PatchRequest }
  | { readonly kind: 'delete'; readonly id: string; readonly partitionKey: string }
  | { readonly kind: 'read'; readonly id: string; readonly partitionKey: string }
);

export type BatchResult =
  | { readonly kind: 'written'; readonly item: ShownItem; readonly created: boolean }
  | { readonly kind: 'read'; readonly item: ShownItem }
  | { readonly kind: 'deleted'; /** Size of the document that is gone. */ readonly bytes: number };

export type BatchOutcome =
  | { readonly kind: 'done'; readonly results: readonly BatchResult[]; readonly position: number }
  /** The first operation that can't be done, by its index. Nothing was written. */
  | { readonly kind: 'refused'; readonly index: number; readonly refusal: Refusal };

export interface HistoryEntry {
  readonly life: number;
  readonly revision?: number;
  readonly type: string;
  readonly occurredAtMs: number;
  /** Who acted; a ledger does not keep it for the writes it stands for. */
  readonly actor?: string;
  readonly position?: number;
  readonly eventId?: string;
  readonly correlationId?: string;
  /** The event's data; for a write known only from the ledger of a purged life, what the ledger says. */
  readonly data: Readonly<Record<string, unknown>>;
  /** True for a write whose event was truncated and whose facts come from the ledger. */
  readonly fromLedger?: boolean;
}

export interface Disappearance {
  readonly position: number;
  readonly id: string;
  readonly partitionKey: string;
  readonly life: number;
  readonly cause: 'expired' | 'deleted' | 'container-deleted' | 'erasure';
  /** When it left: the deadline, the delete, the container's delete; milliseconds. */
  readonly atMs: number;
  readonly recordedAtMs: number;
  readonly purgedAtMs: number | null;
  /** Who deleted it, or its container, or had it erased; null for what expired. */
  readonly actor: string | null;
  /** Only for expired ones. */
  readonly rule: 'container-default' | 'item-ttl' | null;
  readonly ttl: number | null;
  readonly policyVersion: number | null;
}

/** What a proposed TTL policy would do with what the container holds now. */
export interface TtlPreview {
  /** The policy that it would follow. */
  readonly from: DefaultTtl;
  readonly to: DefaultTtl;
  readonly effectiveFromMs: number;
  /** Items that are visible when it takes effect. */
  readonly items: number;
  readonly atOnce: {
    readonly items: number;
    /** `_ts` of the one that was written longest ago; null for none. */
    readonly oldestTs: number | null;
    readonly sample: readonly {
      readonly id: string;
      readonly partitionKey: string;
      readonly ts: number;
      readonly ttl: number | null;
    }[];
  };
  /** When the erasure of what expires at once would begin: the policy grace later. */
  readonly erasedFromMs: number;
  /** A histogram: items that would expire within so many seconds of the policy's start, and after the bar before. */
  readonly later: readonly { readonly withinSeconds: number | null; readonly items: number }[];
  /** Items that would never expire under it. */
  readonly never: number;
  /** What stands against the erasure, not against the expiry, of what expires at once. */
  readonly kept: {
    readonly floorSeconds: number;
    readonly byFloor: number;
    /** Items that a hold covers, which may be the same that the floor keeps. */
    readonly byHolds: BoundedCount;
    readonly holds: readonly { readonly holdId: string; readonly scope: string }[];
    /** How many there are besides; absent for none. */
    readonly moreHolds?: number;
  };
  /** Items whose own ttl would have no effect. */
  readonly inertTtls: number;
  /** Items with a `ttl` that is none; it counts as absent. */
  readonly unreadableTtls: number;
  readonly brake: TtlBrake | null;
}

/** A count that may not be known exactly. Where it is, both are equal. */
export interface BoundedCount {
  readonly atLeast: number;
  readonly atMost: number;
}

/** The tree of facts at a moment. */
export interface TreeSnapshot {
  /** Leaves. */
  readonly size: number;
  /** The place in the log up to which every fact is in it. */
  readonly position: number;
}

/** Erasures from one instant on and before another, in milliseconds. */
export interface CertifiedPeriod {
  readonly fromMs?: number | undefined;
  readonly toMs?: number | undefined;
  /** The tree that they are proven in; that of now by default. */
  readonly tree?: TreeSnapshot | undefined;
}

/** What the check of a whole log found. */
export interface LogVerification {
  readonly ok: boolean;
  /** Permanent facts that were read. */
  readonly facts: number;
  /** Root of the tree, base64, and a signed checkpoint of it. */
  readonly root: string;
  readonly checkpoint: string;
  /** How many problems there are; the first of them are named. */
  readonly count: number;
  readonly problems: readonly {
    readonly code: 'fact-differs' | 'facts-missing' | 'name-differs';
    readonly subject: string;
    readonly message: string;
  }[];
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
export interface ReplayDifference extends ReplayedLife {
  readonly id: string;
  readonly partitionKey: string;
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
export interface ItemAsOf {
  readonly id: string;
  readonly partitionKey: string;
  readonly life: number;
  readonly writtenAtMs: number;
  readonly ttl: number | null;
}

export interface HistoryPage {
  readonly entries: readonly HistoryEntry[];
  /** Where the next one begins; absent when nothing is left. */
  readonly continuation?: string;
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

/** What a hold is to cover. Partition keys are canonical JSON of an array of components. */
export interface HoldRequest {
  readonly scope:
    | { readonly kind: 'container' }
    | { readonly kind: 'partition-key'; readonly partitionKey: string }
    | {
        readonly kind: 'items';
        readonly items: readonly { readonly id: string; readonly partitionKey: string }[];
      }
    | { readonly kind: 'query'; readonly sql: string; readonly parameters: QueryRequest['parameters'] };
  readonly reason: string;
}

/** A hold with all that it names. */
export type ShownHold = Omit<RecordedHold, 'scope'> & { readonly scope: RecordedScope };

export interface PlacedHold {
  readonly hold: ShownHold;
  /** False for one that stood already. */
  readonly placed: boolean;
}

export interface ErasureOutcome {
  /** Log position of the request. */
  readonly position: number;
  readonly erasedLives: number;
  readonly alreadyErasedLives: number;
}

export interface RecoveredItem {
  readonly life: number;
  readonly fromLife: number;
  /** `_ts` of the new life. */
  readonly ts: number;
  readonly position: number;
  /** When it will expire as things stand, in milliseconds; null for never. */
  readonly expiresAtMs: number | null;
}

export interface RecoverySummary {
  readonly recovered: number;
  /**
   * Left alone, because something was written under their names since, if only by an earlier recovery, or because
   * another item has their value of a unique key.
   */
  readonly writtenSince: number;
  /** Left, because their content is gone. */
  readonly erased: number;
}

export interface PurgeStatus {
  /** `waiting-for-request-units`: all that is due is overdue in containers whose users leave nothing over. */
  readonly state: 'running' | 'idle' | 'paused' | 'held-by-clock' | 'waiting-for-request-units';
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

export interface ProjectionStatus {
  readonly name: string;
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

/** A part of the read models that the version before had differently. */
export type DifferingPart = { readonly itemsBefore: number; readonly itemsRebuilt: number } & (
  | { readonly part: 'catalog' }
  | { readonly part: 'container'; readonly database: string; readonly container: string; readonly rid: string }
);

export interface RebuildStatus {
  /** Interrupted: a stop or a crash has cut it short, and the next one goes on with it. */
  readonly state: 'running' | 'comparing' | 'done' | 'cancelled' | 'failed' | 'interrupted';
  readonly version: number;
  /** Where the rebuild that this one goes on with had come to; 0 for one from the start of the log. */
  readonly resumedFrom: number;
  readonly position: number;
  readonly headPosition: number;
  readonly eventsPerSecond: number;
  readonly millisecondsLeft: number | null;
  /** Null when that was in an earlier run of the server. */
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

/**
 * The store as the edge sees it: what HTTP, the command line and in-process users call. Every expected "no" is
 * thrown as a `Refusal` with a code of core/errors.ts.
 */
export interface BackupRequest {
  /** Below the server's backup folder where it has one. */
  readonly folder: string;
  /** How long the copy of the keys is kept; it must be gone by then. */
  readonly vaultKeptSeconds: number;
}

export interface TakenBackup {
  readonly id: string;
  readonly folder: string;
  /** The log is none of them where it is on a server. */
  readonly parts: readonly ('log' | 'vault')[];
  readonly takenAtMs: number;
  readonly logPosition: number;
  readonly vaultLapsesAtMs: number;
  readonly bytes: number;
  /** Of the purge ledger when the keys were copied. */
  readonly ledgerHead: LedgerHead;
}

export interface StoreApi {
  /** Who may spend how much, and who has spent what. The edge asks and tells it; the purge does so itself. */
  readonly requestUnits: RequestUnits;

  // Databases and containers, by name. Lists are in order of creation.
  listDatabases(): readonly DatabaseState[];
  /** @throws Refusal database-not-found */
  database(name: string): DatabaseState;
  /** A database by rid, deleted ones too. */
  databaseByRid(rid: string): DatabaseState | undefined;
  createDatabase(caller: Caller, name: string, throughput?: Throughput): Promise<Written<DatabaseState>>;
  deleteDatabase(caller: Caller, name: string, precondition?: Precondition): Promise<{ position: number }>;

  /**
   * Makes sure that a name which is not known here is not known at all: on several nodes another may have given it a
   * moment ago. Undefined when there is nothing to wait for. Without a name: that no list of names leaves one out.
   */
  settleNames(database: string | undefined, container: string | undefined): Promise<void> | undefined;
  listContainers(database: string): readonly ContainerState[];
  /** @throws Refusal database-not-found, container-not-found */
  container(database: string, name: string): ContainerState;
  /** A container by rid, deleted ones too. */
  containerByRid(rid: string): ContainerState | undefined;
  /** Deleted containers that had a name, newest first: their history is still there, by their rids. */
  deletedContainers(name: string): readonly ContainerState[];
  createContainer(
    caller: Caller,
    database: string,
    name: string,
    definition: ContainerDefinition,
    defaultTtl: DefaultTtl,
    throughput?: Throughput,
  ): Promise<Written<ContainerState>>;
  replaceContainer(
    caller: Caller,
    database: string,
    name: string,
    definition: ContainerDefinition,
    defaultTtl: DefaultTtl,
    precondition?: Precondition,
  ): Promise<Written<ContainerState>>;
  deleteContainer(
    caller: Caller,
    database: string,
    name: string,
    precondition?: Precondition,
  ): Promise<{ position: number }>;
  /**
   * Changes what a container or a database is provisioned with, by rid as offers name it.
   *
   * @throws Refusal precondition-failed for another offer's etag, bad-request for an amount that can't be had
   */
  changeContainerThroughput(
    caller: Caller,
    rid: string,
    change: ChangeThroughput['change'],
    precondition?: Precondition,
  ): Promise<Written<ContainerState>>;
  changeDatabaseThroughput(
    caller: Caller,
    rid: string,
    change: ChangeThroughput['change'],
    precondition?: Precondition,
  ): Promise<Written<DatabaseState>>;
  /** @throws Refusal container-not-found */
  previewTtl(
    container: ContainerState,
    proposal: { readonly defaultTtl: DefaultTtl; readonly effectiveFromMs?: number | undefined },
  ): Promise<TtlPreview>;
  /**
   * Changes a container's TTL alone, now or later.
   *
   * @throws Refusal ttl-change-braked unless confirmed, ttl-change-scheduled, bad-request for a time in the past
   */
  changeTtl(
    caller: Caller,
    database: string,
    name: string,
    change: {
      readonly defaultTtl: DefaultTtl;
      readonly effectiveFromMs?: number | undefined;
      /** Needs a reason. */
      readonly confirmed: boolean;
      readonly reason?: string | undefined;
    },
  ): Promise<ContainerState>;
  /** @throws Refusal no-ttl-change-scheduled */
  withdrawTtl(caller: Caller, database: string, name: string, reason?: string): Promise<ContainerState>;
  setTtlBrake(
    caller: Caller,
    database: string,
    name: string,
    brake: TtlBrake | null,
    reason?: string,
  ): Promise<ContainerState>;
  setPolicyGrace(
    caller: Caller,
    database: string,
    name: string,
    seconds: number,
    reason?: string,
  ): Promise<ContainerState>;

  // Users and their permissions, by the rid of their database. Lists are in order of creation.
  listUsers(databaseRid: string): readonly UserState[];
  /** @throws Refusal user-not-found */
  user(databaseRid: string, name: string): UserState;
  createUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    operation: 'create' | 'upsert',
  ): Promise<Written<UserState>>;
  renameUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    newName: string,
    precondition?: Precondition,
  ): Promise<Written<UserState>>;
  deleteUser(
    caller: Caller,
    databaseRid: string,
    name: string,
    precondition?: Precondition,
  ): Promise<{ position: number }>;
  writePermission(
    caller: Caller,
    user: UserState,
    operation: 'create' | 'upsert',
    permission: Permission,
    precondition?: Precondition,
  ): Promise<Written<PermissionState>>;
  /** The permission's name may change. */
  replacePermission(
    caller: Caller,
    user: UserState,
    name: string,
    permission: Permission,
    precondition?: Precondition,
  ): Promise<Written<PermissionState>>;
  deletePermission(
    caller: Caller,
    user: UserState,
    name: string,
    precondition?: Precondition,
  ): Promise<{ position: number }>;
  /** What makes resource tokens for the permissions of a database's users. */
  tokenSigner(databaseRid: string): Promise<TokenSigner>;
  verifyResourceToken(token: string): Promise<TokenVerdict>;

  // Client encryption keys, by the rid of their database.
  listClientEncryptionKeys(databaseRid: string): readonly ClientEncryptionKeyState[];
  /** @throws Refusal client-encryption-key-not-found */
  clientEncryptionKey(databaseRid: string, name: string): ClientEncryptionKeyState;
  createClientEncryptionKey(
    caller: Caller,
    databaseRid: string,
    name: string,
    wrappedKey: WrappedKey,
  ): Promise<Written<ClientEncryptionKeyState>>;
  rewrapClientEncryptionKey(
    caller: Caller,
    databaseRid: string,
    name: string,
    wrappedKey: WrappedKey,
    precondition?: Precondition,
  ): Promise<Written<ClientEncryptionKeyState>>;

  // Items. `partitionKey` is canonical JSON of an array of components.
  /** The body's text is stored as it is; the caller has checked that it is an object whose id and key are those given. */
  writeItem(
    caller: Caller,
    container: ContainerState,
    operation: 'create' | 'upsert' | 'replace',
    item: ItemToWrite,
    precondition?: Precondition,
  ): Promise<Written<ShownItem>>;
  patchItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    patch: PatchRequest,
    precondition?: Precondition,
  ): Promise<Written<ShownItem>>;
  deleteItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    precondition?: Precondition,
  ): Promise<{ readonly position: number; /** Size of the document that is gone. */ readonly bytes: number }>;
  /**
   * Operations in order, each seeing what those before it did, all recorded together or none.
   *
   * @param options.dryRun decides only, and writes nothing
   * @throws Refusal not-supported when the log can't append to several streams at once and this needs to
   */
  batchItems(
    caller: Caller,
    container: ContainerState,
    operations: readonly BatchOperation[],
    options?: { readonly dryRun?: boolean; readonly atLeast?: AtLeast | undefined },
  ): Promise<BatchOutcome>;
  /** Every item of a partition key leaves at one instant. Their content is erased by the purge, as after any delete. */
  deletePartitionKey(
    caller: Caller,
    container: ContainerState,
    partitionKey: string,
  ): Promise<{ readonly position: number }>;
  /** @throws Refusal item-not-found, session-not-available */
  readItem(container: ContainerState, id: string, partitionKey: string, atLeast?: AtLeast): Promise<FoundItem>;
  /** The visible item whose life began at a position. */
  itemByBirth(container: ContainerState, birth: number): Promise<ShownItem | undefined>;
  /** How many visible items there are; in large containers as of a moment ago. */
  countItems(container: ContainerState): Promise<number>;
  /** Visible items in order of birth. */
  listItems(
    container: ContainerState,
    page: Scope & {
      readonly maxItemCount: number;
      readonly continuation?: Continuation | undefined;
      readonly atLeast?: AtLeast | undefined;
    },
  ): Promise<{ readonly items: readonly ShownItem[]; readonly continuation?: Continuation }>;
  /** @throws QueryError for what the language does not have. */
  queryItems(container: ContainerState, request: QueryRequest): Promise<QueryPage>;

  /**
   * A page of a container's change feed.
   *
   * @throws Refusal bad-request for a start that lies outside what is kept; session-not-available
   */
  readChangeFeed(container: ContainerState, request: ChangeFeedRequest): Promise<ChangeFeedPage>;

  // History.
  history(container: ContainerState, id: string, partitionKey: string): Promise<readonly HistoryEntry[]>;
  /** @throws Refusal bad-request for a place that none of its pages gave */
  historyPage(
    container: ContainerState,
    id: string,
    partitionKey: string,
    page: { readonly after?: string | undefined; readonly limit?: number | undefined },
  ): Promise<HistoryPage>;
  /**
   * The container's own facts: creation, policies, deletion.
   *
   * @param afterRevision only what came after that
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
    filter: {
      readonly fromMs?: number;
      readonly toMs?: number;
      readonly cause?: Disappearance['cause'];
      readonly after?: string;
      readonly limit: number;
    },
  ): Promise<{ readonly rows: readonly Disappearance[]; readonly continuation?: string }>;

  // What keeps content, and what erases it on request. All of it also in containers that are gone.
  /** Holds of a container after a position of the log, in the order in which they were placed, released ones too. */
  holds(
    container: ContainerState,
    page: { readonly after: number; readonly limit?: number | undefined },
  ): Promise<readonly RecordedHold[]>;
  /** @throws Refusal hold-not-found */
  hold(container: ContainerState, holdId: string): Promise<ShownHold>;
  /**
   * Resolves when no key that the hold covers can be destroyed any more.
   *
   * @throws Refusal already-exists for another hold of that id, hold-too-wide for a query that finds too much
   */
  placeHold(caller: Caller, container: ContainerState, holdId: string, request: HoldRequest): Promise<PlacedHold>;
  /** @throws Refusal hold-not-found */
  releaseHold(caller: Caller, container: ContainerState, holdId: string, reason: string): Promise<ShownHold>;
  setRetentionFloor(
    caller: Caller,
    container: ContainerState,
    seconds: number,
    reason: string,
  ): Promise<ContainerState>;
  setRecoveryWindow(
    caller: Caller,
    container: ContainerState,
    seconds: number,
    reason: string,
  ): Promise<ContainerState>;
  /**
   * Erases every life of an item now.
   *
   * @throws Refusal item-not-found, held with what stands against it
   */
  eraseItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: { readonly reason: string; readonly requestedBy: string },
  ): Promise<ErasureOutcome>;
  /**
   * A new life with the content of an ended one, the last by default.
   *
   * @throws Refusal item-not-found, already-exists while a newer life is there, content-erased
   */
  recoverItem(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: { readonly reason: string; readonly life?: number | undefined },
  ): Promise<RecoveredItem>;
  /** The same for all that the start of one policy took. @throws Refusal bad-request for a policy that there was not */
  recoverPolicy(
    caller: Caller,
    container: ContainerState,
    policyVersion: number,
    request: {
      readonly reason: string;
      readonly onProgress?: ((progress: { readonly done: number; readonly total: number }) => void) | undefined;
      readonly signal?: AbortSignal | undefined;
    },
  ): Promise<RecoverySummary>;
  /** The content of a life that has ended; the reading is put on record first. @throws Refusal item-not-found, content-erased */
  heldContent(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    request: { readonly reason: string; readonly life?: number | undefined },
  ): Promise<PastContent>;

  // Proofs. @throws Refusal not-supported for a store that keeps no proof tree.
  /** The public key that checkpoints are signed with, as a verifier key of C2SP's signed-note. */
  proofKey(): string;
  /** A signed checkpoint, of the tree as it is or as it was with so many leaves. */
  proofCheckpoint(size?: number): Promise<string>;
  /** Hashes, base64, that prove the tree of one size to be the beginning of that of another. */
  proofConsistency(from: number, to: number): string[];
  /** @throws Refusal item-not-found, not-erased */
  certificate(container: ContainerState, id: string, partitionKey: string, life?: number): Promise<DisposalCertificate>;
  /** The tree of facts as it is now, for proofs that are to go together. */
  proofTree(): Promise<TreeSnapshot>;
  /** Of every life of a container that was erased in a period, in order of that time, in pages. */
  certificates(
    container: ContainerState,
    period: CertifiedPeriod,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly DisposalCertificate[]>;
  /** Everything on record of a container itself, each fact with its proof, a few at a time. */
  containerFacts(
    container: ContainerState,
    tree: TreeSnapshot,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly CertifiedFact[]>;
  /** Purge runs after a position of the log; `position` is where the next page goes on, undefined after the last. */
  purgeRuns(
    after: number,
    limit: number,
    signal?: AbortSignal,
  ): Promise<{ readonly runs: readonly PurgeRunStatement[]; readonly position: number | undefined }>;
  /**
   * The certificate of a purge run, and then those of every life that it erased, in pages.
   *
   * @throws Refusal purge-run-not-found, from the first page
   */
  runCertificates(
    runId: string,
    signal?: AbortSignal,
  ): AsyncGenerator<readonly (PurgeRunCertificate | DisposalCertificate)[]>;
  /** Every permanent fact as it is in the tree, in order, in pages. */
  facts(signal?: AbortSignal): AsyncGenerator<readonly FactLeaf[]>;
  verifyLog(onProgress?: (progress: ScanProgress) => void, signal?: AbortSignal): Promise<LogVerification>;

  // Operations.
  /** @param backlogs for whoever has asked for them already: that takes as long as there are containers */
  purgeStatus(backlogs?: readonly ContainerBacklog[]): Promise<PurgeStatus>;
  /** The purge's work by container; of those that are gone the ones with any left. */
  purgeBacklogs(): Promise<readonly ContainerBacklog[]>;
  /**
   * One pass now; resolves when nothing that is due is left, with what it did. What has to wait for request units that
   * users leave over is waited for so many milliseconds, by default for ever.
   */
  runPurge(
    caller: Caller,
    options?: { readonly waitMs?: number; readonly signal?: AbortSignal },
  ): Promise<{ readonly expired: number; readonly purged: number; readonly heldBack: number }>;
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
   * @throws Refusal not-supported, bad-request, busy, backup-failed
   */
  backup(caller: Caller, request: BackupRequest, follow?: FollowedCopy): Promise<TakenBackup>;
  /** Those on record, oldest first. */
  backups(): readonly RecordedBackup[];
  /** Where the ledger of destroyed keys ends. @throws Refusal not-supported for a store that keeps none */
  purgeLedgerHead(): Promise<LedgerHead>;
  projections(): Promise<readonly ProjectionStatus[]>;
  /** Starts a rebuild, or goes on with the one that was cut short, and resolves at once; follow it with {@link rebuildStatus}. */
  startRebuild(caller: Caller, name: string, request?: RebuildRequest): RebuildStatus;
  rebuildStatus(name: string): RebuildStatus | null;
  cancelRebuild(caller: Caller, name: string): Promise<void>;
  fsck(onProgress?: (done: number, total: number) => void, signal?: AbortSignal): Promise<FsckReport>;
  /** Not ready, with reasons, while projections lag, the clock is held or the store is closing. */
  health(): { readonly ready: boolean; readonly reasons: readonly string[] };

  /** What was measured since the start. */
  readonly measurements: Measurements;

  // Time.
  nowMs(): number;
  readonly clockKind: 'system' | 'manual';
  /** @throws Refusal not-supported unless the clock is manual; RangeError for a bad number. */
  advanceClock(caller: Caller, milliseconds: number): Promise<number>;
  /** Accepts the wall clock as it is after a jump. @returns the jump that was accepted, undefined if there was none */
  confirmClock(caller: Caller): Promise<ClockJump | undefined>;

  /** Puts on record what an operator asks of the store as a whole, where nothing else would say who did. */
  recordAction(caller: Caller, action: OperatorAction): Promise<void>;
  /** What operators had done to the store as a whole, oldest first. */
  actionsOnStore(): Promise<readonly HistoryEntry[]>;

  /** Highest log position that this store knows of. */
  headPosition(): number;
  /** Ends gracefully: finishes writes under way, refuses new ones, closes files. */
  close(): Promise<void>;
}
