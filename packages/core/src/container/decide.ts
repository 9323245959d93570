import { type Decision, etagDiffers } from '../decision.ts';
import { invariant, unreachable } from '../invariant.ts';
import { hasPseudonymousIds } from '../item/pseudonym.ts';
import { isRetentionCommand } from '../retention/commands.ts';
import { decideRetention, type RetentionRefusal } from '../retention/decide.ts';
import { sameJson } from '../same-json.ts';
import { decideInitialThroughput, decideThroughput, type ThroughputRefusal } from '../throughput/provisioning.ts';
import { isTtlOn } from '../ttl/policy-timeline.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import type { ChangeTtl, ContainerCommand, ExpiringAtOnce, ReplaceContainer } from './commands.ts';
import type { ContainerDefinition } from './definition.ts';
import type { ContainerEvent, TtlBrake } from './events.ts';
import type { ContainerState, RecordedPolicy } from './state.ts';

export type ContainerRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  | { readonly reason: 'partition-key-fixed' }
  | { readonly reason: 'unique-keys-fixed' }
  | { readonly reason: 'client-encryption-fixed' }
  | { readonly reason: 'pseudonymous-ids-fixed' }
  | { readonly reason: 'clear-paths-fixed' }
  /** The rid is taken by another name: the caller tries the next candidate. */
  | { readonly reason: 'rid-taken' }
  | { readonly reason: 'ttl-needs-indexing' }
  /** The change would make more items expire at once than the container's brake allows without confirmation. */
  | ({ readonly reason: 'braked'; readonly brake: TtlBrake } & ExpiringAtOnce)
  /** Another TTL change is scheduled. It must be withdrawn first. */
  | { readonly reason: 'ttl-change-scheduled'; readonly effectiveFromMs: number }
  | { readonly reason: 'nothing-scheduled' }
  | RetentionRefusal
  | ThroughputRefusal;

export type ContainerDecision = Decision<ContainerEvent, ContainerRefusal>;

const refuse = (
  reason:
    | Exclude<
        ContainerRefusal['reason'],
        ThroughputRefusal['reason'] | RetentionRefusal['reason'] | 'braked' | 'ttl-change-scheduled'
      >
    | 'precondition-failed',
): ContainerDecision => ({ kind: 'refused', refusal: { reason } });
const accept = (...events: ContainerEvent[]): ContainerDecision => ({ kind: 'accepted', events });

/** Decides a command on one container. Pure: the time is in the command. */
export function decideContainer(state: ContainerState | undefined, command: ContainerCommand): ContainerDecision {
  if (command.type === 'CreateContainer') {
    if (state !== undefined) {
      const sameLive =
        state.status === 'live' && state.name === command.name && state.databaseRid === command.databaseRid;
      return refuse(sameLive ? 'already-exists' : 'rid-taken');
    }
    if (ttlWithoutIndex(command.definition, command.defaultTtl)) return refuse('ttl-needs-indexing');
    const { type: _, nowMs: __, throughput, ...data } = command;
    const provisioned = decideInitialThroughput(throughput);
    if (provisioned.kind === 'refused') return provisioned;
    return accept({ type: 'ContainerCreated', data }, ...provisioned.events);
  }
  if (state === undefined) return refuse('not-found');
  // Content may be kept for longer than its container exists, so holds and floors can be changed on a deleted one.
  if (isRetentionCommand(command)) return decideRetention(state.retention, command);
  if (state.status === 'deleted') return refuse('not-found');
  switch (command.type) {
    case 'ReplaceContainer':
      return decideReplace(state, command);
    case 'ChangeTtl': {
      if (ttlWithoutIndex(state.definition, command.defaultTtl)) return refuse('ttl-needs-indexing');
      const change = decideTtl(state, command);
      return 'kind' in change ? change : accept(...change.events);
    }
    case 'WithdrawTtl': {
      // A change that begins so soon that another node may not hear of the withdrawal in time counts as in force already.
      const scheduled = scheduledPolicy(state, command.nowMs + (command.policyDelayMs ?? 0));
      if (scheduled === undefined) return refuse('nothing-scheduled');
      return accept({
        type: 'ContainerTtlWithdrawn',
        data: {
          policyVersion: scheduled.version,
          effectiveFromMs: scheduled.fromMs,
          ...reasonOf(command),
        },
      });
    }
    case 'ChangeTtlBrake':
      if (sameJson(command.brake, state.brake ?? null)) return accept();
      return accept({
        type: 'TtlBrakeChanged',
        data: { from: state.brake ?? null, to: command.brake, ...reasonOf(command) },
      });
    case 'ChangePolicyGrace':
      if (command.seconds === state.policyGraceSeconds) return accept();
      return accept({
        type: 'PolicyGraceChanged',
        data: {
          fromSeconds: state.policyGraceSeconds,
          toSeconds: command.seconds,
          ...reasonOf(command),
        },
      });
    case 'ChangeThroughput':
      return decideThroughput(state, command);
    case 'DeletePartitionKey':
      return accept({ type: 'PartitionKeyDeleted', data: { partitionKey: command.partitionKey } });
    case 'CompletePartitionKeyDelete': {
      const pending = state.partitionKeyDeletes.find(({ position }) => position === command.position);
      if (pending === undefined) return accept();
      const { partitionKey, position } = pending;
      return accept({ type: 'PartitionKeyDeleteCompleted', data: { partitionKey, position } });
    }
    case 'DeleteContainer':
      if (hasOtherEtag(state, command)) return refuse('precondition-failed');
      return accept(...(command.afterLoss === true ? [ttlAfterLoss(state, command)] : []), {
        type: 'ContainerDeleted',
        data: {},
      });
    default:
      return unreachable(command);
  }
}

