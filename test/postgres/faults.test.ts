import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { describeError } from '@epitaph/api/cosmos/errors.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { Proxy } from '../eventstoredb/proxy.ts';
import { DEFINITION } from '../support/definition.ts';
import { succeeds } from '../support/outcome.ts';
import { Load, type Target } from './load.ts';
import { Cluster, type Node } from './nodes.ts';
import { countWrites } from './processes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };
const PARTITION = '["p"]';

/** Two nodes with PostgreSQL, and with a log behind a network that the test can break. */
interface Setting {
  readonly double: EventStoreDouble;
  readonly proxy: Proxy;
  readonly server: TestServer;
  readonly nodes: readonly [Node, Node];
  readonly load: Load;
  /** Called when everything works again and the load has stopped: nothing may be lost, made twice, or wrong. */
  check(options?: { readonly failures?: 'none' | 'told-to-retry' }): Promise<void>;
}

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

function targetOf({ store }: Node, session: { position: number }): Target {
  return {
    write: async (id, n) => {
      const document = { id, pk: 'p', n };
      const { position } = await store.writeItem(CALLER, store.container('db', 'coll'), 'upsert', {
        id,
        partitionKey: PARTITION,
        document,
        json: JSON.stringify(document),
      });
      session.position = Math.max(session.position, position);
    },
    read: async (id) => {
      try {
        const shown = await store.readItem(store.container('db', 'coll'), id, PARTITION, session.position);
        return (JSON.parse(shown.json) as { readonly n: number }).n;
      } catch (error) {
        if (error instanceof Refusal && error.code === 'item-not-found') return undefined;
        throw error;
      }
    },
  };
}

