import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';

/** The network between a client and a server, which a test can cut, block and restore. */
export class Proxy {
  readonly #server: Server;
  readonly #target: { readonly host: string; readonly port: number };
  readonly #sockets = new Set<Socket>();
  /** The server's end of each connection, with the client's. */
  readonly #carried = new Map<Socket, Socket>();
  #blocked = false;
  #refusing = false;
  #fatalText: string | undefined;

  private constructor(server: Server, target: { readonly host: string; readonly port: number }) {
    this.#server = server;
    this.#target = target;
  }

  static async to(port: number, host = '127.0.0.1'): Promise<Proxy> {
    // With Nagle's algorithm, a small packet would wait for 40 ms until the one before it is acknowledged.
    const server = createServer({ noDelay: true });
    const proxy = new Proxy(server, { host, port });
    server.on('connection', (socket) => proxy.#carry(socket));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as { port: number }).port;
  }

  get connectionString(): string {
    return `esdb://127.0.0.1:${this.port}?tls=false`;
  }

  /** Ends every connection, in the middle of whatever is being sent. New ones get through. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends every connection and lets none through, as if the server were gone. */
  refuse(): void {
    this.#refusing = true;
    this.cut();
  }

  /** From the moment when a client sends something with this text in it, the server is gone. The text does not get through. */
  refuseFrom(text: string): void {
    this.#fatalText = text;
  }

  /** The server loses every connection and the client is not told, as when a machine is gone and another takes its address. */
  sever(): void {
    for (const [upstream, client] of this.#carried) {
      this.#carried.delete(upstream);
      client.removeAllListeners('data').resume();
      upstream.removeAllListeners('close').destroy();
    }
  }

  /** Nothing passes either way, silently, as when the server hangs or the network loses packets. */
  block(): void {
    this.#blocked = true;
    for (const socket of this.#sockets) socket.pause();
  }

  mend(): void {
    this.#refusing = false;
    this.#fatalText = undefined;
    this.#blocked = false;
    for (const socket of this.#sockets) socket.resume();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    if (this.#refusing) {
      client.destroy();
      return;
    }
    client.on('data', (chunk: Buffer) => {
      if (this.#fatalText !== undefined && chunk.includes(this.#fatalText)) this.refuse();
    });
    const upstream = connect({ ...this.#target, noDelay: true });
    this.#carried.set(upstream, client);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(from);
      from.on('data', (chunk) => to.write(chunk));
      from.on('end', () => to.end());
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#sockets.delete(from);
        this.#carried.delete(upstream);
        to.destroy();
      });
      if (this.#blocked) from.pause();
    }
  }
}
