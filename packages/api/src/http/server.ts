import { randomUUID } from 'node:crypto';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { httpTime, systemClocks } from '@epitaph/core/clock.ts';
import type { ConsistencyPolicy } from '../cosmos/consistency.ts';
import { badRequest, describeError, errorBody, WireError, wireShapes, type WireShape } from '../cosmos/errors.ts';
import { cosmosPlane } from '../cosmos/listener.ts';
import { KEPT_BY_NOBODY } from '../cosmos/send-answer.ts';
import { errorHeaders } from '../cosmos/send-error.ts';
import type { StoreApi } from '../store/store-api.ts';
import { wait } from '../wait.ts';
import { DirectConnection } from '../direct/connection.ts';
import { serveDirectBeside } from '../direct/switch.ts';
import { followConnections, followDirect, followRequest } from './connections.ts';
import { withOrigins } from './cross-origin.ts';
import { InFlight } from './in-flight.ts';
import type { Identities } from './identities.ts';
import type { KeyRing } from './keys.ts';
import { defaultLimits, type Limits } from './limits.ts';
import { withoutPipelines } from './pipelining.ts';
import { isManagement } from './planes.ts';
import { hangUpOnUnsent } from './unsent.ts';

// An import makes Node.js load what it has for web sockets, too, which takes some 25 ms of computing.
const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http');

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Of a route that takes no key. Its answers must be small, or share their bytes: there may be as many as connections. */
    readonly isForAnyone?: boolean;
  }
}

export interface ServerOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  /** Whose identity tokens are taken; by default nobody's. */
  readonly identities?: Identities | undefined;
  readonly limits?: Partial<Limits>;
  readonly consistency?: ConsistencyPolicy;
  readonly logger?: FastifyBaseLogger;
  /** Origins of web pages that may call the data plane, `*` for all. */
  readonly origins?: readonly string[] | undefined;
  /** Whether scripts that clients store are run; by default they are. */
  readonly scripts?: boolean | undefined;
  /** Certificate and key as PEM text, for TLS. */
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer } | undefined;
  /** Says of a request why it is refused whatever it asks for, if it is. */
  readonly guard?: ((request: IncomingMessage) => WireError | undefined) | undefined;
  /** What else is on the server: the management plane. Each may register routes below `/_epitaph`. */
  readonly plugins?: readonly ((app: FastifyInstance) => void)[];
  /** Answers targets that the router can't read, which are all the management plane's; in the data plane's shape by default. */
  readonly sendUnroutable?: (request: FastifyRequest, reply: FastifyReply, error: unknown) => FastifyReply;
}

/**
 * The server, complete and not listening: tests inject requests, the command line listens. The management plane is on a
 * framework; the data plane is a function beside it (see {@link cosmosPlane}).
 */
export function buildServer(options: ServerOptions): FastifyInstance {
  const { store, keys, identities, consistency } = options;
  const limits: Limits = { ...defaultLimits, ...options.limits };
  const http = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.requestTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    // Timeouts are looked at this often; Node's own 30 s would double ours.
    connectionsCheckingInterval: Math.min(5000, limits.requestTimeoutMs),
    // Node.js would refuse it with an answer that says nothing.
    requireHostHeader: false,
  };
  const app = Fastify({
    serverFactory: (handler) => {
      const { origins = [] } = options;
      const planes: RequestListener = (request, response) => {
        if (isManagement(request.url!)) {
          handler(request, response);
          return;
        }
        if (isClosing) response.setHeader('connection', 'close');
        dataPlane.overHttp(request, response);
      };
      const shared = origins.length === 0 ? planes : withOrigins(planes, origins, (url) => !isManagement(url));
      const bounded = withoutPipelines(shared, limits.pipelinedRequests);
      if (options.tls === undefined) return createServer(http, bounded);
      const tls = { ...options.tls, handshakeTimeout: limits.requestTimeoutMs, ALPNCallback: chooseProtocol };
      return createTlsServer({ ...http, ...tls }, bounded);
    },
    bodyLimit: limits.bodyBytes,
    // A line for each request would cost more than the request, and say what the history says better.
    logController: new LogController({ disableRequestLogging: true }),
    // Nor has a request a logger of its own: what is told of one names it by its activity or correlation id.
    childLoggerFactory: (logger) => logger,
    // While it closes, the store itself says so, in words that clients understand.
    return503OnClosing: false,
    clientErrorHandler: answerUnreadable,
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      void (options.sendUnroutable ?? sendPlain)(request, reply, error);
      // No hook is called for it.
      store.measurements.countRequest('management', 'none', reply.statusCode);
    },
    // No route has a schema. What compiles them would take a tenth of a start to load.
    schemaController: { compilersFactory: { buildValidator: withoutSchemas, buildSerializer: withoutSchemas } },
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 4096 },
    ...(options.logger === undefined ? { logger: false as const } : { loggerInstance: options.logger }),
  });
  app.server.maxConnections = limits.connections;
  if (options.tls !== undefined) {
    app.server.on('secureConnection', readByStream);
    serveDirectBeside(app.server, limits.requestTimeoutMs, (socket) => {
      followDirect(socket);
      const surroundings = {
        answer: dataPlane.direct,
        onRequest: (reply: Writable) => followRequest(socket, reply),
        headPosition: () => store.headPosition(),
      };
      new DirectConnection(socket, limits, surroundings)
        .serve()
        .catch((error: unknown) => app.log.error({ err: error }, 'a connection in direct mode failed unexpectedly'));
    });
  }
  followConnections(app.server, limits.leftBehindMs);
  hangUpOnUnsent(app.server, limits.unsentTimeoutMs);
  // Node.js would refuse what it does not know with an answer that says nothing.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));

  app.setErrorHandler((error, request, reply) => sendPlain(request, reply, error));
  app.setNotFoundHandler((request, reply) =>
    sendPlain(request, reply, new WireError('notFound', 'Resource Not Found: there is no such route.')),
  );
  const guard = (request: IncomingMessage): WireError | undefined =>
    lacksHost(request) ? badRequest("The request lacks the header 'Host'.") : options.guard?.(request);
  const inFlight = new InFlight(limits);
  let isClosing = false;
  const dataPlane = cosmosPlane({
    store,
    keys,
    identities,
    limits,
    inFlight,
    guard,
    isClosing: () => isClosing,
    log: app.log,
    consistency,
    scripts: options.scripts,
  });
  app.addHook('preClose', (done) => {
    isClosing = true;
    dataPlane.stopping();
    done();
  });
  app.addHook('onClose', () => dataPlane.close());
  app.addHook('onRequest', ({ raw }, _reply, next) => next(guard(raw)));
  limitInFlight(app, inFlight);
  for (const plugin of options.plugins ?? []) plugin(app);
  return app;
}

