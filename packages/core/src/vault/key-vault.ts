import { containerPrefix } from '../item/stream-name.ts';
import type { MaybePromise } from '../maybe-promise.ts';
import { sameJson } from '../same-json.ts';
import { StorageUnavailable } from '../storage-unavailable.ts';

/** A life's key, usable by the {@link BodySealer} of the same adapter and opaque to everything else. */
export interface LifeKey {
  readonly keyId: number;
}

export interface NewLifeKey {
  readonly key: LifeKey;
  /**
   * Resolves when the key is durable. Nothing that is sealed with the key may become durable earlier. After a crash the
   * vault is sure to find the key only if something sealed with it is in the log.
   */
  readonly stored: Promise<unknown>;
}

export type KeyLookup =
  | { readonly status: 'there'; readonly key: LifeKey }
  | { readonly status: 'destroyed' }
  /** The vault never gave such a key to that life: something is damaged, or the vault does not belong to this log. */
  | { readonly status: 'unknown' };

export interface DestroyRequest {
  readonly keyId: number;
  /** The stream of the life that the key belongs to. */
  readonly stream: string;
  /** `_ts` of the life's last write, in seconds. A retention floor counts from it. */
  readonly lastWriteTs: number;
  /** Time of the life's last event, in milliseconds: its end, if it has ended. A change feed's floor counts from it. */
  readonly lastEventAtMs: number;
  /** The time of the decision, in milliseconds. */
  readonly nowMs: number;
  /** The erasure was requested explicitly: a change feed's floor does not prevent it. */
  readonly onDemand?: true;
}

export type DestroyOutcome =
  | {
      readonly kind: 'destroyed' | 'already-destroyed';
      /**
       * For a key that this call destroyed: the container's retention floor at that time, in seconds. Absent if there
       * was none.
       */
      readonly floorSeconds?: number;
      /** Until when known copies of the vault may still contain the key, in milliseconds. */
      readonly recoverableUntilMs?: number;
      /** How many destructions the vault has counted, with this one, if it counts them: see {@link KeyVault.destructions}. */
      readonly destructions?: number;
    }
  | { readonly kind: 'unknown' }
  /** Not destroyed, because the caller's `areDue` said so at the last moment. */
  | { readonly kind: 'not-due' }
  | { readonly kind: 'refused'; readonly holds: readonly string[]; readonly floorUntilMs: number | null };

/** The outcome for a key that no hold and no floor keeps. */
export function destroyedUnder({ retention }: ContainerFloors): DestroyOutcome & { readonly kind: 'destroyed' } {
  return { kind: 'destroyed', ...(retention === undefined ? {} : { floorSeconds: retention }) };
}

/** The secret that names a container's streams is damaged or lost. Everything else in the vault may be intact. */
export class UnreadableSecret extends StorageUnavailable {
  override readonly name = 'UnreadableSecret';
  override readonly isForOperator = true;
}

/** What a legal hold covers: a whole container, some lives, or all lives whose stream name begins with a prefix. */
export type HoldScope =
  | { readonly kind: 'container'; readonly containerRid: string }
  | { readonly kind: 'lives'; readonly streams: readonly string[] }
  | { readonly kind: 'stream-prefix'; readonly prefix: string }
  | { readonly kind: 'stream-prefixes'; readonly prefixes: readonly string[] };

/** True when a hold of that scope covers the life with that stream. */
export function covers(scope: HoldScope, stream: string): boolean {
  if (scope.kind === 'lives') return scope.streams.includes(stream);
  return prefixesOf(scope).some((prefix) => stream.startsWith(prefix));
}

/** True if both scopes cover the same lives. */
function isSameScope(one: HoldScope, other: HoldScope): boolean {
  if (one.kind !== 'lives' || other.kind !== 'lives') return sameJson(one, other);
  const streams = new Set(one.streams);
  return streams.size === new Set(other.streams).size && other.streams.every((stream) => streams.has(stream));
}

/** True if a hold in the vault is not what an earlier attempt of this request to place a new hold would have left there. */
export function isOfAnother(
  standing: Pick<VaultHold, 'scope' | 'placedAtMs'>,
  { scope, placedAtMs }: Pick<VaultHold, 'scope' | 'placedAtMs'>,
): boolean {
  return standing.placedAtMs === placedAtMs || !isSameScope(standing.scope, scope);
}

