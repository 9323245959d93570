import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';
import { readGuid, writeGuid } from '@epitaph/api/direct/guid.ts';
import { readTokens, type Tokens } from '@epitaph/api/direct/tokens.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';

/** The request tokens that the tests use, by their numbers. Their types are those that the clients use. */
const REQUEST = {
  resourceId: [0x0000, 'bytes'],
  authorization: [0x0001, 'string'],
  payloadPresent: [0x0002, 'byte'],
  date: [0x0003, 'smallString'],
  pageSize: [0x0004, 'uint32'],
  sessionToken: [0x0005, 'string'],
  continuation: [0x0006, 'string'],
  match: [0x0008, 'string'],
  preTriggers: [0x0009, 'string'],
  postTriggers: [0x000a, 'string'],
  consistencyLevel: [0x0010, 'byte'],
  database: [0x0015, 'string'],
  container: [0x0016, 'string'],
  item: [0x0017, 'string'],
  procedure: [0x001b, 'string'],
  partitionKey: [0x002b, 'string'],
  rangeId: [0x002c, 'string'],
  logsScript: [0x003e, 'byte'],
  aIm: [0x003f, 'string'],
  transportId: [0x004d, 'uint32'],
  startEpk: [0x0062, 'bytes'],
  endEpk: [0x0063, 'bytes'],
  readFeedKeyType: [0x0064, 'byte'],
  batchAtomic: [0x0073, 'byte'],
  returnPreference: [0x0082, 'byte'],
} as const;
type Named = { readonly [Name in keyof typeof REQUEST]?: string | number | Buffer };

const OPERATIONS = {
  create: [0x0001, 'POST'],
  patch: [0x0002, 'PATCH'],
  read: [0x0003, 'GET'],
  readFeed: [0x0004, 'GET'],
  delete: [0x0005, 'DELETE'],
  replace: [0x0006, 'PUT'],
  execute: [0x0008, 'POST'],
  query: [0x000f, 'POST'],
  upsert: [0x0013, 'POST'],
  batch: [0x0025, 'POST'],
  unknown: [0x7777, 'POST'],
} as const;
const DOCUMENT = 0x0003;
const DATABASE = 0x0001;
const PROCEDURE = 0x0007;

export interface DirectCall extends Named {
  readonly operation: keyof typeof OPERATIONS;
  readonly body?: unknown;
  readonly key?: string;
  readonly ofDatabase?: boolean;
  /** What is signed, if the names do not determine it. */
  readonly link?: string;
}

export interface DirectAnswer {
  readonly status: number;
  readonly activityId: string;
  readonly tokens: Tokens;
  readonly text: string;
  readonly json: Readonly<Record<string, unknown>>;
}

/** The tokens of answers that tests read. */
export const ANSWER = {
  continuation: 0x0003,
  etag: 0x0004,
  retryAfterMs: 0x000c,
  lsn: 0x0013,
  itemCount: 0x0014,
  charge: 0x0015,
  quorumAckedLsn: 0x001a,
  substatus: 0x001c,
  writeQuorum: 0x001e,
  replicaSetSize: 0x001f,
  rangeId: 0x0021,
  scriptLog: 0x0025,
  itemLsn: 0x0032,
  transportId: 0x0035,
  localLsn: 0x003a,
  quorumAckedLocalLsn: 0x003b,
  itemLocalLsn: 0x003c,
  sessionToken: 0x003e,
} as const;

export function token(
  id: number,
  type: 'byte' | 'uint32' | 'smallString' | 'string' | 'bytes',
  value: unknown,
): Buffer {
  const head = (typeId: number) => Buffer.from([id & 0xff, id >> 8, typeId]);
  const bytes = value instanceof Buffer ? value : Buffer.from(String(value));
  const length = Buffer.alloc(4);
  switch (type) {
    case 'byte':
      return Buffer.concat([head(0x00), Buffer.from([Number(value)])]);
    case 'uint32':
      length.writeUInt32LE(Number(value));
      return Buffer.concat([head(0x02), length]);
    case 'smallString':
      return Buffer.concat([head(0x07), Buffer.from([bytes.length]), bytes]);
    default:
      length.writeUInt16LE(bytes.length);
      return Buffer.concat([head(type === 'string' ? 0x08 : 0x0b), length.subarray(0, 2), bytes]);
  }
}

export function message(resource: number, operation: number, activityId: string, tokens: readonly Buffer[]): Buffer {
  const all = Buffer.concat(tokens);
  const head = Buffer.alloc(24);
  head.writeUInt32LE(24 + all.length, 0);
  head.writeUInt16LE(resource, 4);
  head.writeUInt16LE(operation, 6);
  writeGuid(activityId, head, 8);
  return Buffer.concat([head, all]);
}

/** What a client says about itself. */
export const FACTS = [
  token(0x00, 'uint32', 1),
  token(0x01, 'smallString', '2020-07-15'),
  token(0x02, 'smallString', 'epitaph-tests'),
];
export const firstMessage = (): Buffer => message(0, 0, crypto.randomUUID(), FACTS);

