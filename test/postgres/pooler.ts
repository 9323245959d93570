import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { type Frame, Frames } from './statement-proxy.ts';

/** What a pooler does that the server alone would not do. */
export type Pooling = 'drops what sessions are to be like' | 'gives one session to all, by transaction';

/** What PgBouncer passes on in any case. */
const PASSED_ON = new Set(['user', 'database', 'client_encoding', 'application_name']);

/**
 * A pooler between a store and PostgreSQL, as far as the store can notice it.
 *
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
export class Pooler {
  readonly #server: Server = createServer({ noDelay: true });
  readonly #sockets = new Set<Socket>();
  readonly #target: { readonly host: string; readonly port: number };
  #shared: SharedSession | undefined;

  private constructor(url: URL, pooling: Pooling) {
    this.#target = { host: url.hostname, port: Number(url.port) };
    const carry =
      pooling === 'drops what sessions are to be like'
        ? (client: Socket) => this.#carry(client)
        : (client: Socket) => (this.#shared ??= new SharedSession(this.#upstream())).serve(client);
    this.#server.on('connection', (client) => carry(this.#known(client)));
  }

  static async to(url: string, pooling: Pooling): Promise<Pooler> {
    const pooler = new Pooler(new URL(url), pooling);
    pooler.#server.listen(0, '127.0.0.1');
    await once(pooler.#server, 'listening');
    return pooler;
  }

  /** The URL of a database through this pooler. */
  url(database: string): string {
    const url = new URL(database);
    url.port = String((this.#server.address() as { port: number }).port);
    return url.href;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    const server = this.#upstream();
    const frames = new Frames(({ type, bytes }) => server.write(type === '' ? withoutSettings(bytes) : bytes));
    client.on('data', (bytes: Buffer) => frames.take(bytes));
    client.on('close', () => server.destroy());
    server.on('data', (bytes: Buffer) => client.write(bytes));
    server.on('close', () => client.destroy());
  }

  #upstream(): Socket {
    return this.#known(connect({ ...this.#target, noDelay: true }));
  }

  #known(socket: Socket): Socket {
    this.#sockets.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

/** One session on the server. It belongs to the first client that uses it, until that client's transaction ends. */
class SharedSession {
  readonly #server: Socket;
  /** The server's answers when it accepted the first client. */
  readonly #welcome: Buffer[] = [];
  #isWelcome = true;
  #owner: Socket | undefined;
  readonly #waiting: { readonly client: Socket; readonly frame: Frame }[] = [];

  constructor(server: Socket) {
    this.#server = server;
    const frames = new Frames((frame) => this.#answered(frame), true);
    server.on('data', (bytes: Buffer) => frames.take(bytes));
  }

  serve(client: Socket): void {
    const frames = new Frames((frame) => {
      if (frame.type === 'X') return;
      // The first client is accepted by the server, and all others with the same answers.
      if (frame.type === '' && !this.#isWelcome) client.write(Buffer.concat(this.#welcome));
      else this.#ask(client, frame);
    });
    client.on('data', (bytes: Buffer) => frames.take(bytes));
  }

  #ask(client: Socket, frame: Frame): void {
    this.#owner ??= client;
    if (this.#owner === client) this.#server.write(frame.bytes);
    else this.#waiting.push({ client, frame });
  }

  #answered({ type, bytes }: Frame): void {
    if (this.#isWelcome) this.#welcome.push(bytes);
    this.#owner?.write(bytes);
    // Ready, and not in a transaction.
    if (type !== 'Z' || bytes.toString('latin1', 5) !== 'I') return;
    this.#isWelcome = false;
    this.#owner = undefined;
    for (const { client, frame } of this.#waiting.splice(0)) this.#ask(client, frame);
  }
}

function withoutSettings(startup: Buffer): Buffer {
  const texts = startup.toString('utf8', 8).split('\0');
  const kept: string[] = [];
  for (let at = 0; at + 1 < texts.length && texts[at] !== ''; at += 2) {
    if (PASSED_ON.has(texts[at]!)) kept.push(texts[at]!, texts[at + 1]!);
  }
  const body = Buffer.from(`${kept.map((text) => `${text}\0`).join('')}\0`);
  const head = Buffer.alloc(8);
  head.writeInt32BE(8 + body.length);
  startup.copy(head, 4, 4, 8);
  return Buffer.concat([head, body]);
}
