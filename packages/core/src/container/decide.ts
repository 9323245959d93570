import { unreachable } from '../invariant.ts';
import { decideInitialThroughput, decideThroughput, type ThroughputRefusal } from '../throughput/provisioning.ts';
import { isTtlOn } from '../ttl/policy-timeline.ts';
import type { DefaultTtl } from '../ttl/ttl-value.ts';
import type { ContainerCommand, ReplaceContainer } from './commands.ts';
import type { ContainerDefinition } from './definition.ts';
import type { ContainerEvent } from './events.ts';
import type { ContainerState } from './state.ts';

export type ContainerRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  | { readonly reason: 'partition-key-fixed' }
  /** The rid was taken by another name: the caller goes on to the next candidate. */
  | { readonly reason: 'rid-taken' }
  | { readonly reason: 'ttl-needs-indexing' }
  | ThroughputRefusal;

export type ContainerDecision =
  | { readonly kind: 'accepted'; readonly events: readonly ContainerEvent[] }
  | { readonly kind: 'refused'; readonly refusal: ContainerRefusal };

const refuse = (
  reason: Exclude<ContainerRefusal['reason'], ThroughputRefusal['reason']> | 'precondition-failed',
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
  if (state === undefined || state.status === 'deleted') return refuse('not-found');
  switch (command.type) {
    case 'ReplaceContainer':
      return decideReplace(state, command);
    case 'ChangePolicyGrace':
      if (command.seconds === state.policyGraceSeconds) return accept();
      return accept({
        type: 'PolicyGraceChanged',
        data: {
          fromSeconds: state.policyGraceSeconds,
          toSeconds: command.seconds,
          ...(command.reason === undefined ? {} : { reason: command.reason }),
        },
      });
    case 'ChangeThroughput':
      return decideThroughput(state, command);
    case 'DeleteContainer':
      if (etagDiffers(state, command)) return refuse('precondition-failed');
      return accept({ type: 'ContainerDeleted', data: {} });
    default:
      return unreachable(command);
  }
}

function decideReplace(
  state: ContainerState,
  command: ReplaceContainer & { readonly nowMs: number },
): ContainerDecision {
  if (etagDiffers(state, command)) return refuse('precondition-failed');
  if (!sameJson(state.definition.partitionKey, command.definition.partitionKey)) return refuse('partition-key-fixed');
  if (ttlWithoutIndex(command.definition, command.defaultTtl)) return refuse('ttl-needs-indexing');
  const events: ContainerEvent[] = [];
  if (!sameJson(state.definition, command.definition)) {
    events.push({ type: 'ContainerReplaced', data: { definition: command.definition } });
  }
  const current = state.timeline.at(-1)!;
  if (current.defaultTtl !== command.defaultTtl) {
    events.push({
      type: 'ContainerTtlChanged',
      data: {
        from: current.defaultTtl,
        to: command.defaultTtl,
        policyVersion: current.version + 1,
        // Never before the policy it follows, even if a clock stood still in between.
        effectiveFromMs: Math.max(command.nowMs, current.fromMs),
        ...(command.reason === undefined ? {} : { reason: command.reason }),
      },
    });
  }
  return accept(...events);
}

/** Expiry looks items up by their times, so Cosmos DB refuses a TTL on a container that keeps no index. */
function ttlWithoutIndex(definition: ContainerDefinition, defaultTtl: DefaultTtl): boolean {
  return definition.indexingPolicy.indexingMode === 'none' && isTtlOn(defaultTtl);
}

function etagDiffers(state: ContainerState, { ifMatch }: { readonly ifMatch?: string | undefined }): boolean {
  return ifMatch !== undefined && ifMatch !== '*' && ifMatch !== state.etag;
}

/** Equal as JSON, whatever the order of an object's properties. */
function sameJson(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (typeof left !== 'object' || typeof right !== 'object' || left === null || right === null) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const leftKeys = Object.keys(left);
  if (leftKeys.length !== Object.keys(right).length) return false;
  return leftKeys.every(
    (key) =>
      Object.hasOwn(right, key) &&
      sameJson((left as Record<string, unknown>)[key], (right as Record<string, unknown>)[key]),
  );
}
