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
   * Resolves when the key is durable; it may be found again after a crash only if something sealed with it is in the log then.
   * Nothing sealed with it may become durable earlier.
   */
  readonly stored: Promise<unknown>;
}

export type KeyLookup =
  | { readonly status: 'there'; readonly key: LifeKey }
  | { readonly status: 'destroyed' }
  /** No such key was ever given to that life: damage, or a vault that does not belong to this log. */
  | { readonly status: 'unknown' };

export interface DestroyRequest {
  readonly keyId: number;
  /** The stream of the life that the key belongs to. */
  readonly stream: string;
  /** `_ts` of the life's last write, in seconds; what a retention floor counts from. */
  readonly lastWriteTs: number;
  /** Time of the life's last event, in milliseconds: its end, if it has one. What a change feed's floor counts from. */
  readonly lastEventAtMs: number;
  /** The time of the decision, in milliseconds. */
  readonly nowMs: number;
  /** Somebody has demanded the erasure: a change feed's floor does not stand against that. */
  readonly onDemand?: true;
}

export type DestroyOutcome =
  | {
      readonly kind: 'destroyed' | 'already-destroyed';
      /** Of a key that goes by this call: the container's retention floor by then, in seconds; absent where there is none. */
      readonly floorSeconds?: number;
      /** Until when copies of the vault that are known to be kept could still give the key away, in milliseconds. */
      readonly recoverableUntilMs?: number;
      /** How often the vault had destroyed keys by then, with this time, where it counts that: see {@link KeyVault.destructions}. */
      readonly destructions?: number;
    }
  | { readonly kind: 'unknown' }
  /** Not destroyed, for whoever asked says so at the last moment. */
  | { readonly kind: 'not-due' }
  | { readonly kind: 'refused'; readonly holds: readonly string[]; readonly floorUntilMs: number | null };

/** What becomes of a key that nothing keeps. */
export function destroyedUnder({ retention }: ContainerFloors): DestroyOutcome & { readonly kind: 'destroyed' } {
  return { kind: 'destroyed', ...(retention === undefined ? {} : { floorSeconds: retention }) };
}

/** The secret that a container's streams are named with is damaged or lost. All else in the vault may be sound. */
export class UnreadableSecret extends StorageUnavailable {
  override readonly name = 'UnreadableSecret';
  override readonly isForOperator = true;
}

/** What a legal hold covers: everything, some lives, or what begins with a prefix of a life's stream name. */
export type HoldScope =
  | { readonly kind: 'container'; readonly containerRid: string }
  | { readonly kind: 'lives'; readonly streams: readonly string[] }
  | { readonly kind: 'stream-prefix'; readonly prefix: string }
  | { readonly kind: 'stream-prefixes'; readonly prefixes: readonly string[] };

/** True when a hold of that scope covers the life of that stream. */
export function covers(scope: HoldScope, stream: string): boolean {
  if (scope.kind === 'lives') return scope.streams.includes(stream);
  return prefixesOf(scope).some((prefix) => stream.startsWith(prefix));
}

/** True of scopes that name the same. */
function isSameScope(one: HoldScope, other: HoldScope): boolean {
  if (one.kind !== 'lives' || other.kind !== 'lives') return sameJson(one, other);
  const streams = new Set(one.streams);
  return streams.size === new Set(other.streams).size && other.streams.every((stream) => streams.has(stream));
}

/** True of a hold that is not what a request for a new one of its id would have left before. */
export function isOfAnother(
  standing: Pick<VaultHold, 'scope' | 'placedAtMs'>,
  { scope, placedAtMs }: Pick<VaultHold, 'scope' | 'placedAtMs'>,
): boolean {
  return standing.placedAtMs === placedAtMs || !isSameScope(standing.scope, scope);
}

/** What the names of the streams that a scope covers begin with; none for one that names lives. */
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

/** What either of two scopes of a container covers: the first itself, where the other covers nothing else. */
export function widened(scope: HoldScope, other: HoldScope, containerRid: string): HoldScope {
  if (scope.kind === 'lives' && other.kind === 'lives') {
    const streams = new Set([...scope.streams, ...other.streams]);
    return streams.size === scope.streams.length ? scope : { kind: 'lives', streams: [...streams] };
  }
  const prefixes = prefixesOf(scope);
  const names = other.kind === 'lives' ? other.streams : prefixesOf(other);
  const further = names.filter((name) => !prefixes.some((prefix) => name.startsWith(prefix)));
  if (further.length === 0) return scope;
  // What is named in different ways has no name in common but that of the container.
  return scope.kind === 'stream-prefixes' && other.kind === 'stream-prefixes'
    ? { kind: 'stream-prefixes', prefixes: [...prefixes, ...further] }
    : { kind: 'container', containerRid };
}

/**
 * Why keys of a container are kept for a time: `retention`, an operator's least time from the last write, and
 * `change-feed`, the time from the life's last event for which a feed shows all versions. Neither lifts the other.
 */
export const floorKinds = ['retention', 'change-feed'] as const;
export type FloorKind = (typeof floorKinds)[number];

/** The floors of a container that there are, in seconds. */
export type ContainerFloors = Readonly<Partial<Record<FloorKind, number>>>;

