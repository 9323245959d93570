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

/**
 * JSON with the properties of every object in order of their names and nothing between: one text for one value.
 * As RFC 8785 has it, for values that JSON.parse gives; a bigint has all of its digits.
 */
export function canonicalJson(value: unknown): string {
  // One call for the whole is several times as fast as putting the text together.
  const ordered = inOrder(value);
  return ordered === unordered ? spelledOut(value) : JSON.stringify(ordered);
}

const unordered = Symbol('JSON.stringify can not write it in that order');

/** A copy with all properties in order of their names, where objects can have that. */
function inOrder(value: unknown): unknown {
  if (typeof value === 'bigint') return unordered;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const members = value.map(inOrder);
    return members.includes(unordered) ? unordered : members;
  }
  const copy: Record<string, unknown> = {};
  for (const name of Object.keys(value).sort()) {
    // Objects have names that are numbers before all others, and can't be given this one by assignment.
    if ((name >= '0' && name < ':') || name === '__proto__') return unordered;
    const member = inOrder((value as Readonly<Record<string, unknown>>)[name]);
    if (member === unordered) return unordered;
    copy[name] = member;
  }
  return copy;
}

function spelledOut(value: unknown): string {
  if (typeof value === 'bigint') return String(value);
  if (Array.isArray(value)) return `[${value.map(spelledOut).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const object = value as Readonly<Record<string, unknown>>;
  const parts: string[] = [];
  for (const name of Object.keys(object).toSorted()) {
    if (object[name] !== undefined) parts.push(`${JSON.stringify(name)}:${spelledOut(object[name])}`);
  }
  return `{${parts.join(',')}}`;
}
