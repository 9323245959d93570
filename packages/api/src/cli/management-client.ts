import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { UsageError } from './exit-codes.ts';
import { linesIn } from './lines.ts';

// An import would make Node.js load its web sockets too, which takes about 25 ms of computing.
const { request: httpRequest } = process.getBuiltinModule('node:http');

/** The server can't be reached, or the connection broke. */
export class ServerUnreachable extends Error {
  override readonly name = 'ServerUnreachable';
}

/** The server refused the request. The message is its own. */
export class ServerRefused extends Error {
  override readonly name = 'ServerRefused';
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

export interface ServerEvent {
  readonly event: string;
  readonly data: unknown;
}

/**
 * How long a server may be silent before it is asked whether it is alive, and how long it may take to answer that, in
 * milliseconds.
 */
interface Patience {
  readonly silenceMs: number;
  readonly livenessMs: number;
}

const PATIENCE: Patience = { silenceMs: 15_000, livenessMs: 15_000 };
/** After this silence the system checks whether the other machine still has the connection. */
const KEEP_ALIVE_MS = 30_000;

const NO_SUCH_KEY =
  'The server does not accept this key. Give another one in EPITAPH_KEY or --key. The keys are in keys.json in the server’s data folder, except for the primary key: a server that was started with --key uses that one, and a server on loopback without --key uses the published key of the emulator.';

type Query = Readonly<Record<string, string | undefined>>;
interface Sent {
  readonly query?: Query;
  /** A string is sent as JSON text unchanged. */
  readonly body?: unknown;
  readonly accept?: string;
}

/**
 * Calls the management plane of a running server. It does not use `fetch`, which gives up when an answer takes more
 * than five minutes to begin, as that of a long purge does.
 */
export class ManagementClient {
  readonly endpoint: string;
  readonly #key: string;
  readonly #ca: Buffer | undefined;
  readonly #patience: Patience;
  readonly #onEarlier: (rids: string) => void;

  /**
   * @param ca certificates, PEM, of the authorities to trust instead of those of Node.js
   * @param onEarlier called with the rids of deleted containers of the requested name, which an answer leaves out
   */
  constructor(endpoint: string, key: string, ca?: Buffer, patience = PATIENCE, onEarlier = (_rids: string) => {}) {
    if (!/^https?:$/.test(URL.parse(endpoint)?.protocol ?? '')) {
      throw new UsageError('--endpoint must be a URL like http://127.0.0.1:8081.');
    }
    // The content of a file often ends with a line end, which a header can't contain.
    if (!/^[!-~]*$/.test(key)) {
      throw new UsageError(
        "The key (--key or EPITAPH_KEY) contains a space, a line end or another character that a key can't have.",
      );
    }
    // Pages and the server's first lines show the address of the calls, which is below the endpoint.
    this.endpoint = endpoint.replace(/\/+$/, '').replace(/\/_epitaph$/, '');
    this.#key = key;
    this.#ca = ca;
    this.#patience = patience;
    this.#onEarlier = onEarlier;
  }

  /** @throws ServerUnreachable, ServerRefused */
  async call<T>(method: string, path: string, sent: Sent = {}): Promise<T> {
    const response = await this.#send(method, path, { accept: 'application/json', ...sent });
    const text = await textOf(response);
    try {
      return JSON.parse(text) as T;
    } catch {
      throw notEpitaph(response.statusCode);
    }
  }

  /** Server-sent events, until the server ends them. */
  async *events(method: string, path: string, sent: Omit<Sent, 'accept'> = {}): AsyncGenerator<ServerEvent> {
    const response = await this.#send(method, path, { ...sent, accept: 'text/event-stream' });
    let event = '';
    for await (const line of linesOf(response)) {
      if (line.startsWith('event: ')) event = line.slice(7);
      else if (line.startsWith('data: ')) yield { event, data: JSON.parse(line.slice(6)) as unknown };
    }
  }

