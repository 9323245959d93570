import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

const LOOK_EVERY_MS = 100;

/**
 * A TCP balancer for tests: each new connection goes to the next node that reports ready. It knows nothing about requests and never repeats
 * one, so a client sees everything that a node drops.
 */
export class Balancer {
  readonly #server: Server = createServer({ noDelay: true });
  readonly #sockets = new Set<Socket>();
  readonly #nodes: { readonly endpoint: string; ready: boolean }[] = [];
  #next = 0;
  readonly #looks: NodeJS.Timeout;

  private constructor() {
    this.#server.on('connection', (socket) => this.#carry(socket));
    this.#looks = setInterval(() => void this.#look(), LOOK_EVERY_MS);
  }

  static async start(): Promise<Balancer> {
    const balancer = new Balancer();
    balancer.#server.listen(0, '127.0.0.1');
    await once(balancer.#server, 'listening');
    return balancer;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`;
  }

  /** Sends connections to a node once it is ready. */
  async add(endpoint: string): Promise<void> {
    this.#nodes.push({ endpoint, ready: false });
    while (!this.ready.includes(endpoint)) await this.#look();
  }

  remove(endpoint: string): void {
    const index = this.#nodes.findIndex((node) => node.endpoint === endpoint);
    if (index >= 0) this.#nodes.splice(index, 1);
  }

  get ready(): string[] {
    return this.#nodes.filter(({ ready }) => ready).map(({ endpoint }) => endpoint);
  }

  async close(): Promise<void> {
    clearInterval(this.#looks);
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #look(): Promise<void> {
    await Promise.all(
      this.#nodes.map(async (node) => {
        const answer = await fetch(`${node.endpoint}/_epitaph/health/ready`).catch(() => undefined);
        await answer?.arrayBuffer().catch(() => undefined);
        node.ready = answer?.status === 200;
      }),
    );
  }

  #carry(client: Socket): void {
    const ready = this.ready;
    const endpoint = ready[this.#next++ % Math.max(1, ready.length)];
    if (endpoint === undefined) {
      client.destroy();
      return;
    }
    const { hostname, port } = new URL(endpoint);
    const upstream = connect({ host: hostname, port: Number(port), noDelay: true });
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      this.#sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  }
}
