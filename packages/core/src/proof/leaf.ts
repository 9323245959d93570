import { permanentItemFacts } from '../item/events.ts';
import { parseItemStream } from '../item/stream-name.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseUniqueKeyStream } from '../unique-key/stream-name.ts';

/**
 * A recorded fact as a leaf of the proof tree: everything except its position in a particular log. A fact of an item
 * has the stream's name, which is a keyed hash of id and partition key, but neither of these themselves. So a proof of
 * what became of an item can be shown to anyone. Facts of a container, such as its deletes by partition key, are as
 * they were recorded.
 */
export interface FactLeaf {
  readonly stream: string;
  readonly revision: number;
  readonly id: string;
  readonly type: string;
  readonly version: number;
  readonly occurredAtMs: number;
  readonly actor: string;
  readonly correlationId: string;
  readonly causationId: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/**
 * True for facts that are never truncated. These are all events except an item's writes, which the ledgers cover, and
 * the events of unique keys, which only say something about those writes.
 */
export function isPermanentFact({ stream, type }: Pick<RecordedEvent, 'stream' | 'type'>): boolean {
  if (parseUniqueKeyStream(stream) !== undefined) return false;
  return parseItemStream(stream) === undefined || permanentItemFacts.has(type);
}

export function factLeaf(event: RecordedEvent): FactLeaf {
  const { stream, revision, id, type, version, occurredAtMs, actor, correlationId, causationId } = event;
  const facts = { stream, revision, id, type, version, occurredAtMs, actor, correlationId, causationId };
  if (parseItemStream(stream) === undefined) return { ...facts, data: event.data };
  const { id: _, partitionKey: __, ...data } = event.data;
  return { ...facts, data };
}
