import { type Decision, etagDiffers } from '../decision.ts';
import { invariant, unreachable } from '../invariant.ts';
import { expiryOf } from '../ttl/expiry.ts';
import { isTtlOn, policyToDecideBy } from '../ttl/policy-timeline.ts';
import { isExpired, watermarks } from '../ttl/watermarks.ts';
import type {
  DeleteItem,
  ItemCommand,
  LeftWithPartitionKey,
  OnLife,
  RecordExpiry,
  RecordPartitionKeyDelete,
  RecordPurge,
  RecoverItem,
  WriteItem,
} from './commands.ts';
import type { ItemEvent } from './events.ts';
import type { ItemState } from './state.ts';

export type ItemRefusal =
  | { readonly reason: 'not-found' }
  | { readonly reason: 'already-exists' }
  | { readonly reason: 'precondition-failed' }
  | { readonly reason: 'invalid-ttl'; readonly value: unknown }
  /** Another item of the partition key has one of the document's values of a unique key. */
  | { readonly reason: 'unique-key-taken' }
  /** The life is in another state than the purge assumed. There is nothing to do. */
  | { readonly reason: 'not-due' };

export type ItemDecision =
  | Decision<ItemEvent, ItemRefusal>
  /**
   * The life is overdue, or left with its partition key: its end is recorded first, then the command is decided again
   * on the next life.
   */
  | { readonly kind: 'end-first'; readonly event: ItemEvent }
  /** The life has ended: the command is for the next one. */
  | { readonly kind: 'next-life' };

/** Stands in a decided ItemUpserted for the key of a new life. The caller replaces it by the real key when it seals the body. */
export const NEW_KEY = 0;

/** Decides a command on one life. Pure: the time and the policies are in the command. */
export function decideItem(state: ItemState, command: ItemCommand): ItemDecision {
  switch (command.type) {
    case 'WriteItem':
      return onLife(state, command, decideWrite);
    case 'RecoverItem':
      return onLife(state, command, decideRecovery);
    case 'DeleteItem':
      return onLife(state, command, decideDelete);
    case 'RecordExpiry':
      return decideExpiry(state, command);
    case 'RecordPartitionKeyDelete':
      return decidePartitionKeyDelete(state, command);
    case 'RecordPurge':
      return decidePurge(state, command);
    default:
      return unreachable(command);
  }
}

const refuse = (refusal: ItemRefusal): ItemDecision => ({ kind: 'refused', refusal });
const accept = (event: ItemEvent): ItemDecision => ({ kind: 'accepted', events: [event] });

/** A life ends for clients at its deadline, whether or not the expiry is recorded. */
function onLife<Command extends WriteItem | RecoverItem | DeleteItem>(
  state: ItemState,
  command: Command,
  decide: (state: ItemState, command: Command) => ItemDecision,
): ItemDecision {
  if (state.status === 'expired' || state.status === 'deleted' || state.status === 'purged') {
    return { kind: 'next-life' };
  }
  const end = unrecordedEnd(state, command);
  return end === undefined ? decide(state, command) : { kind: 'end-first', event: end };
}

/** The event for an end that has come already and is not in the life's own stream yet. */
export function unrecordedEnd(state: ItemState, facts: OnLife): ItemEvent | undefined {
  return facts.leftWithPartitionKey === undefined
    ? expiredEvent(state, facts)
    : endWithPartitionKey(state, facts.timeline, facts.leftWithPartitionKey);
}

/** The end of a life that left with its partition key: an expiry if its deadline had come before. */
function endWithPartitionKey(
  state: ItemState,
  timeline: WriteItem['timeline'],
  { atMs, by, position }: LeftWithPartitionKey,
): ItemEvent | undefined {
  if (state.status !== 'live') return undefined;
  const { id, partitionKey, ts } = state.lastWrite;
  return (
    expiredEvent(state, { timeline, nowMs: atMs }) ?? {
      type: 'ItemDeleted',
      data: { id, partitionKey, ts, withPartitionKey: { atMs, by, ...(position === undefined ? {} : { position }) } },
    }
  );
}

function decidePartitionKeyDelete(
  state: ItemState,
  { timeline, leftWithPartitionKey }: RecordPartitionKeyDelete,
): ItemDecision {
  const event = endWithPartitionKey(state, timeline, leftWithPartitionKey);
  return event === undefined ? refuse({ reason: 'not-due' }) : accept(event);
}