  async *lines(method: string, path: string, sent: Sent): AsyncGenerator<string> {
    yield* linesOf(await this.#send(method, path, sent));
  }

  /**
   * An answer as a stream. A caller that reads it to its end gets all of it, or an error.
   *
   * @throws ServerUnreachable, ServerRefused
   */
  async download(path: string, sent: Sent): Promise<IncomingMessage> {
    return this.#send('GET', path, { accept: '*/*', ...sent });
  }

  async #send(method: string, path: string, { query, body, accept }: Sent): Promise<IncomingMessage> {
    const url = new URL(`${this.endpoint}/_epitaph${path}`);
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, value);
    }
    const payload = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const request = this.#request(url, this.#patience.silenceMs, {
      method,
      headers: {
        authorization: `Bearer ${this.#key}`,
        accept,
        ...(payload === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
      },
    });
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      let giveUp = (error: ServerUnreachable): void => void request.destroy(error);
      request.once('response', (answer) => {
        giveUp = (error) => void answer.destroy(error);
        resolve(answer);
      });
      request.on('timeout', () => {
        void this.#isAtWork(request).then((isAtWork) => {
          if (isAtWork) request.socket?.setTimeout(this.#patience.silenceMs);
          else giveUp(new ServerUnreachable(`The server at ${this.endpoint} did not answer in time.`));
        });
      });
      request.on('error', (error: NodeJS.ErrnoException) => {
        if (error instanceof ServerUnreachable) return reject(error);
        const why = error.message === '' ? (error.code ?? 'no connection') : error.message;
        reject(new ServerUnreachable(this.#whyNot(error.code ?? '', why)));
      });
      request.end(payload);
    });
    const earlier = response.headers['x-epitaph-earlier-containers'];
    if (typeof earlier === 'string') this.#onEarlier(earlier);
    if (response.statusCode !== undefined && response.statusCode < 300) return response;
    throw refusal(response.statusCode ?? 0, await textOf(response));
  }

  #whyNot(code: string, why: string): string {
    if (/CERT|SIGNATURE|ISSUER/.test(code)) {
      const isOutOfDate = /EXPIRED|NOT_YET_VALID|ALTNAME/.test(code);
      return `The certificate of the server at ${this.endpoint} is not trusted (${why}).${isOutOfDate ? '' : ' Name the file with the certificate of its authority: --tls-ca.'}`;
    }
    // OpenSSL's own message contains lines of numbers.
    if (code === 'EPROTO')
      return `The server at ${this.endpoint} does not use TLS. Should --endpoint begin with http://?`;
    const isHangUp = code === 'ECONNRESET' && this.endpoint.startsWith('http:');
    return `No server answers at ${this.endpoint} (${why}). Is it started, and is --endpoint right${isHangUp ? '? Should it begin with https://' : ''}?`;
  }

  /**
   * Sends a request on a connection of its own. Its `timeout` event also covers the time before the connection exists.
   */
  #request(url: URL, timeout: number, options: RequestOptions): ClientRequest {
    const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
      ...options,
      agent: false,
      timeout,
      ...(this.#ca === undefined ? {} : { ca: this.#ca }),
    });
    request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    return request;
  }

  /**
   * Asks a server that is silent on a request whether it is alive. If it is, the work takes long. If it accepts no
   * connections any more, it is about to end, and will end the connection of the request too.
   */
  #isAtWork({ socket }: ClientRequest): Promise<boolean> {
    const saidBefore = socket?.bytesRead;
    return new Promise((resolve) => {
      const asked = this.#request(new URL(`${this.endpoint}/_epitaph/health/live`), this.#patience.livenessMs, {});
      asked.once('response', (answer) => {
        answer.resume();
        resolve(true);
      });
      asked.once('timeout', () => {
        resolve(socket?.bytesRead !== saidBefore);
        asked.destroy();
      });
      asked.on('error', () => resolve(true));
      asked.end();
    });
  }
}

function refusal(status: number, text: string): ServerRefused {
  try {
    const { code, detail } = JSON.parse(text) as { code?: unknown; detail?: unknown };
    if (code === 'unauthorized') return new ServerRefused(code, NO_SUCH_KEY);
    if (typeof code === 'string' && typeof detail === 'string') return new ServerRefused(code, detail);
  } catch {
    // Not in the form of this server's errors, so another server has answered.
  }
  return notEpitaph(status);
}

const notEpitaph = (status = 0): ServerRefused =>
  new ServerRefused(
    'unknown',
    `The answer (status ${status}) is not from Epitaph, or Epitaph is not at this address. Is --endpoint right?`,
  );

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const line of linesOf(response)) text += `${line}\n`;
  return text;
}

async function* linesOf(response: IncomingMessage): AsyncGenerator<string> {
  try {
    yield* linesIn(response.setEncoding('utf8') as AsyncIterable<string>);
    if (!response.complete) throw response.errored ?? new Error('the answer was incomplete');
  } catch (error) {
    if (error instanceof ServerUnreachable) throw error;
    throw new ServerUnreachable(`The connection to the server broke: ${(error as Error).message}`);
  }
}