/** A minimal client in direct mode: it sends and reads messages as the .NET and the Java client do, and nothing else. */
export class DirectClient {
  readonly socket: TLSSocket;
  /** How often an answer was followed by something else in its TLS record. */
  joined = 0;
  readonly #waiting = new Map<number, PromiseWithResolvers<DirectAnswer>>();
  /** The received bytes that were not read yet, and the number of bytes that the next step needs. */
  #chunks: Buffer[] = [];
  #bytes = 0;
  #needed = 4;
  #next = 1;
  /** What the server says about itself in answer to the first message. */
  greeting!: DirectAnswer;
  readonly #first = Promise.withResolvers<DirectAnswer>();

  private constructor(socket: TLSSocket) {
    this.socket = socket;
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
    socket.once('close', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('hung up'));
    });
  }

  static async open(port: number, ca: Buffer): Promise<DirectClient> {
    const client = await DirectClient.connected(port, ca);
    client.socket.write(firstMessage());
    client.greeting = await client.#first.promise;
    return client;
  }

  /** A connection on which nothing was sent yet. */
  static async connected(port: number, ca: Buffer): Promise<DirectClient> {
    const socket = connect({ port, host: 'localhost', ca });
    await once(socket, 'secureConnect');
    return new DirectClient(socket);
  }

  /** Resolves when the server has closed the connection. */
  async closed(): Promise<void> {
    if (!this.socket.closed) await once(this.socket, 'close');
  }

  call(call: DirectCall): Promise<DirectAnswer> {
    const { bytes, transportId } = this.bytesOf(call);
    this.socket.write(bytes);
    return this.answerTo(transportId);
  }

  answerTo(transportId: number): Promise<DirectAnswer> {
    const answered = Promise.withResolvers<DirectAnswer>();
    answered.promise.catch(() => {});
    this.#waiting.set(transportId, answered);
    return answered.promise;
  }

  bytesOf({ operation, body, key, ofDatabase = false, link, ...named }: DirectCall): {
    readonly bytes: Buffer;
    readonly transportId: number;
  } {
    const [operationNumber, verb] = OPERATIONS[operation];
    const transportId = this.#next++;
    const date = new Date().toUTCString();
    const parts = [
      ...(named.database === undefined ? [] : ['dbs', named.database]),
      ...(named.container === undefined ? [] : ['colls', named.container]),
      ...(named.item === undefined ? [] : ['docs', named.item]),
      ...(named.procedure === undefined ? [] : ['sprocs', named.procedure]),
    ];
    const [resource, segment] = ofDatabase
      ? ([DATABASE, 'dbs'] as const)
      : named.procedure === undefined
        ? ([DOCUMENT, 'docs'] as const)
        : ([PROCEDURE, 'sprocs'] as const);
    const signed = `${verb}\n${segment}\n`.toLowerCase() + `${link ?? parts.join('/')}\n`;
    const signature = createHmac('sha256', Buffer.from(key ?? EMULATOR_KEY, 'base64'))
      .update(`${signed}${date.toLowerCase()}\n\n`)
      .digest('base64');
    const payload = body === undefined ? undefined : Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
    const all: Named = {
      authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
      date,
      payloadPresent: payload === undefined ? 0 : 1,
      transportId,
      ...named,
    };
    const tokens = Object.entries(all).map(([name, value]) => {
      const [number, type] = REQUEST[name as keyof Named];
      return token(number, type, value);
    });
    const buffers = [message(resource, operationNumber, crypto.randomUUID(), tokens)];
    if (payload !== undefined) {
      const length = Buffer.alloc(4);
      length.writeUInt32LE(payload.length);
      buffers.push(length, payload);
    }
    return { bytes: Buffer.concat(buffers), transportId };
  }

  #take(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes >= this.#needed) {
      const read = Buffer.concat(this.#chunks);
      this.#chunks = [read];
      const end = read.readUInt32LE(0);
      this.#needed = end;
      if (read.length < end) continue;
      const tokens = readTokens(read.subarray(24, end));
      let bodyEnd = end;
      // In the answer to the first message, token 0 is the version.
      const hasBody = this.#next > 1 && tokens.get(0) === 1;
      if (hasBody) {
        this.#needed = end + 4;
        if (read.length < end + 4) continue;
        bodyEnd = end + 4 + read.readUInt32LE(end);
        this.#needed = bodyEnd;
        if (read.length < bodyEnd) continue;
      }
      const text = hasBody ? read.subarray(end + 4, bodyEnd).toString() : '';
      const status = read.readUInt32LE(4);
      const json = (text.startsWith('{') ? JSON.parse(text) : {}) as DirectAnswer['json'];
      const answer = { status, activityId: readGuid(read, 8), tokens, text, json };
      this.#chunks = [read.subarray(bodyEnd)];
      this.#bytes -= bodyEnd;
      this.#needed = 4;
      // Node.js emits the data of each TLS record separately.
      if (this.#bytes > 0) this.joined++;
      this.#first.resolve(answer);
      this.#waiting.get(Number(tokens.get(ANSWER.transportId)))?.resolve(answer);
    }
  }
}
