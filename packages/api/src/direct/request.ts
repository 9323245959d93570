import type { IncomingHttpHeaders } from 'node:http';
import type { Tokens } from './tokens.ts';

/** A request of direct mode in the form that it would have over HTTP. */
export interface DirectRequest {
  /** False for an operation or a kind of resource without an equivalent over HTTP. */
  readonly isKnown: boolean;
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  /** The number by which the answer names it, since answers come in any order. */
  readonly transportId: number;
}

/** What the first message of a connection says about the client. */
export interface ClientFacts {
  readonly version: string;
  readonly userAgent: string;
}

/** Tokens of the first message. Their values are for requests that have none of their own. */
const CONNECTION_TOKENS = { clientVersion: 0x01, userAgent: 0x02 } as const;

export function clientFacts(tokens: Tokens): ClientFacts {
  return {
    version: textOf(tokens, CONNECTION_TOKENS.clientVersion) ?? '',
    userAgent: textOf(tokens, CONNECTION_TOKENS.userAgent) ?? '',
  };
}

const PAYLOAD_PRESENT = 0x0002;

export const hasPayload = (tokens: Tokens): boolean => numberOf(tokens, PAYLOAD_PRESENT) === 1;

/** Kinds of resources with their name in links. All but databases are inside another one. */
const RESOURCES: Readonly<Record<number, string>> = {
  0x0001: 'dbs',
  0x0002: 'colls',
  0x0003: 'docs',
  0x0004: 'attachments',
  0x0005: 'users',
  0x0006: 'permissions',
  0x0007: 'sprocs',
  0x0008: 'conflicts',
  0x0009: 'triggers',
  0x000a: 'udfs',
  0x000f: 'offers',
  0x0016: 'pkranges',
  0x0023: 'clientencryptionkeys',
};

interface Operation {
  readonly method: string;
  /** True for an operation on a list: its link ends with the kind of resource. */
  readonly isOfList?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
}

const QUERY = { 'x-ms-documentdb-isquery': 'true', 'content-type': 'application/query+json' };

const OPERATIONS: Readonly<Record<number, Operation>> = {
  0x0001: { method: 'POST', isOfList: true },
  0x0002: { method: 'PATCH' },
  0x0003: { method: 'GET' },
  0x0004: { method: 'GET', isOfList: true },
  0x0005: { method: 'DELETE' },
  0x0006: { method: 'PUT' },
  0x0008: { method: 'POST' },
  0x0009: { method: 'POST', isOfList: true, headers: QUERY },
  0x000f: { method: 'POST', isOfList: true, headers: QUERY },
  0x0011: { method: 'HEAD' },
  0x0012: { method: 'HEAD', isOfList: true },
  0x0013: { method: 'POST', isOfList: true, headers: { 'x-ms-documentdb-is-upsert': 'true' } },
  0x0025: { method: 'POST', isOfList: true, headers: { 'x-ms-cosmos-is-batch-request': 'true' } },
};

const TOKENS = {
  resourceId: 0x0000,
  pageSize: 0x0004,
  match: 0x0008,
  consistencyLevel: 0x0010,
  startEpk: 0x0062,
  endEpk: 0x0063,
  readFeedKeyType: 0x0064,
  returnPreference: 0x0082,
  transportRequestId: 0x004d,
  readConsistencyStrategy: 0x00fe,
} as const;

/** Tokens that contain the text of a header. */
const TEXTS: Readonly<Record<number, string>> = {
  0x0001: 'authorization',
  0x0003: 'x-ms-date',
  0x0005: 'x-ms-session-token',
  0x0006: 'x-ms-continuation',
  0x0009: 'x-ms-documentdb-pre-trigger-include',
  0x000a: 'x-ms-documentdb-post-trigger-include',
  0x0028: 'x-ms-version',
  0x002b: 'x-ms-documentdb-partitionkey',
  0x002c: 'x-ms-documentdb-partitionkeyrangeid',
  0x003f: 'a-im',
  0x0047: 'if-modified-since',
  0x009d: 'x-ms-cosmos-intended-collection-rid',
  0x00cc: 'traceparent',
  0x00cd: 'tracestate',
  0x00ff: 'x-ms-cosmos-supported-query-features',
};

/** Tokens that contain yes or no. */
const FLAGS: Readonly<Record<number, string>> = {
  0x003e: 'x-ms-documentdb-script-enable-logging',
  0x0040: 'x-ms-documentdb-populatequotainfo',
  0x0042: 'x-ms-documentdb-populatequerymetrics',
  0x0073: 'x-ms-cosmos-batch-atomic',
  0x0074: 'x-ms-cosmos-batch-continue-on-error',
  0x0075: 'x-ms-cosmos-batch-ordered',
  0x00a9: 'x-ms-cosmos-populateindexmetrics',
  0x00c2: 'x-ms-cosmos-populateindexmetrics-v2',
};

/** Tokens that contain the number of a header. */
const NUMBERS: Readonly<Record<number, string>> = {
  0x0014: 'x-ms-documentdb-expiry-seconds',
  0x0043: 'x-ms-documentdb-responsecontinuationtokenlimitinkb',
  0x00a2: 'x-ms-cosmos-sdk-supportedcapabilities',
  0x00b2: 'x-ms-cosmos-changefeed-wire-format-version',
};

/** In the order of direct mode's numbers. */
const CONSISTENCY_LEVELS = ['Strong', 'BoundedStaleness', 'Session', 'Eventual', 'ConsistentPrefix'] as const;
const READ_CONSISTENCY_STRATEGIES = [undefined, 'Eventual', 'Session', 'LatestCommitted', 'GlobalStrong'] as const;

