import { permanentItemFacts } from '../item/events.ts';
import { parseItemStream } from '../item/stream-name.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { parseUniqueKeyStream } from '../unique-key/stream-name.ts';

/**
 * A recorded fact as a leaf of the proof tree: everything but its place in one particular log. Of an item it says
 * the stream's name, which is a keyed hash of id and partition key, and neither of these: a proof of what became of an
 * item can be shown to anyone. Facts of a container, among them its deletes by partition key, are as they were recorded.
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
 * True for facts that are never truncated. All are such but an item's writes, which are covered by the ledgers, and
 * who took a unique key's value, which only ever says something of those.
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
