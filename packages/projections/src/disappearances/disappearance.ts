import type { Gone } from '@epitaph/core/container/gone.ts';
import type { ItemDeleted, ItemExpired, ItemPurged } from '@epitaph/core/item/events.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { DisappearanceRow, ItemRow } from '../read-model-store.ts';

type ItemName = Pick<ItemRow, 'container' | 'partitionKey' | 'id' | 'life'>;

/** The disappearance of a life whose end is in its own stream. */
export type OwnEnd = DisappearanceRow & { readonly cause: 'expired' | 'deleted' };

function base(item: ItemName, recorded: RecordedEvent) {
  return {
    ...item,
    position: recorded.position,
    recordedAtMs: recorded.occurredAtMs,
    purgedAtMs: null,
    actor: recorded.actor,
    rule: null,
    ttl: null,
    policyVersion: null,
  };
}

/** A client's delete: the item left when the delete was decided. */
export function deletion(item: ItemName, recorded: RecordedEvent, event: ItemDeleted): OwnEnd {
  const atMs = event.withPartitionKey?.atMs ?? recorded.occurredAtMs;
  const position = event.withPartitionKey?.position ?? recorded.position;
  const actor = event.withPartitionKey?.by ?? recorded.actor;
  return { ...base(item, recorded), position, cause: 'deleted', atMs, recordedAtMs: atMs, actor };
}

/** An expiry: the item left at its deadline, whenever that was recorded. */
export function expiry(item: ItemName, recorded: RecordedEvent, event: ItemExpired): OwnEnd {
  return {
    ...base(item, recorded),
    cause: 'expired',
    actor: null,
    atMs: event.expiredAtMs,
    rule: event.rule,
    ttl: event.ttl,
    policyVersion: event.policyVersion,
  };
}

/** A life without an end in its own stream before its purge: it left with its container, or by an erasure. */
export function withoutOwnEnd(
  item: ItemName,
  recorded: RecordedEvent,
  { cause, firstPosition = recorded.position }: ItemPurged,
  containerGone: Gone | undefined,
): DisappearanceRow {
  const { occurredAtMs } = recorded;
  if (cause !== 'container-deleted')
    return { ...base(item, recorded), cause, atMs: occurredAtMs, purgedAtMs: occurredAtMs };
  const gone = leftWithContainer(item, firstPosition, containerGone ?? { atMs: occurredAtMs, by: null });
  return { ...gone, purgedAtMs: occurredAtMs };
}

/** An item that left with its container, from its row. The record of the container's deletion is the record of the item's end. */
export function leftWithContainer(
  { container, partitionKey, id, life }: ItemName,
  firstPosition: number,
  { atMs, by }: Gone,
): DisappearanceRow {
  return {
    container,
    partitionKey,
    id,
    life,
    position: firstPosition,
    cause: 'container-deleted',
    atMs,
    recordedAtMs: atMs,
    purgedAtMs: null,
    actor: by,
    rule: null,
    ttl: null,
    policyVersion: null,
  };
}
