import { sessionToken, sessionTokenFor } from '../cosmos/session-token.ts';
import { GUID_BYTES, writeGuid } from './guid.ts';
import { TokenWriter } from './tokens.ts';

/** An answer as it would be sent over HTTP. */
export interface DirectAnswer {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: readonly Buffer[];
  /** The log's position, for an answer without one of its own. */
  readonly headPosition: number;
}

const TOKENS = {
  payloadPresent: 0x0000,
  lsn: 0x0013,
  quorumAckedLsn: 0x001a,
  currentWriteQuorum: 0x001e,
  currentReplicaSetSize: 0x001f,
  sessionToken: 0x003e,
  transportRequestId: 0x0035,
  localLsn: 0x003a,
  itemLocalLsn: 0x003c,
  quorumAckedLocalLsn: 0x003b,
} as const;

const TEXTS: Readonly<Record<string, number>> = {
  'x-ms-continuation': 0x0003,
  etag: 0x0004,
  'x-ms-resource-quota': 0x000e,
  'x-ms-resource-usage': 0x000f,
  'x-ms-alt-content-path': 0x0017,
  'x-ms-content-path': 0x0018,
  'x-ms-documentdb-partitionkeyrangeid': 0x0021,
  'x-ms-documentdb-script-log-results': 0x0025,
  'x-ms-documentdb-query-metrics': 0x0028,
  'x-ms-cosmos-index-utilization': 0x0044,
};

const NUMBERS: Readonly<Record<string, readonly [token: number, type: 'uint32' | 'int64' | 'double']>> = {
  'x-ms-retry-after-ms': [0x000c, 'uint32'],
  'x-ms-item-count': [0x0014, 'uint32'],
  'x-ms-request-charge': [0x0015, 'double'],
  'x-ms-substatus': [0x001c, 'uint32'],
  'x-ms-documentdb-collection-lazy-indexing-progress': [0x0020, 'uint32'],
  'x-ms-item-lsn': [0x0032, 'int64'],
  'x-ms-request-duration-ms': [0x0051, 'double'],
};

/**
 * How many replicas of each range the addresses name: as many as a client waits for at the stronger consistency levels.
 * All are this server, so whatever is recorded is on all of them.
 */
export const REPLICAS = 4;

/** A body of up to this many bytes is sent together with what precedes it. */
const TOGETHER_BYTES = 16 * 1024;

/** Bytes before the tokens: the length of both, the status, and the activity id. */
const HEAD_BYTES = 4 + 4 + GUID_BYTES;

/** The buffers of an answer's message, to be sent in this order. */
export function answerMessage(
  answer: DirectAnswer,
  {
    activityId,
    transportId,
    clientVersion,
  }: { readonly activityId: string; readonly transportId: number; readonly clientVersion: string },
): Buffer[] {
  const tokens = new TokenWriter();
  const bodyBytes = answer.body.reduce((sum, { length }) => sum + length, 0);
  tokens.number(TOKENS.payloadPresent, 'byte', bodyBytes > 0 ? 1 : 0);
  tokens.number(TOKENS.transportRequestId, 'uint32', transportId);
  for (const [name, value] of answer.headers) {
    const text = TEXTS[name];
    const number = NUMBERS[name];
    if (text !== undefined) tokens.text(text, 'string', value);
    else if (number !== undefined) tokens.number(...number, Number(value));
  }
  // Clients accept no answer, not even a refusal, without an LSN above zero.
  const lsn = Math.max(1, Number(answer.headers.get('lsn') ?? answer.headPosition));
  // Without a session token, clients take a missing item for one that has not reached this replica yet, and retry for
  // 15 seconds.
  const ofMissing = answer.status === 404 ? sessionTokenFor(clientVersion, sessionToken('', lsn)) : undefined;
  const session = answer.headers.get('x-ms-session-token') ?? ofMissing;
  // The client adds the range in front.
  if (session !== undefined) tokens.text(TOKENS.sessionToken, 'string', session.slice(session.indexOf(':') + 1));
  tokens.number(TOKENS.lsn, 'int64', lsn);
  tokens.number(TOKENS.localLsn, 'int64', lsn);
  // When several replicas are asked, this makes one answer enough, however far they have come meanwhile.
  const itemLsn = answer.headers.get('x-ms-item-lsn');
  if (itemLsn !== undefined) tokens.number(TOKENS.itemLocalLsn, 'int64', Number(itemLsn));
  tokens.number(TOKENS.quorumAckedLsn, 'int64', lsn);
  tokens.number(TOKENS.quorumAckedLocalLsn, 'int64', lsn);
  tokens.number(TOKENS.currentReplicaSetSize, 'uint32', REPLICAS);
  tokens.number(TOKENS.currentWriteQuorum, 'uint32', REPLICAS);
  return message(answer.status, activityId, tokens, answer.body, bodyBytes);
}

const CONNECTION_TOKENS = {
  protocolVersion: 0x00,
  clientVersion: 0x01,
  serverAgent: 0x02,
  serverVersion: 0x03,
  idleTimeoutSeconds: 0x04,
  unauthenticatedTimeoutSeconds: 0x05,
} as const;
const PROTOCOL_VERSION = 1;

/** The answer to a connection's first message. */
export function connectionMessage(
  activityId: string,
  server: {
    readonly clientVersion: string;
    readonly version: string;
    readonly idleSeconds: number;
    readonly unauthenticatedSeconds: number;
  },
): Buffer[] {
  const tokens = new TokenWriter();
  tokens.number(CONNECTION_TOKENS.protocolVersion, 'uint32', PROTOCOL_VERSION);
  tokens.text(CONNECTION_TOKENS.clientVersion, 'smallString', server.clientVersion);
  tokens.text(CONNECTION_TOKENS.serverAgent, 'smallString', 'epitaph');
  tokens.text(CONNECTION_TOKENS.serverVersion, 'smallString', server.version);
  tokens.number(CONNECTION_TOKENS.idleTimeoutSeconds, 'uint32', server.idleSeconds);
  tokens.number(CONNECTION_TOKENS.unauthenticatedTimeoutSeconds, 'uint32', server.unauthenticatedSeconds);
  return message(200, activityId, tokens, [], 0);
}

function message(
  status: number,
  activityId: string,
  tokens: TokenWriter,
  body: readonly Buffer[],
  bodyBytes: number,
): Buffer[] {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32LE(HEAD_BYTES + tokens.length, 0);
  head.writeUInt32LE(status, 4);
  writeGuid(activityId, head, 8);
  const buffers = [head, ...tokens.parts];
  if (bodyBytes > 0) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bodyBytes);
    buffers.push(length);
  }
  // A small answer is sent as one piece.
  if (bodyBytes <= TOGETHER_BYTES) return [Buffer.concat([...buffers, ...body])];
  return [Buffer.concat(buffers), ...body];
}