function decideWrite(state: ItemState, command: WriteItem): ItemDecision {
  const live = state.status === 'live' ? state : undefined;
  const policy = policyToDecideBy(command.timeline, command.nowMs);
  if (isTtlOn(policy.defaultTtl) && command.ttl.kind === 'unreadable') {
    return refuse({ reason: 'invalid-ttl', value: command.ttl.value });
  }
  if (command.operation === 'create' && live !== undefined) return refuse({ reason: 'already-exists' });
  if ((command.operation === 'replace' || command.operation === 'patch') && live === undefined) {
    return refuse({ reason: 'not-found' });
  }
  // An item that is not there has no etag to match, so an upsert creates it whatever its condition. Source: Cosmos DB's clients.
  if (live !== undefined && !preconditionsHold(live.etag, command)) return refuse({ reason: 'precondition-failed' });
  return accept({
    type: 'ItemUpserted',
    data: {
      id: command.id,
      partitionKey: command.partitionKey,
      operation: command.operation,
      ts: Math.floor(command.nowMs / 1000),
      ttl: command.ttl.kind === 'value' ? command.ttl.seconds : null,
      ...(command.ttl.kind === 'unreadable' ? { unreadableTtl: true as const } : {}),
      policyVersion: policy.version,
      key: live?.lastWrite.key ?? NEW_KEY,
      bytes: command.bytes,
      ...(command.uniqueKeys === undefined ? {} : { uniqueKeys: [...command.uniqueKeys] }),
    },
  });
}

/**
 * Only possible if no life exists, so that nothing written since is overwritten. `_ts` is now, so the countdown begins
 * anew and can't have run out.
 */
function decideRecovery(state: ItemState, command: RecoverItem): ItemDecision {
  if (state.status !== 'none') return refuse({ reason: 'already-exists' });
  const policy = policyToDecideBy(command.timeline, command.nowMs);
  return accept({
    type: 'ItemRecovered',
    data: {
      id: command.id,
      partitionKey: command.partitionKey,
      fromLife: command.fromLife,
      ts: Math.floor(command.nowMs / 1000),
      ttl: command.ttl.kind === 'value' ? command.ttl.seconds : null,
      ...(command.ttl.kind === 'unreadable' ? { unreadableTtl: true as const } : {}),
      policyVersion: policy.version,
      key: NEW_KEY,
      bytes: command.bytes,
      ...(command.uniqueKeys === undefined ? {} : { uniqueKeys: [...command.uniqueKeys] }),
    },
  });
}

function decideDelete(state: ItemState, command: DeleteItem): ItemDecision {
  if (state.status !== 'live') return refuse({ reason: 'not-found' });
  if (!preconditionsHold(state.etag, command)) return refuse({ reason: 'precondition-failed' });
  const { id, partitionKey, ts } = state.lastWrite;
  return accept({ type: 'ItemDeleted', data: { id, partitionKey, ts } });
}

function decideExpiry(state: ItemState, command: RecordExpiry): ItemDecision {
  const event = expiredEvent(state, command);
  return event === undefined ? refuse({ reason: 'not-due' }) : accept(event);
}

function decidePurge(state: ItemState, command: RecordPurge): ItemDecision {
  if (state.status === 'none' || state.status === 'purged') return refuse({ reason: 'not-due' });
  // A life of a deleted container, or one erased on request, ends with its purge. Any other life must have ended before.
  const endsHere = command.cause === 'container-deleted' || command.cause === 'erasure';
  if (state.status === 'live' && !endsHere) return refuse({ reason: 'not-due' });
  const { type: _, ...facts } = command;
  return accept({ type: 'ItemPurged', data: { ...facts, erased: 'key-destroyed' } });
}

function expiredEvent(
  state: ItemState,
  { timeline, nowMs }: { readonly timeline: WriteItem['timeline']; readonly nowMs: number },
): ItemEvent | undefined {
  if (state.status !== 'live') return undefined;
  const write = state.lastWrite;
  if (!isExpired(write, watermarks(timeline, nowMs))) return undefined;
  const expiry = expiryOf(write, timeline);
  invariant(expiry !== undefined && expiry.expiredAtMs <= nowMs, 'the watermarks and the timeline agree');
  return {
    type: 'ItemExpired',
    data: { id: write.id, partitionKey: write.partitionKey, ts: write.ts, ...expiry },
  };
}

/** Whether the conditions of a request allow a write to an item with this etag. */
export function preconditionsHold(
  etag: string,
  { ifMatch, ifNoneMatch }: { readonly ifMatch?: string | undefined; readonly ifNoneMatch?: string | undefined },
): boolean {
  return !etagDiffers(etag, ifMatch) && ifNoneMatch !== '*' && ifNoneMatch !== etag;
}
