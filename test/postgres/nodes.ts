import { type ClockSources, GuardedClock, systemClocks } from '@epitaph/core/clock.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { NodeRole } from '@epitaph/api/store/parts.ts';
import { Store } from '@epitaph/api/store/store.ts';
import { checkpointCryptography, ProofSigner } from '@epitaph/storage/crypto/proof-signer.ts';
import { openPostgresStorage, type PostgresStorage } from '@epitaph/storage/postgres/open-postgres-storage.ts';
import { SqliteProofStore } from '@epitaph/storage/sqlite/sqlite-proof-store.ts';

export interface NodeOptions {
  readonly roles?: readonly NodeRole[];
  /** How far this node's clock is ahead of the machine's, in milliseconds. */
  readonly skewMs?: number;
  readonly policyDelayMs?: number;
  /** The machine's clocks; the system's by default. */
  readonly clocks?: ClockSources;
  readonly automaticPurge?: boolean;
  /** This node's own connection to the log. */
  readonly log?: EventLog;
  /** The file for this node's tree of proofs; without it, the node proves nothing. */
  readonly proofFile?: string;
  /** The time for which copies of the vault are kept, in seconds. */
  readonly copiesKeptSeconds?: number;
}

export interface Node {
  readonly store: Store;
  readonly storage: PostgresStorage;
  close(): Promise<void>;
}

/** Several nodes in one process, with one log in memory, vault and read models in PostgreSQL, and a clock for each node. */
export class Cluster {
  readonly log: EventLog;
  readonly url: string;
  readonly #masterKey = Buffer.alloc(32, 5).toString('base64');
  readonly #nodes: Node[] = [];
  readonly faults: unknown[] = [];

  constructor(url: string, log: EventLog = new MemoryEventLog()) {
    this.url = url;
    this.log = log;
  }

  async start({
    roles = ['project', 'purge'],
    skewMs = 0,
    policyDelayMs = 1_000,
    clocks = systemClocks,
    automaticPurge = true,
    log = this.log,
    proofFile,
    copiesKeptSeconds,
  }: NodeOptions = {}): Promise<Node> {
    const storage = await openPostgresStorage({
      url: this.url,
      masterKey: this.#masterKey,
      copiesKeptSeconds,
      log: {
        id: 'the log in memory',
        name: 'this process',
        isEmpty: (await this.log.head()) === 0,
        claim: (owner) => Promise.resolve(owner),
      },
    });
    const sources: ClockSources = { monotonicMs: () => clocks.monotonicMs(), wallMs: () => clocks.wallMs() + skewMs };
    const proofs = proofFile === undefined ? undefined : new SqliteProofStore(proofFile);
    const signer = ProofSigner.fromSeed(await storage.vault.containerSecret('proof'));
    const store = await Store.open({
      ...storage,
      log,
      ...(proofs === undefined ? {} : { proof: { store: proofs, signer, cryptography: checkpointCryptography } }),
      nodes: { readModels: storage.readModels, roles: new Set(roles), policyDelayMs },
      clock: new GuardedClock({ sources, mark: { initialMs: 0, save: () => {} } }),
      monotonicMs: () => clocks.monotonicMs(),
      automaticPurge,
      policyGraceSeconds: 0,
      onFault: (error) => this.faults.push(error),
      closePorts: async () => {
        proofs?.close();
        await storage.close();
      },
    });
    const node: Node = { store, storage, close: () => this.#close(node) };
    this.#nodes.push(node);
    return node;
  }

  async dispose(): Promise<void> {
    while (this.#nodes.length > 0) await this.#nodes.at(-1)!.close();
  }

  async #close(node: Node): Promise<void> {
    const index = this.#nodes.indexOf(node);
    if (index < 0) return;
    this.#nodes.splice(index, 1);
    await node.store.close();
  }
}
