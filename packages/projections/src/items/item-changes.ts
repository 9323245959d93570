import { invariant } from '@epitaph/core/invariant.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { deletion, expiry, type OwnEnd, withoutOwnEnd } from '../disappearances/disappearance.ts';
import type { ReadModelChange } from '../read-model-store.ts';

/** The change that an event of an item's stream makes. Undefined for other streams. */
export function itemChange(recorded: RecordedEvent, catalog: Catalog): ReadModelChange | undefined {
  const stream = parseItemStream(recorded.stream);
  if (stream === undefined) return undefined;
  const container = catalog.containerByRid(stream.containerRid);
  if (container === undefined) {
    throw new UnreadableEvent(
      `the event log has nothing of the container of ${recorded.stream} before ${recorded.position}: it is damaged, because a container is created before its items. ${WHEN_DAMAGED}`,
    );
  }
  const event = readItemEvent(recorded);
  const { id, partitionKey } = event.data;
  const item = { container: container.number, partitionKey, id, life: stream.life };
  const { position } = recorded;
  switch (event.type) {
    case 'ItemUpserted':
    case 'ItemRecovered':
      return {
        kind: 'item-written',
        ...item,
        revision: recorded.revision,
        position,
        ts: event.data.ts,
        ttl: event.data.ttl,
        key: event.data.key,
        unreadableTtl: event.data.unreadableTtl === true,
        ...(recorded.body === undefined
          ? {}
          : { sealed: { stream: recorded.stream, eventId: recorded.id, body: recorded.body } }),
      };
    case 'ItemDeleted':
      return ended(recorded.stream, deletion(item, recorded, event.data), false);
    case 'ItemExpired':
      return ended(recorded.stream, expiry(item, recorded, event.data), event.data.byPolicyStart);
    case 'ItemPurged':
      return {
        kind: 'item-purged',
        ...item,
        purgedAtMs: recorded.occurredAtMs,
        disappearance: withoutOwnEnd(item, recorded, event.data, catalog.gone(container.state)),
      };
  }
}

/** A life that has left, and whose content is not erased yet. */
function ended(stream: string, disappearance: OwnEnd, byPolicyStart: boolean): ReadModelChange {
  const { container, partitionKey, id, life, position, cause, atMs: endedAtMs } = disappearance;
  const row = { container, partitionKey, id, life, stream, position, cause, endedAtMs, byPolicyStart };
  return { kind: 'item-ended', row, disappearance };
}

/**
 * The change that a delete by partition key makes in the items. Undefined for other events. The catalog must contain
 * the delete already.
 */
export function partitionKeyChange(recorded: RecordedEvent, catalog: Catalog): ReadModelChange | undefined {
  if (recorded.type !== 'PartitionKeyDeleted') return undefined;
  const event = readContainerEvent(recorded);
  const container = catalog.containerByRid(parseContainerStream(recorded.stream)!);
  invariant(event.type === 'PartitionKeyDeleted' && container !== undefined, 'a container is created before anything');
  const { occurredAtMs: atMs } = recorded;
  return {
    kind: 'partition-key-deleted',
    container: container.number,
    partitionKey: event.data.partitionKey,
    atMs,
    actor: recorded.actor,
    marks: watermarks(container.state.timeline, atMs),
  };
}
