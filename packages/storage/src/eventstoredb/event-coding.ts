import shared from '@eventstore/db-client/generated/shared_pb.js';
import streams from '@eventstore/db-client/generated/streams_pb.js';
import { invariant } from '@epitaph/core/invariant.ts';
import type { StreamAppend } from '@epitaph/core/log/event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { parsedJson } from '@epitaph/core/parsed-json.ts';
import { withUnreadableData } from '@epitaph/core/upcast.ts';

const JSON_TYPE = 'application/json';
const BINARY_TYPE = 'application/octet-stream';

/** The metadata of every event of the store, as JSON. EventStoreDB's own tools use the names `$correlationId` and `$causationId`. */
interface Metadata {
  readonly $correlationId: string;
  readonly $causationId: string;
  readonly actor: string;
  readonly occurredAtMs: number;
  readonly version: number;
  /** The facts of an event with a body. The body itself is the event's data on the server, as bytes, without base64. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** Set if more events of the same append follow. Absent in the last one, and in old logs from before this field existed. */
  readonly isFollowed?: true;
  /**
   * The revision that the event must have, if its append began a new stream. Absent in other events, whose revision the server checks,
   * and in old logs from before this field existed.
   */
  readonly revision?: number;
}

/**
 * Encodes an append for the server. The facts of an event are its data, as JSON. If it has a sealed body, the body is the data, and the
 * facts are in the metadata.
 */
export function encodeAppend({ events, expectedRevision }: StreamAppend): streams.BatchAppendReq.ProposedMessage[] {
  return events.map((event, index) =>
    encodeEvent(event, {
      ...(index < events.length - 1 ? { isFollowed: true } : {}),
      ...(expectedRevision === 'no-stream' ? { revision: index } : {}),
    }),
  );
}

function encodeEvent(
  event: NewEvent,
  place: Pick<Metadata, 'isFollowed' | 'revision'>,
): streams.BatchAppendReq.ProposedMessage {
  const metadata: Metadata = {
    $correlationId: event.correlationId,
    $causationId: event.causationId,
    actor: event.actor,
    occurredAtMs: event.occurredAtMs,
    version: event.version,
    ...place,
    ...(event.body === undefined ? {} : { data: event.data }),
  };
  const contentType = event.body === undefined ? JSON_TYPE : BINARY_TYPE;
  return proposed(event.id, event.type, contentType, metadata, event.body ?? jsonBytes(event.data));
}

/** Encodes the server's own type of event for a stream's metadata. */
export function encodeMetadata(data: unknown): streams.BatchAppendReq.ProposedMessage {
  return proposed(crypto.randomUUID(), '$metadata', JSON_TYPE, undefined, jsonBytes(data));
}

function proposed(
  id: string,
  type: string,
  contentType: string,
  metadata: Metadata | undefined,
  data: Uint8Array,
): streams.BatchAppendReq.ProposedMessage {
  const message = new streams.BatchAppendReq.ProposedMessage();
  message.setId(uuidOf(id));
  message.getMetadataMap().set('type', type).set('content-type', contentType);
  if (metadata !== undefined) message.setCustomMetadata(jsonBytes(metadata));
  message.setData(data);
  return message;
}

export function uuidOf(text: string): shared.UUID {
  const uuid = new shared.UUID();
  uuid.setString(text);
  return uuid;
}

export function streamIdentifier(stream: string): shared.StreamIdentifier {
  const identifier = new shared.StreamIdentifier();
  identifier.setStreamName(Buffer.from(stream, 'utf8'));
  return identifier;
}

const NOTHING: Readonly<Record<string, unknown>> = {};

export type WireEvent = streams.ReadResp.ReadEvent.RecordedEvent;

/** The place of an event, without decoding it. */
export interface Place {
  readonly stream: string;
  readonly revision: number;
  readonly position: number;
}

export function placeOf(event: WireEvent): Place {
  return {
    stream: Buffer.from(event.getStreamIdentifier()!.getStreamName_asU8()).toString('utf8'),
    revision: exactNumber(event.getStreamRevision()),
    position: exactNumber(event.getCommitPosition()),
  };
}

/**
 * Decodes an event. The result is undefined for an event that is not the store's: other programs may use the same server. It is also
 * undefined for an event that was appended to a stream after another program had deleted it. The server accepts such an append as
 * that of a new stream, but no later event continues from it.
 */
export function decodeEvent(event: WireEvent, withBody: boolean): RecordedEvent | undefined {
  const metadata = readMetadata(event);
  if (metadata === undefined) return undefined;
  const place = placeOf(event);
  if (metadata.revision !== undefined && metadata.revision !== place.revision) return undefined;
  const hasBody = metadata.data !== undefined;
  const decoded = {
    id: event.getId()!.getString(),
    type: event.getMetadataMap().get('type')!,
    version: metadata.version,
    data: metadata.data ?? NOTHING,
    ...(hasBody && withBody ? { body: event.getData_asU8() } : {}),
    occurredAtMs: metadata.occurredAtMs,
    actor: metadata.actor,
    correlationId: metadata.$correlationId,
    causationId: metadata.$causationId,
    ...place,
  };
  if (hasBody) return decoded;
  try {
    decoded.data = JSON.parse(textOf(event.getData_asU8())) as Record<string, unknown>;
  } catch (error) {
    withUnreadableData(decoded, error);
  }
  return decoded;
}

/** Whether more events of the same append come after this one. */
export function isFollowed(event: WireEvent): boolean {
  // Hardly any event has the field, so the JSON is parsed only if its name occurs.
  const bytes = event.getCustomMetadata_asU8();
  return textOf(bytes).includes('"isFollowed"') && readMetadata(event)?.isFollowed === true;
}

function readMetadata(event: WireEvent): Metadata | undefined {
  const bytes = event.getCustomMetadata_asU8();
  if (bytes.length === 0) return undefined;
  let metadata: Partial<Metadata> | null;
  try {
    metadata = JSON.parse(textOf(bytes)) as Partial<Metadata> | null;
  } catch {
    return undefined;
  }
  const ours =
    typeof metadata?.version === 'number' &&
    typeof metadata.occurredAtMs === 'number' &&
    typeof metadata.actor === 'string' &&
    typeof metadata.$correlationId === 'string' &&
    typeof metadata.$causationId === 'string' &&
    (metadata.data !== undefined || event.getMetadataMap().get('content-type') === JSON_TYPE);
  return ours ? (metadata as Metadata) : undefined;
}

/** Converts a position or revision. Positions are offsets in bytes: the limit of 2^53 is a log of eight pebibytes. */
export function exactNumber(text: string | number): number {
  const value = Number(text);
  invariant(Number.isSafeInteger(value) && value >= 0, `the event store's number ${text} is a safe integer`);
  return value;
}

function jsonBytes(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value), 'utf8');
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** The data of an event as JSON; undefined if it is not JSON. */
export function parseJson(event: WireEvent): unknown {
  return parsedJson(textOf(event.getData_asU8()));
}