function decideReplace(
  state: ContainerState,
  command: ReplaceContainer & Pick<ContainerCommand, 'nowMs' | 'policyDelayMs'>,
): ContainerDecision {
  if (hasOtherEtag(state, command)) return refuse('precondition-failed');
  if (!sameJson(state.definition.partitionKey, command.definition.partitionKey)) return refuse('partition-key-fixed');
  if (!sameJson(uniqueKeysOf(state.definition), uniqueKeysOf(command.definition))) return refuse('unique-keys-fixed');
  if (!sameJson(clientEncryptionOf(state.definition), clientEncryptionOf(command.definition))) {
    return refuse('client-encryption-fixed');
  }
  // Events are never rewritten, so a container can't change from one kind of name to the other.
  if (hasPseudonymousIds(state.definition) !== hasPseudonymousIds(command.definition)) {
    return refuse('pseudonymous-ids-fixed');
  }
  // Copies are made when items are written. Existing items would lack them, or keep old ones.
  if (!sameJson(clearPathsOf(state.definition), clearPathsOf(command.definition))) return refuse('clear-paths-fixed');
  // A scheduled TTL would otherwise start in a container that has no index any more.
  const ttls = [command.defaultTtl, scheduledPolicy(state, command.nowMs)?.defaultTtl ?? null];
  if (ttls.some((defaultTtl) => ttlWithoutIndex(command.definition, defaultTtl))) return refuse('ttl-needs-indexing');
  const events: ContainerEvent[] = [];
  if (!sameJson(state.definition, command.definition)) {
    events.push({ type: 'ContainerReplaced', data: { definition: command.definition } });
  }
  const ttl = decideTtl(state, { ...command, confirmed: false });
  return 'kind' in ttl ? ttl : accept(...events, ...ttl.events);
}

/**
 * The events of a TTL change, if it is one. Refused while another change is scheduled, and past the brake without
 * confirmation.
 */
function decideTtl(
  state: ContainerState,
  command: Pick<ChangeTtl, 'defaultTtl' | 'effectiveFromMs' | 'confirmed' | 'reason' | 'afterLoss'> & {
    readonly expiring?: ExpiringAtOnce | undefined;
    readonly nowMs: number;
    readonly policyDelayMs?: number | undefined;
  },
): ContainerDecision | { readonly events: readonly ContainerEvent[] } {
  const { nowMs, defaultTtl, expiring, confirmed } = command;
  const current = currentPolicy(state, nowMs);
  const isLater = command.effectiveFromMs !== undefined && command.effectiveFromMs > nowMs;
  const afterLoss = command.afterLoss === true && confirmed && !isLater;
  if (current.defaultTtl === defaultTtl && !afterLoss) return { events: [] };
  const scheduled = scheduledPolicy(state, nowMs);
  if (scheduled !== undefined) {
    return { kind: 'refused', refusal: { reason: 'ttl-change-scheduled', effectiveFromMs: scheduled.fromMs } };
  }
  const { brake } = state;
  let isBraked = false;
  if (brake !== undefined) {
    invariant(expiring !== undefined, 'what a TTL change makes expire is counted where there is a brake');
    isBraked = isAbove(brake, expiring);
    if (isBraked && !confirmed) return { kind: 'refused', refusal: { reason: 'braked', brake, ...expiring } };
  }
  return {
    events: [
      {
        type: 'ContainerTtlChanged',
        data: {
          from: current.defaultTtl,
          to: defaultTtl,
          policyVersion: nextVersion(state),
          // Never before the policy that it follows, even if the clock stood still in between.
          effectiveFromMs: Math.max(
            nowMs + (command.policyDelayMs ?? 0),
            current.fromMs,
            command.effectiveFromMs ?? nowMs,
          ),
          ...reasonOf(command),
          ...(isLater ? { scheduled: true as const } : {}),
          ...(expiring === undefined ? {} : { expiringAtOnce: expiring }),
          ...(isBraked ? { confirmed: true as const } : {}),
          ...(afterLoss ? { afterLoss } : {}),
        },
      },
    ],
  };
}

