import { afterAll, beforeAll, describe, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { PolicyFact, WriteFact } from '../simulation/model.ts';
import { runOut } from '../simulation/model.ts';
import { Random } from '../simulation/random.ts';
import { fakeMachine } from '../simulation/world.ts';
import { DEFINITION } from '../support/definition.ts';
import { Cluster, type Node } from './nodes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const PARTITION = '["p"]';
const ITEMS = ['a', 'b', 'c', 'd'];
const START_MS = 1_700_000_000_500;
const POLICY_DELAY_MS = 8_000;

const STEPS = 50;

/** The tests, over this many seeds, on a PostgreSQL server of their own. */
export function describeSkewedNodes(seeds: number, timeoutMs: number): void {
  let server: TestServer;
  beforeAll(async () => {
    if (whyNoPostgres === undefined) server = await TestServer.start();
  });
  afterAll(() => server?.dispose());

  describe.skipIf(whyNoPostgres !== undefined)(`two nodes whose clocks are seconds apart${skipReason}`, () => {
    it(
      `agree under changing policies, through random commands of the seeds 1 to ${seeds}`,
      { timeout: timeoutMs },
      async () => {
        for (let seed = 1; seed <= seeds; seed++) {
          await simulateSkewedNodes(await server.newDatabase(), seed, STEPS);
          if (seed % 20 === 0) process.stdout.write(`${seed} of ${seeds} seeds\n`);
        }
      },
    );
  });
}

/**
 * One run of two nodes whose clocks are seconds apart, over one log in memory and one read model in PostgreSQL, on time that the run
 * advances: random writes, reads, deletes, purges and changes of policies, checked against a model.
 */
async function simulateSkewedNodes(url: string, seed: number, steps: number): Promise<void> {
  const random = new Random(seed);
  const trail: string[] = [];
  const log = new MemoryEventLog();
  const machine = fakeMachine(START_MS);
  const cluster = new Cluster(url, log);
  try {
    const skewMs = random.int(0, POLICY_DELAY_MS / 4);
    const options = { clocks: machine, policyDelayMs: POLICY_DELAY_MS, automaticPurge: false };
    const nodes = [
      await cluster.start({ ...options, skewMs: -skewMs }),
      await cluster.start({ ...options, skewMs }),
    ] as const;
    trail.push(`the clocks are ${2 * skewMs} ms apart`);
    await nodes[0].store.createDatabase(CALLER, 'db');
    const { resource } = await nodes[0].store.createContainer(
      CALLER,
      'db',
      'coll',
      DEFINITION,
      random.pick([null, -1, 20]),
    );
    await nodes[1].store.settleNames('db', 'coll');
    const run = new Run(random, nodes, trail, resource);
    for (let step = 0; step < steps; step++) {
      const elapsed = await run.step();
      machine.wall += elapsed;
      machine.monotonic += elapsed;
    }
    // After every deadline that is not years away.
    machine.wall += 3_600_000;
    machine.monotonic += 3_600_000;
    for (const item of ITEMS) for (const node of nodes) await run.look(node, item);
    for (const { store } of nodes) await store.runPurge();
    for (const { store } of nodes) {
      const { problems } = await store.fsck();
      if (problems.length > 0) throw new Error(`fsck: ${JSON.stringify(problems.slice(0, 3))}`);
    }
    for (const type of ['ItemExpired', 'ItemPurged']) {
      const streams = log
        .readAll(0, 100_000)
        .filter((event) => event.type === type)
        .map(({ stream }) => stream);
      if (new Set(streams).size !== streams.length) throw new Error(`a life has ${type} twice`);
    }
    if (cluster.faults.length > 0) throw cluster.faults[0];
  } catch (error) {
    const { stack } = error as Error;
    throw new Error(`seed ${seed}: ${stack}\n  last:\n  ${trail.slice(-20).join('\n  ')}`, { cause: error });
  } finally {
    await cluster.dispose();
  }
}

/** The last acknowledged write of an item by the model; undefined if it was deleted. */
interface Standing {
  readonly position: number;
  readonly write: (WriteFact & { readonly n: number }) | undefined;
}

class Run {
  readonly #random: Random;
  readonly #nodes: readonly [Node, Node];
  readonly #trail: string[];
  readonly #items = new Map<string, Standing>();
  #policies: PolicyFact[];
  #value = 0;
  #position = 0;

  constructor(random: Random, nodes: readonly [Node, Node], trail: string[], container: ContainerState) {
    this.#random = random;
    this.#nodes = nodes;
    this.#trail = trail;
    this.#policies = policiesOf(container);
  }

  /** @returns the number of milliseconds until the next step */
  async step(): Promise<number> {
    const random = this.#random;
    const node = random.pick(this.#nodes);
    const other = this.#nodes.find((one) => one !== node)!;
    const item = random.pick(ITEMS);
    switch (random.weighted({ write: 6, look: 8, delete: 1, policy: 2, purge: 2, corner: 4, race: 3 })) {
      case 'write':
        await this.#write(node, item);
        break;
      case 'look':
        await this.look(node, item);
        await this.look(other, item);
        break;
      case 'delete':
        await this.#delete(node, item);
        break;
      case 'policy':
        await this.#changePolicy(node);
        break;
      case 'purge':
        await this.#purge(node);
        break;
      case 'corner':
        // The node ahead records expiries. The node behind must not undo them by a policy that begins before.
        await this.#purge(this.#nodes[1]);
        await this.#changePolicy(this.#nodes[0]);
        break;
      case 'race': {
        const second = random.pick(['write', 'purge', 'policy'] as const);
        this.#note('at once:');
        await Promise.all([
          this.#write(node, item),
          second === 'write'
            ? this.#write(other, item)
            : second === 'purge'
              ? this.#purge(other)
              : this.#changePolicy(other),
        ]);
        await this.look(node, item);
      }
    }
    return random.pick([
      0,
      0,
      1,
      500,
      random.int(1, 3_000),
      random.int(1, 12_000),
      ...Array.from({ length: 4 }, () => this.#untilADeadline()),
    ]);
  }

  /** The time to the edge of a deadline by one of the clocks. */
  #untilADeadline(): number {
    const nowMs = this.#random.pick(this.#nodes).store.nowMs();
    for (const { write } of this.#items.values()) {
      const ending = write && runOut({ policies: this.#policies }, write, nowMs + 60_000);
      if (ending !== undefined && ending.atMs > nowMs) return ending.atMs - nowMs - this.#random.int(0, 1);
    }
    return 1_000;
  }

  async #write(node: Node, item: string): Promise<void> {
    const { store } = node;
    const n = ++this.#value;
    const ttl = this.#random.pick([undefined, undefined, 1, 5, 12, 30, -1]);
    const document = { id: item, pk: 'p', n, ...(ttl === undefined ? {} : { ttl }) };
    const atMs = store.nowMs();
    this.#note(`${this.#name(node)} writes ${JSON.stringify(document)}`, node);
    const { position } = await store.writeItem(CALLER, store.container('db', 'coll'), 'upsert', {
      id: item,
      partitionKey: PARTITION,
      document,
      json: JSON.stringify(document),
    });
    this.#stands(item, { position, write: { atMs, document, etag: '', n } });
  }

  async #delete(node: Node, item: string): Promise<void> {
    const { store } = node;
    this.#note(`${this.#name(node)} deletes ${item}`, node);
    try {
      const { position } = await store.deleteItem(CALLER, store.container('db', 'coll'), item, PARTITION);
      this.#stands(item, { position, write: undefined });
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'item-not-found') throw error;
      this.#judge(node, item, undefined);
    }
  }

  async #changePolicy(node: Node): Promise<void> {
    const { store } = node;
    const defaultTtl = this.#random.pick([null, -1, 1, 3, 10, 40]);
    this.#note(`${this.#name(node)} changes the TTL to ${defaultTtl}`, node);
    try {
      const { resource } = await store.replaceContainer(CALLER, 'db', 'coll', DEFINITION, defaultTtl);
      this.#policies = policiesOf(resource);
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'ttl-change-scheduled') throw error;
    }
  }

  async #purge(node: Node): Promise<void> {
    this.#note(`${this.#name(node)} purges`, node);
    await node.store.runPurge();
  }

  /** Reads an item with the session token of the last write, and checks what is shown. */
  async look(node: Node, item: string): Promise<void> {
    const { store } = node;
    this.#note(`${this.#name(node)} reads ${item}`, node);
    try {
      const shown = await store.readItem(store.container('db', 'coll'), item, PARTITION, this.#position);
      this.#judge(node, item, (JSON.parse(shown.json) as { readonly n: number }).n);
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'item-not-found') throw error;
      this.#judge(node, item, undefined);
    }
  }

  #judge(node: Node, item: string, n: number | undefined): void {
    const write = this.#items.get(item)?.write;
    const endedBy = (nowMs: number) =>
      write === undefined ? undefined : runOut({ policies: this.#policies }, write, nowMs);
    if (n !== undefined) {
      const ending = endedBy(node.store.nowMs());
      if (n !== write?.n) throw new Error(`${item} reads ${n}, and stands as ${JSON.stringify(write)}`);
      if (ending !== undefined) throw new Error(`${item} is shown, and has ended: ${JSON.stringify(ending)}`);
    } else if (write !== undefined) {
      const latestMs = Math.max(...this.#nodes.map(({ store }) => store.nowMs()));
      if (endedBy(latestMs) === undefined) {
        throw new Error(
          `${item} is gone, and stands as ${JSON.stringify(write)} under ${JSON.stringify(this.#policies)}`,
        );
      }
    }
  }

  #stands(item: string, standing: Standing): void {
    this.#position = Math.max(this.#position, standing.position);
    if ((this.#items.get(item)?.position ?? -1) < standing.position) this.#items.set(item, standing);
  }

  #name(node: Node): string {
    return node === this.#nodes[0] ? 'the node behind' : 'the node ahead';
  }

  #note(what: string, node = this.#nodes[0]): void {
    this.#trail.push(`${node.store.nowMs() - START_MS} ${what}`);
  }
}

const policiesOf = ({ timeline }: ContainerState): PolicyFact[] =>
  timeline.map(({ fromMs, defaultTtl }) => ({ atMs: fromMs, policy: defaultTtl }));
