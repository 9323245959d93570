import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import type { WrappedKey } from '@epitaph/core/client-encryption-key/events.ts';
import type { ClientEncryptionKeyState } from '@epitaph/core/client-encryption-key/state.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { TtlBrake } from '@epitaph/core/container/events.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import type { ChangeThroughput } from '@epitaph/core/throughput/provisioning.ts';
import type { RecordedScope } from '@epitaph/core/retention/events.ts';
import type { Throughput } from '@epitaph/core/throughput/throughput.ts';
import type { DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import type { Caller, Precondition, Written } from './common.ts';

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
    readonly sample: readonly (ItemName & { readonly ts: number; readonly ttl: number | null })[];
  };
  /** When the erasure of what expires at once would begin: the policy grace later. */
  readonly erasedFromMs: number;
  /** A histogram: items that would expire within so many seconds of the policy's start, and after the bar before. */
  readonly later: readonly { readonly withinSeconds: number | null; readonly items: number }[];
  /** Items that would never expire under it. */
  readonly never: number;
  /** What keeps the content of what expires at once. It stops the erasure, not the expiry. */
  readonly kept: {
    readonly floorSeconds: number;
    /** Items over which the floor has not passed when the erasure would begin. */
    readonly byFloor: number;
    /** Items that a hold covers, which may be the same that the floor keeps. */
    readonly byHolds: BoundedCount;
    readonly holds: readonly { readonly holdId: string; readonly scope: RecordedScope['kind'] }[];
    /** How many there are besides; absent for none. */
    readonly moreHolds?: number;
  };
  /** Items whose own ttl would have no effect. */
  readonly inertTtls: number;
  /** Items with a `ttl` that is none; it counts as absent. */
  readonly unreadableTtls: number;
  readonly brake: TtlBrake | null;
}

export interface TtlChange {
  readonly defaultTtl: DefaultTtl;
  /** When it takes effect, in milliseconds; at once by default. */
  readonly effectiveFromMs?: number | undefined;
  /** Goes past the brake; needs a reason. */
  readonly confirmed: boolean;
  readonly reason?: string | undefined;
}

/** A count that may not be known exactly; where it is, both numbers are equal. */
export interface BoundedCount {
  readonly atLeast: number;
  readonly atMost: number;
}

/**
 * Databases and containers, by name; client encryption keys, by the rid of their database. Lists are in order of creation.
 */
export interface CatalogApi {
  listDatabases(): readonly DatabaseState[];
  /** @throws Refusal database-not-found */
  database(name: string): DatabaseState;
  /** A database by rid, deleted ones too. */
  databaseByRid(rid: string): DatabaseState | undefined;
  createDatabase(caller: Caller, name: string, throughput?: Throughput): Promise<Written<DatabaseState>>;
  deleteDatabase(caller: Caller, name: string, precondition?: Precondition): Promise<{ position: number }>;
  /**
   * Makes sure that a name which is not known here is not known anywhere: of several nodes, another may have given it a
   * moment ago. Without names, makes sure that no list of names leaves one out. Undefined when there is nothing to wait
   * for.
   *
   * @param isSure that what has the name here still has it, and what it has itself: another may have deleted that, and given the
   *   name anew
   */
  settleNames(database: string | undefined, container: string | undefined, isSure?: boolean): Promise<void> | undefined;
  /**
   * Remembers what has a name. The function that it returns makes sure what has it by now, on any node, and says whether
   * that is something else. Undefined where there is one node.
   */
  whoHas(database: string | undefined, container: string | undefined): (() => Promise<boolean>) | undefined;
  listContainers(database: string): readonly ContainerState[];
  /** @throws Refusal database-not-found, container-not-found */
  container(database: string, name: string): ContainerState;
  /** A container by rid, deleted ones too: one that went with its database has when and by whom that was deleted. */
  containerByRid(rid: string): ContainerState | undefined;
  /**
   * Deleted containers that had a name in a database of that name, be it one that was deleted too, newest first: their
   * history is still there, by their rids.
   */
  deletedContainers(database: string, name: string): readonly ContainerState[];
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
  changeTtl(caller: Caller, database: string, name: string, change: TtlChange): Promise<ContainerState>;
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
}