/**
 * Records the present policy again, starting when the container is deleted. So its items end by the deletion, not by an
 * earlier policy, because what the earlier policies were may be lost.
 */
function ttlAfterLoss(state: ContainerState, { nowMs }: Pick<ContainerCommand, 'nowMs'>): ContainerEvent {
  const { defaultTtl } = currentPolicy(state, nowMs);
  const policy = { policyVersion: nextVersion(state), effectiveFromMs: nowMs };
  return { type: 'ContainerTtlChanged', data: { from: defaultTtl, to: defaultTtl, ...policy, afterLoss: true } };
}

const nextVersion = ({ timeline, withdrawnVersion = 0 }: ContainerState): number =>
  Math.max(timeline.at(-1)!.version, withdrawnVersion) + 1;

/** The newest policy, not counting one that is scheduled for later. */
export function currentPolicy({ timeline }: ContainerState, nowMs: number): RecordedPolicy {
  return timeline.findLast(({ fromMs, scheduled }) => fromMs <= nowMs || scheduled !== true) ?? timeline[0]!;
}

/** The TTL policy that is recorded and scheduled for later. */
export function scheduledPolicy(state: ContainerState, nowMs: number): RecordedPolicy | undefined {
  const last = state.timeline.at(-1)!;
  return last.scheduled === true && last.fromMs > nowMs ? last : undefined;
}

const clearPathsOf = ({ epitaph }: ContainerDefinition) => epitaph?.clearPaths ?? [];

const clientEncryptionOf = ({ clientEncryptionPolicy }: ContainerDefinition) => clientEncryptionPolicy ?? null;

/** A unique key policy without keys counts as none. */
const uniqueKeysOf = ({ uniqueKeyPolicy }: ContainerDefinition) => uniqueKeyPolicy?.uniqueKeys ?? [];

function isAbove({ maxItems, maxShare }: TtlBrake, { items, of }: ExpiringAtOnce): boolean {
  // Divided and not multiplied: in floating point 0.29 × 100 is less than 29.
  return (maxItems !== undefined && items > maxItems) || (maxShare !== undefined && of > 0 && items / of > maxShare);
}

function reasonOf({ reason }: { readonly reason?: string | undefined }): { readonly reason?: string } {
  return reason === undefined ? {} : { reason };
}

/** Expiry looks items up by their times, so Cosmos DB refuses a TTL on a container without an index. */
function ttlWithoutIndex(definition: ContainerDefinition, defaultTtl: DefaultTtl): boolean {
  return definition.indexingPolicy.indexingMode === 'none' && isTtlOn(defaultTtl);
}

/**
 * A container's `_etag` at an instant. When a scheduled policy starts, the `defaultTtl` that clients see changes
 * without an event at that time. So the etag changes too: a client that read the container before must not undo the
 * policy unknowingly.
 */
export function containerEtag(state: ContainerState, nowMs: number): string {
  const { version, fromMs, scheduled } = currentPolicy(state, nowMs);
  const hasBegun = scheduled === true && fromMs > state.changedAtMs;
  return hasBegun ? `${state.etag.slice(0, -1)}.${version}"` : state.etag;
}

function hasOtherEtag(
  state: ContainerState,
  { ifMatch, nowMs }: { readonly ifMatch?: string | undefined; readonly nowMs: number },
): boolean {
  return ifMatch !== undefined && etagDiffers(containerEtag(state, nowMs), ifMatch);
}
