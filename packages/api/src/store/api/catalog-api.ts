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

/** What a proposed TTL policy would do to the items that a container has now. */
export interface TtlPreview {
  /** The policy that it would replace. */
  readonly from: DefaultTtl;
  readonly to: DefaultTtl;
  readonly effectiveFromMs: number;
  /** Items that are visible when it takes effect. */
  readonly items: number;
  readonly atOnce: {
    readonly items: number;
    /** `_ts` of the item whose last write is the oldest; null for none. */
    readonly oldestTs: number | null;
    readonly sample: readonly (ItemName & { readonly ts: number; readonly ttl: number | null })[];
  };
  /** When the erasure of what expires at once would begin: after the policy grace. */
  readonly erasedFromMs: number;
  /**
   * A histogram. Each bar counts the items that would expire within `withinSeconds` of the policy's start, and later
   * than those of the bar before.
   */
  readonly later: readonly { readonly withinSeconds: number | null; readonly items: number }[];
  /** Items that would never expire under it. */
  readonly never: number;
  /** What keeps the content of items that expire at once. It prevents the erasure, not the expiry. */
  readonly kept: {
    readonly floorSeconds: number;
    /** Items that the retention floor would still keep when the erasure would begin. */
    readonly byFloor: number;
    /** Items that a hold covers. The floor may keep the same ones. */
    readonly byHolds: BoundedCount;
    readonly holds: readonly { readonly holdId: string; readonly scope: RecordedScope['kind'] }[];
    /** How many more holds there are; absent for none. */
    readonly moreHolds?: number;
  };
  /** Items whose own ttl would have no effect. */
  readonly inertTtls: number;
  /** Items with an invalid `ttl`, which counts as absent. */
  readonly unreadableTtls: number;
  readonly brake: TtlBrake | null;
}

export interface TtlChange {
  readonly defaultTtl: DefaultTtl;
  /** When it takes effect, in milliseconds; at once by default. */
  readonly effectiveFromMs?: number | undefined;
  /** Overrides the brake; needs a reason. */
  readonly confirmed: boolean;
  readonly reason?: string | undefined;
}

/** A count that may not be exact. If it is, both numbers are equal. */
export interface BoundedCount {
  readonly atLeast: number;
  readonly atMost: number;
}

/**
 * Databases and containers by name, client encryption keys by the rid of their database. Lists are in order of
 * creation.
 */
export interface CatalogApi {
  listDatabases(): readonly DatabaseState[];
  /** @throws Refusal database-not-found */
  database(name: string): DatabaseState;
  /** A database by rid, also if it is deleted. */
  databaseByRid(rid: string): DatabaseState | undefined;
  createDatabase(caller: Caller, name: string, throughput?: Throughput): Promise<Written<DatabaseState>>;
  deleteDatabase(caller: Caller, name: string, precondition?: Precondition): Promise<{ position: number }>;
  /**
   * Makes sure that a name which this node does not know is unknown everywhere, because another node may have created it a moment ago.
   * Without names, makes sure that a list is complete. Undefined if there is nothing to wait for.
   *
   * @param isSure also makes sure that the resource which has the name here still has it, and that its state here is current: another node
   *   may have deleted it and created another one of that name
   */
  settleNames(database: string | undefined, container: string | undefined, isSure?: boolean): Promise<void> | undefined;
  /**
   * Remembers which resource has a name now. The returned function checks on all nodes whether another resource has the name by then.
   * Undefined if there is only one node.
   */
  whoHas(database: string | undefined, container: string | undefined): (() => Promise<boolean>) | undefined;
  listContainers(database: string): readonly ContainerState[];
  /** @throws Refusal database-not-found, container-not-found */
  container(database: string, name: string): ContainerState;
  /**
   * A container by rid, also if it is deleted. A container that was deleted with its database says when and by whom
   * that was deleted.
   */
  containerByRid(rid: string): ContainerState | undefined;
  /**
   * Deleted containers of a name in databases of a name, which may be deleted too, newest first. Their history can
   * still be read by their rids.
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
   * Changes the throughput of a container or a database, given by rid as in an offer.
   *
   * @throws Refusal precondition-failed for another offer's etag, bad-request for an amount that is not allowed
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
   * Changes only a container's TTL, now or later.
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
