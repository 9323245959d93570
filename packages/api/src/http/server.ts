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

// An import would make Node.js load its web sockets too, which takes about 25 ms of computing.
const { createServer, STATUS_CODES } = process.getBuiltinModule('node:http');

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * True for a route that needs no key. Its answers must be small or share their bytes, because there may be as many
     * as connections.
     */
    readonly isForAnyone?: boolean;
  }
}

export interface ServerOptions {
  readonly store: StoreApi;
  readonly keys: KeyRing;
  /** Checks identity tokens; without it none are accepted. */
  readonly identities?: Identities | undefined;
  readonly limits?: Partial<Limits>;
  readonly consistency?: ConsistencyPolicy;
  readonly logger?: FastifyBaseLogger;
  /** Origins of web pages that may call the data plane, `*` for all. None by default. */
  readonly origins?: readonly string[] | undefined;
  /** Whether the server runs the scripts that clients store; true by default. */
  readonly scripts?: boolean | undefined;
  /** Certificate and key as PEM text, for TLS. */
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer } | undefined;
  /** Returns the error for a request that is refused whatever it asks for. */
  readonly guard?: ((request: IncomingMessage) => WireError | undefined) | undefined;
  /** Registers the management plane. Each may register routes below `/_epitaph`. */
  readonly plugins?: readonly ((app: FastifyInstance) => void)[];
  /**
   * Answers targets that the router can't read. All of these are the management plane's. By default they are answered
   * as in the data plane.
   */
  readonly sendUnroutable?: (request: FastifyRequest, reply: FastifyReply, error: unknown) => FastifyReply;
}

/**
 * The complete server, not yet listening: tests inject requests, the command line listens. The management plane uses a
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
    // How often timeouts are checked. Node's own 30 s would double them.
    connectionsCheckingInterval: Math.min(5000, limits.requestTimeoutMs),
    // Node.js would refuse such a request with an answer that gives no reason.
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
    // A line for each request would cost more than the request, and the history is a better record.
    logController: new LogController({ disableRequestLogging: true }),
    // Requests have no logger of their own: messages name a request by its activity or correlation id.
    childLoggerFactory: (logger) => logger,
    // While it closes, the store itself refuses requests in a form that clients understand.
    return503OnClosing: false,
    clientErrorHandler: answerUnreadable,
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      void (options.sendUnroutable ?? sendPlain)(request, reply, error);
      // No hook is called for such a request.
      store.measurements.countRequest('management', 'none', reply.statusCode);
    },
    // Routes have no schemas. Loading the schema compilers would take a tenth of a start.
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
  // Node.js would refuse an unknown expectation with an answer that gives no reason.
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
 * Refuses requests for which there is no room. A request that needs no key takes no room, because anyone could use all
 * of it. Also, health checks must be answered under load most of all.
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

/** Fastify calls this for a route with a schema. There are no such routes. */
function withoutSchemas(): never {
  throw new Error('Routes have no schemas here: what comes from outside is read with zod.');
}

/**
 * Makes a TLS connection be read as a stream, which listening to its data does, and not by Node's parser directly from
 * the handle. While a large answer is being sent, Node pauses that parser at the next request, but still gives it the
 * part of the request's body that is already decrypted. That then counts as unreadable ("Parse Error: Paused"). A
 * stream keeps it.
 */
const readByStream = (socket: Socket): void => void socket.on('data', () => undefined);

/**
 * Selects HTTP/1.1, the only protocol of this server. A client that offers only HTTP/2 is let in, because it can't be
 * told the reason earlier.
 */
const chooseProtocol = ({ protocols }: { readonly protocols: readonly string[] }): string | undefined =>
  ['http/1.1', 'h2'].find((protocol) => protocols.includes(protocol));

/**
 * HTTP/2 frames: an empty SETTINGS, and a GOAWAY with HTTP_1_1_REQUIRED, after which clients come back with HTTP/1.1.
 */
const SETTINGS = Buffer.from('000000040000000000', 'hex');
const HTTP_1_1_REQUIRED = Buffer.from('000008070000000000000000000000000d', 'hex');
const FRAME_HEAD_BYTES = 9;
/** The largest frame unless agreed otherwise. */
const MAX_FRAME_BYTES = 16_384;
const HEADERS = 1;

/** Answers errors outside of both planes in the form of the data plane. */
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

/** Milliseconds that a client has to read why it is cut off, and to close its own side. */
const LINGER_MS = 1000;

/** The connections whose clients have been told why. */
const hungUp = new WeakSet<Socket>();

/** The error of Node's parser for bytes that it can't read. */
interface Unreadable extends Error {
  readonly code?: string;
  readonly bytesParsed?: number;
  /** A Buffer, contrary to its type. */
  readonly rawPacket?: unknown;
}

/**
 * Answers data that isn't HTTP, takes too long to arrive or has too large a head; it can't be routed as a request. If
 * it follows a request, the client would take this answer for the answer to that request, so that one is sent first.
 */
function answerUnreadable(error: Unreadable, socket: Socket): void {
  // If TLS failed, nothing can be sent, and waiting for it to be read would keep the connection for ever.
  const isOfTls = /^ERR_(TLS|SSL)_/.test(error.code ?? '');
  // Data that the client sent before it could read the answer must not cut the answer off.
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
    // It answers a request that has arrived completely, so it comes first.
    if (answer?.req.complete === true) {
      answer.once('close', refuse);
      return;
    }
    if (!socket.writable) return;
    // In the middle of an answer, this one would be taken for a part of it.
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
 * An answer, and whether a part of it has been sent.
 *
 * @source `socketOnError` of Node's HTTP server, which checks the same before it answers 400 by itself
 */
interface NextAnswer extends ServerResponse {
  readonly _headerSent?: boolean;
}

/** The next answer on a connection. */
const nextAnswer = (socket: Socket & { readonly _httpMessage?: NextAnswer | null }): NextAnswer | undefined =>
  socket._httpMessage ?? undefined;

/**
 * Refuses HTTP/2 when the first request comes. If it were refused earlier, the Rust client would only see "connection
 * closed", and fail without coming back with HTTP/1.1.
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
    // A server with a clock must send its time (RFC 9110, 6.6.1).
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