const lacksHost = ({ headers, httpVersion }: IncomingMessage): boolean =>
  headers.host === undefined && httpVersion === '1.1';

/**
 * Turns away what there is no room for. What anyone may ask takes no room: it would be anyone's to take, and whether the
 * server is well must be answered under load most of all.
 */
function limitInFlight(app: FastifyInstance, inFlight: InFlight): void {
  const turnedAway = () => new WireError('unavailable', 'The server is overloaded; try again.');
  app.addHook('preParsing', ({ raw }, reply, payload, next) => {
    if (inFlight.placeFor(reply.raw).takeBody(raw)) next(null, payload);
    else next(turnedAway());
  });
  app.addHook('preHandler', ({ routeOptions: { config } }, reply, next) => {
    next(config.isForAnyone === true || inFlight.placeFor(reply.raw).enter() ? undefined : turnedAway());
  });
}

/** Called for a route that has a schema, of which there is none. */
function withoutSchemas(): never {
  throw new Error('Routes have no schemas here: what comes from outside is read with zod.');
}

/**
 * Has a connection over TLS read as a stream, which listening to its data does, instead of by Node's parser right from the
 * handle. While a large answer is on its way Node pauses that parser at the next request, and yet hands it what is already
 * decrypted of the request's body, which then counts as unreadable ("Parse Error: Paused"); a stream keeps it.
 */
const readByStream = (socket: Socket): void => void socket.on('data', () => undefined);

/** HTTP/1.1 is all that is spoken. Whom HTTP/2 alone will do is let in all the same, for nothing can be said to it before. */
const chooseProtocol = ({ protocols }: { readonly protocols: readonly string[] }): string | undefined =>
  ['http/1.1', 'h2'].find((protocol) => protocols.includes(protocol));

/** Frames of HTTP/2: SETTINGS without any, and GOAWAY that says HTTP_1_1_REQUIRED: clients come back with that then. */
const SETTINGS = Buffer.from('000000040000000000', 'hex');
const HTTP_1_1_REQUIRED = Buffer.from('000008070000000000000000000000000d', 'hex');
const FRAME_HEAD_BYTES = 9;
/** Of a frame where nothing else was agreed. */
const MAX_FRAME_BYTES = 16_384;
const HEADERS = 1;

/** What fails outside of both planes is answered in the shape of the data plane. */
function sendPlain(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
  const described = describeError(error);
  const activityId = randomUUID();
  if (described === undefined) request.log.error({ err: error, activityId }, 'a request failed unexpectedly');
  const shape: WireShape = described?.shape ?? wireShapes.internal;
  return reply
    .code(shape.status)
    .headers({
      'x-ms-activity-id': activityId,
      'x-ms-request-charge': '0',
      'cache-control': KEPT_BY_NOBODY,
      ...errorHeaders(shape),
    })
    .type('application/json')
    .send(errorBody(shape.code, described?.message ?? 'An internal error occurred.', activityId));
}