async function underLoad(body: (setting: Setting) => Promise<void>): Promise<void> {
  const double = await EventStoreDouble.start();
  const proxy = await Proxy.to(double.port);
  // A deadline shorter than the default of ten seconds, because one test waits for it.
  const log = await openEventStoreLog({ connectionString: `${proxy.connectionString}&defaultDeadline=3000` });
  const cluster = new Cluster(await server.newDatabase(), log);
  try {
    const nodes = [await cluster.start(), await cluster.start()] as const;
    await nodes[0].store.createDatabase(CALLER, 'db');
    await nodes[0].store.createContainer(CALLER, 'db', 'coll', DEFINITION, null);
    await nodes[1].store.settleNames('db', 'coll');
    const session = { position: 0 };
    const load = Load.start(
      nodes.map((node) => targetOf(node, session)),
      { workers: 6 },
    );
    await load.goesOn(30);
    const check = async ({ failures = 'told-to-retry' }: { failures?: string } = {}) => {
      await load.goesOn(30);
      await load.stop();
      if (failures === 'none') expect(load.failures).toEqual([]);
      for (const { error } of load.failures) {
        // The HTTP layer answers these errors with 503 and Retry-After, or with 404/1002 if a session's position is not projected yet.
        const shape = describeError(error)?.shape;
        expect([503, 404], String((error as Error).stack)).toContain(shape?.status);
        if (shape?.status === 503) expect(shape.retryAfterSeconds).toBeGreaterThan(0);
        else expect(shape?.substatus).toBe(1002);
      }
      const sent = load.items.reduce((sum, { attempted }) => sum + attempted, 0);
      let written = 0;
      session.position = await log.head();
      for (const node of nodes) {
        const { store } = node;
        const container: ContainerState = store.container('db', 'coll');
        for (const item of load.items) {
          load.judge(item, await targetOf(node, session).read(item.id));
          const history = await store.history(container, item.id, PARTITION);
          written += history.length;
          // Each acknowledged write is there once, every other one at most once.
          expect(history.length).toBeGreaterThanOrEqual(item.acknowledgements);
          expect(history.length).toBeLessThanOrEqual(item.attempted);
          expect(new Set(history.map(({ eventId }) => eventId)).size).toBe(history.length);
        }
        expect((await store.fsck()).problems).toEqual([]);
      }
      expect(load.wrong).toEqual([]);
      expect(written).toBe(2 * countWrites(double));
      expect(countWrites(double)).toBeLessThanOrEqual(sent);
      expect(nodes.filter(({ store }) => store.projects).length).toBe(1);
    };
    await body({ double, proxy, server, nodes, load, check });
  } finally {
    double.onAppend = undefined;
    proxy.mend();
    await cluster.dispose();
    await log.close();
    await proxy.close();
    double.stop();
  }
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

describe.skipIf(whyNoPostgres !== undefined)(
  `two nodes under load, whose log is on an event store${skipReason}`,
  { timeout: 90_000 },
  () => {
    it('go on after it was killed and started again within a moment, and fail no request', () =>
      underLoad(async ({ double, load, check }) => {
        for (let round = 0; round < 3; round++) {
          double.stop();
          await pause(200);
          await double.start();
          await load.goesOn(20);
        }
        await check({ failures: 'none' });
      }));

    it('make each append once, although connections are cut before and after the server has written it', () =>
      underLoad(async ({ double, proxy, load, check }) => {
        let appends = 0;
        const cuts: string[] = [];
        double.onAppend = (moment) => {
          appends += 1;
          if (appends % 41 !== 0 || moment !== (cuts.length % 2 === 0 ? 'after' : 'before')) return;
          cuts.push(moment);
          proxy.cut();
        };
        while (cuts.length < 4) await load.goesOn(10);
        double.onAppend = undefined;
        await check({ failures: 'none' });
      }));

    it('go on without the node that projects, if that alone is cut off from it', async () => {
      const double = await EventStoreDouble.start();
      const proxy = await Proxy.to(double.port);
      const far = await openEventStoreLog({ connectionString: `${proxy.connectionString}&defaultDeadline=3000` });
      const near = await openEventStoreLog({ connectionString: double.connectionString });
      const cluster = new Cluster(await server.newDatabase(), near);
      try {
        const [cutOff, other] = [await cluster.start({ log: far }), await cluster.start()];
        expect(cutOff.store.projects).toBe(true);
        await other.store.createDatabase(CALLER, 'db');
        proxy.block();
        const isDone = (work: Promise<unknown> | undefined) => succeeds(Promise.resolve(work));
        // A create that was answered 503 may have been made all the same, so each attempt uses another name.
        let made = 0;
        const makes = () => isDone(other.store.createContainer(CALLER, 'db', `coll-${++made}`, DEFINITION, null));
        await expect.poll(makes).toBe(true);
        expect([cutOff.store.projects, other.store.projects]).toEqual([false, true]);
        proxy.mend();
        const knows = () => isDone(cutOff.store.settleNames('db', `coll-${made}`));
        await expect.poll(knows).toBe(true);
        expect(cutOff.store.container('db', `coll-${made}`)).toEqual(other.store.container('db', `coll-${made}`));
      } finally {
        proxy.mend();
        await cluster.dispose();
        await Promise.all([far.close(), near.close()]);
        await proxy.close();
        double.stop();
      }
    });

    it('refuse requests in time, with Retry-After, while it stands still, and go on when it does', () =>
      underLoad(async ({ proxy, load, check }) => {
        proxy.block();
        const blockedMs = performance.now();
        await expect.poll(() => load.failures.length, { timeout: 40_000 }).toBeGreaterThanOrEqual(6);
        const waited = load.failures.map(({ atMs, tookMs }) => atMs + tookMs - blockedMs);
        expect(Math.min(...waited)).toBeLessThan(20_000);
        proxy.mend();
        await check();
      }));

    it.skipIf(process.env['EPITAPH_TEST_POSTGRES'] !== undefined)(
      'go on by themselves after PostgreSQL was restarted, and lose nothing',
      () =>
        underLoad(async ({ load, check }) => {
          for (const mode of ['immediate', 'fast'] as const) {
            server.stop(mode);
            await pause(300);
            // At least one request has to wait too long. With the other mode all may succeed.
            if (mode === 'immediate') {
              await expect.poll(() => load.failures.length, { timeout: 40_000 }).toBeGreaterThan(0);
            }
            server.startAgain();
            await load.goesOn(20);
          }
          expect(load.failures.length).toBeGreaterThan(0);
          await check();
        }),
    );
  },
);