/** The prefixes of the names of the streams that a scope covers. Empty for a scope that lists lives. */
export function prefixesOf(scope: HoldScope): readonly string[] {
  switch (scope.kind) {
    case 'container':
      return [containerPrefix(scope.containerRid)];
    case 'stream-prefix':
      return [scope.prefix];
    case 'stream-prefixes':
      return scope.prefixes;
    case 'lives':
      return [];
  }
}

/** A scope that covers all that either of two scopes of a container covers. The first scope itself if it already does. */
export function widened(scope: HoldScope, other: HoldScope, containerRid: string): HoldScope {
  if (scope.kind === 'lives' && other.kind === 'lives') {
    const streams = new Set([...scope.streams, ...other.streams]);
    return streams.size === scope.streams.length ? scope : { kind: 'lives', streams: [...streams] };
  }
  const prefixes = prefixesOf(scope);
  const names = other.kind === 'lives' ? other.streams : prefixesOf(other);
  const further = names.filter((name) => !prefixes.some((prefix) => name.startsWith(prefix)));
  if (further.length === 0) return scope;
  // Scopes of different kinds have no common prefix but that of the container.
  return scope.kind === 'stream-prefixes' && other.kind === 'stream-prefixes'
    ? { kind: 'stream-prefixes', prefixes: [...prefixes, ...further] }
    : { kind: 'container', containerRid };
}

/**
 * Why the keys of a container are kept for a time. `retention`: an operator's minimum time, counted from the last
 * write. `change-feed`: the time for which a change feed shows all versions, counted from the life's last event. Each
 * applies independently of the other.
 */
export const floorKinds = ['retention', 'change-feed'] as const;
export type FloorKind = (typeof floorKinds)[number];

/** The floors that are set on a container, in seconds. */
export type ContainerFloors = Readonly<Partial<Record<FloorKind, number>>>;

/**
 * A longer floor in a vault can't have been set by anybody, so it is damaged. It is treated as this one: the keys are
 * kept, and the value can be calculated with.
 */
export const LONGEST_FLOOR_SECONDS = 2_147_483_647;

/** When the last of a container's floors over a key will have passed, in milliseconds. Null if no floor is in the way. */
export function floorUntil(
  floors: ContainerFloors,
  request: Pick<DestroyRequest, 'lastWriteTs' | 'lastEventAtMs' | 'nowMs' | 'onDemand'>,
): number | null {
  const { lastWriteTs, lastEventAtMs, nowMs, onDemand } = request;
  const feedSeconds = onDemand === true ? undefined : floors['change-feed'];
  const untilMs = Math.max(
    floors.retention === undefined ? 0 : (lastWriteTs + floors.retention) * 1000,
    feedSeconds === undefined ? 0 : lastEventAtMs + feedSeconds * 1000,
  );
  return untilMs > nowMs ? untilMs : null;
}

/** See {@link KeyVault.setFloor}. */
export interface SetFloorOptions {
  readonly mayLower?: boolean;
  readonly from?: number;
}

/** Whether a floor that is `now` seconds long may be set to a new value. 0 stands for no floor. */
export const isFloorToSet = (now: number, seconds: number, { mayLower = true, from = now }: SetFloorOptions): boolean =>
  now === from && (mayLower || now <= seconds);

export interface VaultHold {
  readonly holdId: string;
  readonly containerRid: string;
  readonly scope: HoldScope;
  readonly placedAtMs: number;
  /** The hold's scope can't be read any more. Everything in its container is kept until the hold is placed again. */
  readonly isDamaged?: true;
}

/** For what the caller wants a key. */
export interface KeyUse {
  /** The caller needs the key once, among many others, so the vault should not cache it in place of keys in use. */
  readonly once?: boolean;
}

