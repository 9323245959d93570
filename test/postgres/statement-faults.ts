import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import { Refusal, type ErrorCode } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { DEFINITION } from '../support/definition.ts';
import { Cluster, type Node } from './nodes.ts';
import type { TestServer } from './server.ts';
import { type Cut, StatementProxy } from './statement-proxy.ts';

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const PARTITION = '["p"]';
const PATIENCE_MS = 60_000;

/**
 * Repeats a request as a client does while it is told to try again. A repetition may find the work already done, which these codes tell.
 */
async function patiently(work: () => Promise<unknown>, doneAlready: readonly ErrorCode[] = []): Promise<void> {
  const untilMs = performance.now() + PATIENCE_MS;
  for (let isAgain = false; ; isAgain = true) {
    try {
      await work();
      return;
    } catch (error) {
      if (isAgain && error instanceof Refusal && doneAlready.includes(error.code)) return;
      if (!(error instanceof StorageUnavailable) || performance.now() > untilMs) throw error;
      await pause(20);
    }
  }
}

/** A store, and everything that changes something in PostgreSQL, done once, while the connection of one statement may be cut. */
export class FaultyRun {
  readonly #cluster: Cluster;
  readonly #node: Node;
  readonly #turnOn: (milliseconds: number) => void;

  private constructor(cluster: Cluster, node: Node, turnOn: (milliseconds: number) => void) {
    this.#cluster = cluster;
    this.#node = node;
    this.#turnOn = turnOn;
  }

  /**
   * Does it all, and checks the result.
   *
   * @param at the statement whose connection is cut, counted from the first command on
   * @returns how many statements there were, and whether one was cut
   */
  static async of(
    server: TestServer,
    at: number,
    cut: Cut,
  ): Promise<{ readonly statements: number; readonly isCut: boolean }> {
    const database = await server.newDatabase();
    const { hostname, port } = new URL(database);
    const proxy = await StatementProxy.to(hostname, Number(port));
    const cluster = new Cluster(proxy.url(database));
    let nowMs = 1_700_000_000_000;
    const clocks = { wallMs: () => nowMs, monotonicMs: () => nowMs };
    try {
      const node = await cluster.start({ policyDelayMs: 0, automaticPurge: false, clocks });
      const run = new FaultyRun(cluster, node, (milliseconds) => {
        nowMs += milliseconds;
      });
      proxy.arm(at, cut);
      await run.#work();
      const { statements, isArmed } = proxy;
      proxy.disarm();
      await run.#check();
      return { statements, isCut: !isArmed };
    } finally {
      await cluster.dispose();
      await proxy.close();
      await server.dropDatabase(database);
    }
  }

  get #store() {
    return this.#node.store;
  }

  #write(operation: 'create' | 'upsert', id: string, properties: object = {}, container = 'c'): Promise<void> {
    const document = { id, pk: 'p', ...properties };
    const item = { id, partitionKey: PARTITION, document, json: JSON.stringify(document) };
    return patiently(
      () => this.#store.writeItem(CALLER, this.#store.container('db', container), operation, item),
      ['already-exists'],
    );
  }

  #delete(id: string): Promise<void> {
    const { container } = this.#store;
    return patiently(
      () => this.#store.deleteItem(CALLER, container.call(this.#store, 'db', 'c'), id, PARTITION),
      ['item-not-found'],
    );
  }

  #purge(): Promise<void> {
    return patiently(() => this.#store.runPurge());
  }

  async #rebuild(): Promise<void> {
    for (;;) {
      await patiently(async () => this.#store.startRebuild('items'));
      let status = this.#store.rebuildStatus('items')!;
      while (status.state === 'running' || status.state === 'comparing') {
        await pause(5);
        status = this.#store.rebuildStatus('items')!;
      }
      if (status.state === 'done') {
        expect(status.differing ?? []).toEqual([]);
        return;
      }
      expect(status.state, status.error).toBe('failed');
    }
  }

  async #work(): Promise<void> {
    const store = this.#store;
    const container = () => store.container('db', 'c');
    const reason = 'a test';
    await patiently(() => store.createDatabase(CALLER, 'db'), ['already-exists']);
    for (const name of ['c', 'other']) {
      await patiently(() => store.createContainer(CALLER, 'db', name, DEFINITION, -1), ['already-exists']);
    }
    await Promise.all(['stays', 'changed', 'deleted'].map((id) => this.#write('create', id)));
    await this.#write('create', 'expires', { ttl: 10 });
    await this.#write('create', 'erased');
    await this.#write('create', 'held', { ttl: 10 });
    await this.#write('create', 'with the other', {}, 'other');
    await this.#write('upsert', 'changed', { v: 2 });
    await this.#delete('deleted');
    const scope = { kind: 'items', items: [{ id: 'held', partitionKey: PARTITION }] } as const;
    await patiently(() => store.placeHold(CALLER, container(), 'h', { scope, reason }));
    this.#turnOn(20_000);
    await this.#purge();
    await patiently(() => store.setRetentionFloor(CALLER, container(), 60, reason));
    await patiently(() => store.setRetentionFloor(CALLER, container(), 0, reason));
    await patiently(
      () => store.eraseItem(CALLER, container(), 'erased', PARTITION, { reason, requestedBy: 'nobody' }),
      ['item-not-found'],
    );
    await patiently(() => store.releaseHold(CALLER, container(), 'h', reason));
    await this.#rebuild();
    await this.#write('create', 'by the policy');
    await patiently(() => store.replaceContainer(CALLER, 'db', 'c', DEFINITION, 1_000));
    this.#turnOn(500_000);
    await Promise.all(['stays', 'changed'].map((id) => this.#write('upsert', id, { v: 3 })));
    this.#turnOn(600_000);
    await patiently(() => store.deleteContainer(CALLER, 'db', 'other'), ['container-not-found']);
    await this.#purge();
  }

  /** Nothing acknowledged is lost, everything that ended is erased and recorded once, and all parts agree. */
  async #check(): Promise<void> {
    const { store, storage } = this.#node;
    await this.#purge();
    const container = store.container('db', 'c');
    const { items } = await store.listItems(container, { maxItemCount: 100, atLeast: store.headPosition() });
    const shown = Object.fromEntries(items.map(({ id, json }) => [id, (JSON.parse(json) as { v: number }).v]));
    expect(shown).toEqual({ stays: 3, changed: 3 });
    for (const id of ['deleted', 'expires', 'erased', 'held', 'by the policy']) {
      const history = await store.history(container, id, PARTITION);
      expect(history.filter(({ type }) => type === 'ItemPurged').length, id).toBe(1);
      expect(new Set(history.map(({ eventId }) => eventId)).size, id).toBe(history.length);
    }
    const recorded = await this.#cluster.log.readAll(0, 10_000);
    const purged = recorded.filter(({ type }) => type === 'ItemPurged');
    expect(purged.length).toBe(6);
    for (const { stream, data } of purged) {
      const key = await storage.vault.findKey(Number(data['key']), stream);
      expect(key.status, stream).not.toBe('there');
    }
    expect((await store.fsck()).problems).toEqual([]);
    for (const fault of this.#cluster.faults) expect(fault).toBeInstanceOf(StorageUnavailable);
  }
}
