import shared from '@eventstore/db-client/generated/shared_pb.js';
import streams from '@eventstore/db-client/generated/streams_pb.js';
import { invariant } from '@epitaph/core/invariant.ts';
import type { StreamAppend } from '@epitaph/core/log/event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { parsedJson } from '@epitaph/core/parsed-json.ts';
import { withUnreadableData } from '@epitaph/core/upcast.ts';

const JSON_TYPE = 'application/json';
const BINARY_TYPE = 'application/octet-stream';

/**
 * The metadata of every event of the store, as JSON. `$correlationId` and `$causationId` are the names that
 * EventStoreDB's own tools follow.
 */
interface Metadata {
  readonly $correlationId: string;
  readonly $causationId: string;
  readonly actor: string;
  readonly occurredAtMs: number;
  readonly version: number;
  /** The facts of an event with a body: the body is then the event's data, as it is, without base64. */
  readonly data?: Readonly<Record<string, unknown>>;
  /** More events of the same append come after this one. Absent from the last, and in logs of before there was this. */
  readonly isFollowed?: true;
  /**
   * Where in its stream it belongs, of an append to a stream that was not there. Absent in others, whose place the server sees to,
   * and in logs of before there was this.
   */
  readonly revision?: number;
}

/**
 * What an append gives the server: facts alone are JSON data; with a sealed body, that is the data and the facts go along.
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

/** The server's own event for a stream's metadata. */
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

/** Where an event stands, without looking into it. */
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
 * The event as the port has it, or undefined for one that this store did not write: other programs may use the same
 * server, and their events are none of its business. Nor is one that stands behind what a stream had that another program has deleted:
 * to the server that is none, so it took what was for a new one, and nothing there goes on from it.
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
  // There is hardly ever one.
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

/** Positions are bytes into the server's log: 2^53 of them are eight pebibytes. */
export function exactNumber(text: string | number): number {
  const value = Number(text);
  invariant(Number.isSafeInteger(value) && value >= 0, `${text} of the event store is no exact number here`);
  return value;
}

function jsonBytes(value: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(value), 'utf8');
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
}

/** Undefined for what is no JSON. */
export function parseJson(event: WireEvent): unknown {
  return parsedJson(textOf(event.getData_asU8()));
}