/**
 * Keeps the key of every life, outside the log. Once a key is destroyed, no copy of a body sealed with it can be read.
 * So the vault, and only the vault, decides whether a key may be destroyed: it stores holds and floors beside the keys,
 * and checks them in the transaction that destroys.
 *
 * An adapter MUST
 * - never give out a key id twice, not even after a crash or a destruction, and never 0, which stands for a key yet to
 *   be made;
 * - wrap keys with the master key before they reach a disk;
 * - before `destroyKeys` resolves, erase a destroyed key from every file that it keeps, or make what is left of it
 *   worthless in the same way; if there are files that it can't reach, say until when they are kept;
 * - refuse to destroy a key that a hold or a floor covers, if `placeHold` or `setFloor` had resolved before;
 * - tell apart a key that is there, one that was destroyed and one it never knew, and answer `unknown` for a key that
 *   was given to another life.
 */
export interface KeyVault {
  createKey(stream: string): MaybePromise<NewLifeKey>;
  findKey(keyId: number, stream: string, use?: KeyUse): MaybePromise<KeyLookup>;
  /**
   * Returns one outcome for each request, in order.
   *
   * @param areDue for a vault that several nodes use: says for each request whether its key is still to be destroyed.
   *   From this call on until `destroyKeys` is done, no other node can change the vault. See
   *   {@link destructionsUnderWay}
   */
  destroyKeys(
    requests: readonly DestroyRequest[],
    areDue?: () => Promise<readonly boolean[]>,
  ): Promise<DestroyOutcome[]>;
  /**
   * Resolves when every call of `destroyKeys`, on any node, that has already called its `areDue` has ended. Absent if
   * there are no other nodes.
   */
  destructionsUnderWay?(): Promise<void>;
  /**
   * For a vault on a server that may be replaced by an older copy of itself, which lacks the newest holds and floors.
   * The vault calls `settle` before it destroys anything on such a server. Absent if the vault can't be replaced while
   * it is open.
   *
   * @param settle makes the vault keep everything that must be kept according to the log
   */
  onServerReplaced?(settle: () => Promise<void>): void;
  /**
   * For a vault that may lack secrets that are in use, because it has lost rows or its server was replaced by an older
   * copy. The vault calls `check` before it makes a new secret.
   *
   * @param check rejects if something was already named by another secret of that container
   */
  onNewSecret?(check: (containerRid: string) => Promise<void>): void;
  /**
   * For a vault on a server, which calls `forget` when it loses the connection. Cached secrets must then be asked for
   * again, because the next server may be another one with other secrets.
   */
  onConnectionLost?(forget: () => void): void;

  /**
   * Placing a hold again under the same id replaces it, so that placing can be retried.
   *
   * @param options.isNew leaves an existing hold of that id alone if it covers something else, or was placed at the
   *   very same time: another node may have placed it
   * @returns false if an existing hold was left alone
   */
  placeHold(hold: VaultHold, options?: { readonly isNew?: boolean }): Promise<boolean>;
  /**
   * Releasing a hold that does not exist is no error.
   *
   * @param options.placedAtMs releases the hold only if it was placed at that time: another node may have placed it
   *   again
   */
  releaseHold(holdId: string, options?: { readonly placedAtMs?: number | undefined }): Promise<void>;
  /** All holds, or those of one container. */
  holds(containerRid?: string): MaybePromise<VaultHold[]>;
  /** For each life, in order, the ids of the holds that cover it. Holds that cover none of these lives are not read. */
  holdsOn(streams: readonly string[]): MaybePromise<string[][]>;
  /**
   * Sets for how many seconds no key of the container may be destroyed, counted as the kind says. 0 removes this floor.
   *
   * @param options.mayLower false leaves a higher floor alone: another node may have raised it
   * @param options.from leaves the floor alone unless it is this many seconds now: another node may have changed it
   */
  setFloor(containerRid: string, kind: FloorKind, seconds: number, options?: SetFloorOptions): Promise<void>;
  /** By the container's rid, the floors of each container with a floor. */
  floors(): MaybePromise<ReadonlyMap<string, ContainerFloors>>;

  /**
   * How many destructions this vault has counted, if it keeps no ledger of them. An older copy of the vault has a lower
   * count. Absent if there is a ledger.
   */
  destructions?(): Promise<number>;

  /**
   * The secret of 32 bytes of the container or database with that rid, made when it is first asked for. A container's
   * is the key of its keyed hashes, a database's is for the resource tokens of its users.
   */
  containerSecret(containerRid: string): Promise<Uint8Array>;

  close(): Promise<void>;
}
