import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

/** Whether the server has carried a statement out whose answer never comes. */
export type Cut = 'before' | 'after';

/**
 * The network between a store and PostgreSQL, which counts statements and can end the connection of a coming one: before
 * the server has it, or when it is done and before the answer is through. Other connections stand.
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

  /** The URL of a database as it is reached through here. */
  url(database: string): string {
    const url = new URL(database);
    url.port = String((this.#server.address() as { port: number }).port);
    return url.href;
  }

  /** Statements that have come since the last call of {@link arm}. */
  get statements(): number {
    return this.#statements;
  }

  /** How often a client has asked something when it had all answers, of which it can't have waited for more. */
  get roundTrips(): number {
    return this.#roundTrips;
  }

  get isArmed(): boolean {
    return this.#armed !== undefined;
  }

  /** From now on counts from 1, and cuts at the one of that number. */
  arm(at: number, cut: Cut): void {
    this.#statements = 0;
    this.#armed = { at, cut };
  }

  /** The next statement without parameters that begins so fails by itself, as by a cancel that comes late. */
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
      // What was sent before the one that is cut is answered.
      if (!awaitsAnswer || unanswered > 1) client.write(bytes);
      // As after the start of the session, of which nobody has asked for anything.
      if (type === 'Z' && unanswered > 0) unanswered -= 1;
      // It is ready for the next statement: with the one before it is done.
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

/** Cuts a stream of the protocol into messages. A client's first one has no type. */
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
      // A simple query, or the end of a prepared one.
      this.#onFrame({ type, isStatement: type === 'Q' || type === 'S', bytes: frame });
    }
  }
}