/** What stands in a vault as a longer floor, which nobody can have set, counts as this: it keeps what it covers, and can be reckoned with. */
export const LONGEST_FLOOR_SECONDS = 2_147_483_647;

/** When the last of a container's floors under a key has passed, in milliseconds, or null when none is in the way. */
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

/** Whether a floor is to be set that has so many seconds now; 0 stands for none. */
export const isFloorToSet = (now: number, seconds: number, { mayLower = true, from = now }: SetFloorOptions): boolean =>
  now === from && (mayLower || now <= seconds);

export interface VaultHold {
  readonly holdId: string;
  readonly containerRid: string;
  readonly scope: HoldScope;
  readonly placedAtMs: number;
  /** What it covers can't be read any more: all of its container is kept until it is placed again. */
  readonly isDamaged?: true;
}

/** What a key is wanted for. */
export interface KeyUse {
  /** It is wanted this once, among many: a vault does well not to keep it in memory in the place of others. */
  readonly once?: boolean;
}

/**
 * Keeps the key of every life, outside the log. A destroyed key is what makes every copy of a body unreadable, so
 * the vault, and only the vault, decides whether a key may go: holds and floors stand beside the keys, and
 * are checked in the transaction that destroys.
 *
 * An adapter MUST
 * - never hand out a key id twice, not even after a crash or a destruction, and never 0, which stands for a key yet
 *   to be made;
 * - wrap keys with the master key before they reach a disk;
 * - have erased a destroyed key from every file it keeps, or made what is left of it worthless in the same way,
 *   before `destroyKeys` resolves; where files are kept that it can't reach, it says until when;
 * - refuse to destroy a key that a hold or a floor covers, if `placeHold` or `setFloor` had resolved before;
 * - tell apart a key that is there, one that was destroyed and one it never knew, and answer `unknown` for a key
 *   that was given to another life.
 */
export interface KeyVault {
  createKey(stream: string): MaybePromise<NewLifeKey>;
  findKey(keyId: number, stream: string, use?: KeyUse): MaybePromise<KeyLookup>;
  /**
   * One outcome for each request, in order.
   *
   * @param areDue whether each of them is still to be destroyed, for a vault that other nodes use: asked when nobody else
   *   can change the vault until it is done. See {@link destructionsUnderWay}
   */
  destroyKeys(
    requests: readonly DestroyRequest[],
    areDue?: () => Promise<readonly boolean[]>,
  ): Promise<DestroyOutcome[]>;
  /**
   * Resolves when every call of `destroyKeys`, by any node, has ended that has asked by now which keys are due. Absent where
   * there are no other nodes.
   */
  destructionsUnderWay?(): Promise<void>;
  /**
   * For a vault on a server whose place an older copy may take, which then knows nothing of the holds and floors since: has this done
   * before anything is destroyed there. Absent where nothing takes the vault's place while it is open.
   *
   * @param settle makes the vault keep what is on record to be kept
   */
  onServerReplaced?(settle: () => Promise<void>): void;
  /**
   * For a vault that may lack secrets which are in use, as where rows of it are lost, or an older copy takes the place of its
   * server: has this done before it makes one.
   *
   * @param check rejects where something was named by another one
   */
  onNewSecret?(check: (containerRid: string) => Promise<void>): void;
  /** For a vault on a server: has secrets that were given asked for anew, for the server may be another one, with others. */
  onConnectionLost?(forget: () => void): void;

  /**
   * Placing a hold again under its id replaces it, so that placing can be retried.
   *
   * @param options.isNew leaves a hold of that id alone which covers something else, or was placed at that very time: another
   *   node may have placed it
   * @returns false where one was left alone
   */
  placeHold(hold: VaultHold, options?: { readonly isNew?: boolean }): Promise<boolean>;
  /**
   * Releasing a hold that is not there is no error.
   *
   * @param options.placedAtMs only the one that was placed at that time: another node may have placed it anew
   */
  releaseHold(holdId: string, options?: { readonly placedAtMs?: number | undefined }): Promise<void>;
  /** All of them, or those of a container. */
  holds(containerRid?: string): MaybePromise<VaultHold[]>;
  /** For each of some lives, in order, the ids of the holds that cover it. Asks no hold that covers none of them. */
  holdsOn(streams: readonly string[]): MaybePromise<string[][]>;
  /**
   * Seconds during which no key of the container may go, counted as the kind has it; 0 lifts this floor.
   *
   * @param options.mayLower false leaves a floor alone that is higher: another node may have raised it
   * @param options.from leaves it alone unless it is so many seconds now: another node may have changed it
   */
  setFloor(containerRid: string, kind: FloorKind, seconds: number, options?: SetFloorOptions): Promise<void>;
  /** By container, those that have any. */
  floors(): MaybePromise<ReadonlyMap<string, ContainerFloors>>;

  /**
   * How often this has destroyed keys, for a vault that keeps no ledger of that: a copy from before has counted less.
   * Absent where there is a ledger.
   */
  destructions?(): Promise<number>;

  /**
   * The own secret of 32 bytes of what has that rid, made when first asked for: a container's for keyed hashes, a
   * database's for the resource tokens of its users.
   */
  containerSecret(containerRid: string): Promise<Uint8Array>;

  close(): Promise<void>;
}