/** Milliseconds that a client has to read why it is hung up on, and to close its own side. */
const LINGER_MS = 1000;

/** The connections whose clients have been told. */
const hungUp = new WeakSet<Socket>();

/** What Node's parser says of bytes that it can't go on with. */
interface Unreadable extends Error {
  readonly code?: string;
  readonly bytesParsed?: number;
  /** A Buffer, whatever its type says. */
  readonly rawPacket?: unknown;
}

/**
 * Answers what isn't HTTP, takes too long to arrive or has too large a head: there is no request to route then. Whoever
 * has sent it behind a request would take what is said of it for the answer to that, which comes first.
 */
function answerUnreadable(error: Unreadable, socket: Socket): void {
  // Where TLS did not come about nothing can be said, and waiting for it to be taken would keep the connection for ever.
  const isOfTls = /^ERR_(TLS|SSL)_/.test(error.code ?? '');
  // What it sent before it could read the answer must not cut that off.
  if (hungUp.has(socket)) return;
  if (isOfTls || error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  hungUp.add(socket);
  if (error.code === 'HPE_PAUSED_H2_UPGRADE') {
    void refuseHttp2(error, socket);
    return;
  }
  const refuse = (): void => {
    const answer = nextAnswer(socket);
    // To a request that has come whole.
    if (answer?.req.complete === true) {
      answer.once('close', refuse);
      return;
    }
    if (!socket.writable) return;
    // In the middle of an answer it would be taken for a part of that.
    if (answer?._headerSent === true) {
      socket.destroy();
      return;
    }
    socket.end(refusal(unreadable(error.code)));
    void letGo(socket);
  };
  refuse();
}

/**
 * An answer, and whether some of it is out.
 *
 * @source `socketOnError` of Node's HTTP server, which looks at the same before it answers 400 by itself
 */
interface NextAnswer extends ServerResponse {
  readonly _headerSent?: boolean;
}

/** The answer that is next on a connection. */
const nextAnswer = (socket: Socket & { readonly _httpMessage?: NextAnswer | null }): NextAnswer | undefined =>
  socket._httpMessage ?? undefined;

/**
 * Tells why when the first request comes: the Rust client hears nothing but "connection closed" of what is said before, and
 * fails instead of coming back.
 */
async function refuseHttp2({ rawPacket, bytesParsed }: Unreadable, socket: Socket): Promise<void> {
  const asked = new AbortController();
  let frames: Buffer = rawPacket instanceof Buffer ? rawPacket.subarray(bytesParsed) : Buffer.alloc(0);
  const look = (): void => {
    while (frames.length >= FRAME_HEAD_BYTES) {
      const bytes = frames.readUIntBE(0, 3);
      if (frames[3] === HEADERS || bytes > MAX_FRAME_BYTES) {
        asked.abort();
        return;
      }
      if (frames.length < FRAME_HEAD_BYTES + bytes) return;
      frames = frames.subarray(FRAME_HEAD_BYTES + bytes);
    }
  };
  socket.on('data', (chunk: Buffer) => {
    if (asked.signal.aborted) return;
    frames = Buffer.concat([frames, chunk]);
    look();
  });
  look();
  socket.once('close', () => asked.abort());
  socket.write(SETTINGS);
  await wait(LINGER_MS, asked.signal);
  socket.end(HTTP_1_1_REQUIRED);
  await letGo(socket);
}

async function letGo(socket: Socket): Promise<void> {
  const closed = new AbortController();
  socket.once('close', () => closed.abort());
  await wait(LINGER_MS, closed.signal);
  socket.destroy();
}

function refusal({ shape, message }: { readonly shape: WireShape; readonly message: string }): string {
  const activityId = randomUUID();
  const body = errorBody(shape.code, message, activityId);
  return [
    `HTTP/1.1 ${shape.status} ${STATUS_CODES[shape.status]}`,
    // A server that has a clock says what it shows (RFC 9110, 6.6.1).
    `date: ${httpTime(systemClocks.wallMs())}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-ms-activity-id: ${activityId}`,
    'x-ms-request-charge: 0',
    `cache-control: ${KEPT_BY_NOBODY}`,
    'connection: close',
    '',
    body,
  ].join('\r\n');
}

function unreadable(code: string | undefined): { readonly shape: WireShape; readonly message: string } {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return { shape: wireShapes.requestTimeout, message: 'The request took too long to arrive.' };
    case 'HPE_HEADER_OVERFLOW':
      return { shape: wireShapes.headersTooLarge, message: 'The headers of the request are too large.' };
    default:
      return { shape: wireShapes.badRequest, message: 'The request could not be read as HTTP.' };
  }
}
