import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** Whether the server executes the statement whose answer never comes. */
export type Cut = 'before' | 'after';

/**
 * The network between a store and PostgreSQL. It counts statements, and can end the connection of a later one: before the server has the
 * statement, or when it is done and before its answer gets through. Other connections stay.
 *
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html
 */
export class StatementProxy {
  readonly #server: Server = createServer({ noDelay: true });
  readonly #sockets = new Set<Socket>();
  readonly #target: { readonly host: string; readonly port: number };
  #statements = 0;
  #roundTrips = 0;
  #armed: { readonly at: number; readonly cut: Cut } | undefined;
  #spoiled: string | undefined;

  private constructor(host: string, port: number) {
    this.#target = { host, port };
    this.#server.on('connection', (client) => this.#carry(client));
  }

  static async to(host: string, port: number): Promise<StatementProxy> {
    const proxy = new StatementProxy(host, port);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** The URL of a database through this proxy. */
  url(database: string): string {
    const url = new URL(database);
    url.port = String((this.#server.address() as { port: number }).port);
    return url.href;
  }

  /** The number of statements since the last call of {@link arm}. */
  get statements(): number {
    return this.#statements;
  }

  /** How often a client has sent something when it had got all answers. It can't have waited for the server more often. */
  get roundTrips(): number {
    return this.#roundTrips;
  }

  get isArmed(): boolean {
    return this.#armed !== undefined;
  }

  /** From now on counts from 1, and cuts the connection at the statement of that number. */
  arm(at: number, cut: Cut): void {
    this.#statements = 0;
    this.#armed = { at, cut };
  }

  /** The next statement without parameters that begins with this text fails, as by a late cancel. */
  spoil(text: string): void {
    this.#spoiled = text;
  }

  disarm(): void {
    this.#armed = undefined;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    const server = connect({ ...this.#target, noDelay: true });
    const end = () => [client, server].forEach((socket) => socket.destroy());
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', end);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        end();
      });
    }
    let awaitsAnswer = false;
    let unanswered = 0;
    const requests = new Frames((request) => {
      if (awaitsAnswer) return;
      if (request.isStatement && unanswered++ === 0) this.#roundTrips += 1;
      const cut = request.isStatement ? this.#counted() : undefined;
      if (cut === 'before') return end();
      awaitsAnswer = cut === 'after';
      if (
        request.type === 'Q' &&
        this.#spoiled !== undefined &&
        request.bytes.toString('utf8', 5).startsWith(this.#spoiled)
      ) {
        this.#spoiled = undefined;
        request.bytes.write('?', 5);
      }
      server.write(request.bytes);
    });
    client.on('data', (bytes: Buffer) => requests.take(bytes));
    const answers = new Frames(({ type, bytes }) => {
      // Statements before the one that is cut are answered.
      if (!awaitsAnswer || unanswered > 1) client.write(bytes);
      // At the start of a session the server is ready without having been asked.
      if (type === 'Z' && unanswered > 0) unanswered -= 1;
      // The server is ready for the next statement, so the one before is done.
      if (awaitsAnswer && unanswered === 0) end();
    }, true);
    server.on('data', (bytes: Buffer) => answers.take(bytes));
  }

  #counted(): Cut | undefined {
    this.#statements += 1;
    if (this.#armed?.at !== this.#statements) return undefined;
    const { cut } = this.#armed;
    this.#armed = undefined;
    return cut;
  }
}

export interface Frame {
  readonly type: string;
  readonly isStatement: boolean;
  readonly bytes: Buffer;
}

/** Cuts a stream of the protocol into messages. The first message of a client has no type. */
export class Frames {
  readonly #onFrame: (frame: Frame) => void;
  #isTyped: boolean;
  #rest = Buffer.alloc(0);

  constructor(onFrame: (frame: Frame) => void, isTyped = false) {
    this.#onFrame = onFrame;
    this.#isTyped = isTyped;
  }

  take(bytes: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    for (;;) {
      const header = this.#isTyped ? 1 : 0;
      if (this.#rest.length < header + 4) return;
      const length = header + this.#rest.readInt32BE(header);
      if (this.#rest.length < length) return;
      const type = this.#isTyped ? String.fromCharCode(this.#rest[0]!) : '';
      const frame = this.#rest.subarray(0, length);
      this.#rest = this.#rest.subarray(length);
      this.#isTyped = true;
      // A simple query, or the end of a prepared statement.
      this.#onFrame({ type, isStatement: type === 'Q' || type === 'S', bytes: frame });
    }
  }
}