const ANY_PAGE_SIZE = 0xffff_ffff;
/** The kind of a range that gives a part of the keys as text. */
const EPK_RANGE = 3;
const RETURN_MINIMAL = 1;

/** The names in links, and the tokens that contain them, each inside the ones before it. */
const NAMES: readonly (readonly [kind: string, token: number])[] = [
  ['dbs', 0x0015],
  ['colls', 0x0016],
  ['users', 0x0019],
  ['clientencryptionkeys', 0x0080],
  ['docs', 0x0017],
  ['permissions', 0x001a],
  ['sprocs', 0x001b],
  ['udfs', 0x001c],
  ['triggers', 0x001d],
  ['conflicts', 0x0020],
  ['pkranges', 0x0036],
  ['attachments', 0x0018],
];

export interface Message {
  readonly resource: number;
  readonly operation: number;
  readonly activityId: string;
  readonly tokens: Tokens;
}

export function directRequest(
  { tokens, activityId, ...message }: Message,
  { version, userAgent }: ClientFacts,
): DirectRequest {
  const kind = RESOURCES[message.resource] ?? '';
  const operation = OPERATIONS[message.operation] ?? { method: 'POST' };
  const headers: IncomingHttpHeaders = {
    'x-ms-activity-id': activityId,
    'x-ms-version': version,
    'user-agent': userAgent,
    ...operation.headers,
  };
  for (const [token, value] of tokens) {
    const text = TEXTS[token];
    // As Node.js reads HTTP headers: each byte is a character.
    if (text !== undefined) headers[text] = value instanceof Buffer ? value.toString('latin1') : String(value);
    else if (FLAGS[token] !== undefined) headers[FLAGS[token]] = value === 0 ? 'false' : 'true';
    else if (NUMBERS[token] !== undefined) headers[NUMBERS[token]] = String(value);
  }
  addSpecial(headers, tokens, operation, kind);
  return {
    isKnown: message.resource in RESOURCES && message.operation in OPERATIONS,
    method: operation.method,
    url: urlOf(tokens, kind, operation.isOfList === true),
    headers,
    transportId: numberOf(tokens, TOKENS.transportRequestId) ?? 0,
  };
}

function addSpecial(headers: IncomingHttpHeaders, tokens: Tokens, { method }: Operation, kind: string): void {
  const pageSize = numberOf(tokens, TOKENS.pageSize);
  if (pageSize !== undefined) headers['x-ms-max-item-count'] = pageSize === ANY_PAGE_SIZE ? '-1' : String(pageSize);
  const match = textOf(tokens, TOKENS.match);
  if (match !== undefined) headers[method === 'GET' ? 'if-none-match' : 'if-match'] = match;
  const level = CONSISTENCY_LEVELS[numberOf(tokens, TOKENS.consistencyLevel) ?? -1];
  // For resources other than items, clients ask their replicas at the strongest level, whatever the account's level is. Here there is one
  // answer, so that level is ignored.
  if (level !== undefined && kind === 'docs') headers['x-ms-consistency-level'] = level;
  const strategy = READ_CONSISTENCY_STRATEGIES[numberOf(tokens, TOKENS.readConsistencyStrategy) ?? 0];
  if (strategy !== undefined) headers['x-ms-cosmos-read-consistency-strategy'] = strategy;
  if (numberOf(tokens, TOKENS.returnPreference) === RETURN_MINIMAL) headers.prefer = 'return=minimal';
  const encoding = numberOf(tokens, TOKENS.readFeedKeyType) === EPK_RANGE ? 'latin1' : 'hex';
  for (const [token, name] of [
    [TOKENS.startEpk, 'x-ms-start-epk'],
    [TOKENS.endEpk, 'x-ms-end-epk'],
  ] as const) {
    const key = tokens.get(token);
    if (key instanceof Buffer) headers[name] = key.toString(encoding).toUpperCase();
  }
}

/** The link by names if there are any, and otherwise by rids. */
function urlOf(tokens: Tokens, kind: string, isOfList: boolean): string {
  const named = NAMES.flatMap(([of, token]) => {
    const name = textOf(tokens, token);
    return name === undefined ? [] : [of, name];
  });
  const parts = named.length > 0 ? named : byRids(tokens.get(TOKENS.resourceId), kind);
  const owners = isOfList && parts.at(-2) !== kind ? [...parts, kind] : parts;
  return `/${owners.map(encodeURIComponent).join('/')}`;
}

/** Bytes of the rid of a database, of a container and of a resource in it. Each begins with the one before. */
const RID_BYTES = [4, 8, 16] as const;

function byRids(rid: number | bigint | Buffer | undefined, kind: string): string[] {
  if (!(rid instanceof Buffer)) return [];
  const kinds = ['dbs', kind === 'users' || kind === 'permissions' ? 'users' : 'colls', kind];
  return RID_BYTES.filter((bytes) => rid.length >= bytes).flatMap((bytes, index) => [
    kinds[index]!,
    rid.subarray(0, bytes).toString('base64').replaceAll('/', '-'),
  ]);
}

function textOf(tokens: Tokens, token: number): string | undefined {
  const value = tokens.get(token);
  return value instanceof Buffer ? value.toString() : undefined;
}

function numberOf(tokens: Tokens, token: number): number | undefined {
  const value = tokens.get(token);
  return typeof value === 'number' ? value : undefined;
}
