import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { CALLER, CLEAR_PATHS, compare, definition, play, question, steps } from '../clear-paths/histories.ts';
import { Cluster, type Node } from './nodes.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

describe.skipIf(whyNoPostgres !== undefined)(
  `clear paths on two nodes of a real PostgreSQL server${skipReason}`,
  () => {
    let server: TestServer;
    let cluster: Cluster;
    let nodes: Node[];
    beforeAll(async () => {
      server = await TestServer.start();
      cluster = new Cluster(await server.newDatabase(), new MemoryEventLog());
      nodes = [
        await cluster.start({ policyDelayMs: 0, automaticPurge: false }),
        await cluster.start({ policyDelayMs: 0, automaticPurge: false, roles: [] }),
      ];
      await nodes[0]!.store.createDatabase(CALLER, 'db');
    }, 60_000);
    afterAll(async () => {
      await cluster?.dispose();
      await server?.dispose();
    });

    async function clearTable(): Promise<string> {
      const [used] = await server.run('SELECT version FROM epitaph_read_models.in_use', cluster.url);
      return `epitaph_items_v${Number(used!['version'])}.item_clear`;
    }

    async function clearRows(): Promise<number> {
      const [found] = await server.run(`SELECT count(*) AS count FROM ${await clearTable()}`, cluster.url);
      return Number(found!['count']);
    }

    it('give the same rows as pushdown and plain evaluation, whichever node has written and whichever is asked', async () => {
      let containers = 0;
      let pushed = 0;
      let cleared = 0;
      await fc.assert(
        fc.asyncProperty(steps, fc.array(question, { minLength: 5, maxLength: 20 }), async (history, questions) => {
          containers += 1;
          const [writing, asked] = [nodes[containers % 2]!.store, nodes[(containers + 1) % 2]!.store];
          await writing.settleNames('db', undefined);
          const names = [`clear ${containers}`, `plain ${containers}`] as const;
          await writing.createContainer(CALLER, 'db', names[0], definition(CLEAR_PATHS), -1);
          await writing.createContainer(CALLER, 'db', names[1], definition(), -1);
          for (const step of history) {
            const [clear, plain] = [writing.container('db', names[0]), writing.container('db', names[1])];
            expect(await play(writing, clear, step)).toBe(await play(writing, plain, step));
          }
          await asked.settleNames('db', names[1]);
          // Waits for the other node's writes, as a session token would.
          await asked.listItems(asked.container('db', names[1]), { maxItemCount: 1, atLeast: writing.headPosition() });
          for (const one of questions) {
            const looked = await compare(asked, asked.container('db', names[0]), asked.container('db', names[1]), one);
            pushed += looked.pushed;
            cleared += looked.cleared;
          }
        }),
        { numRuns: 8 },
      );
      expect(cleared).toBeLessThan(pushed * 0.95);
      expect((await nodes[0]!.store.fsck()).problems).toEqual([]);
    }, 60_000);

    it('survive a rebuild, and are removed with their items', async () => {
      const { store } = nodes[0]!;
      const { resource: container } = await store.createContainer(CALLER, 'db', 'one', definition(CLEAR_PATHS), -1);
      const before = await clearRows();
      for (const id of ['a', 'b', 'c'] as const) {
        await play(store, container, {
          kind: 'upsert',
          item: { id, pk: 'p', fields: { status: 'open', n: 1 }, ttl: undefined },
        });
      }
      expect(await clearRows()).toBe(before + 6);
      store.startRebuild('items');
      while (store.rebuildStatus('items')?.state !== 'done') {
        expect(store.rebuildStatus('items')?.state).not.toBe('failed');
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      expect(store.rebuildStatus('items')).toMatchObject({ differences: 0 });
      expect(await clearRows()).toBe(before + 6);
      await play(store, container, { kind: 'delete', id: 'a', pk: 'p' });
      await play(store, container, { kind: 'erase', id: 'b', pk: 'p' });
      expect(await clearRows()).toBe(before + 2);
      await play(store, container, { kind: 'delete-key', pk: 'p' });
      expect(await clearRows()).toBe(before);
    }, 30_000);

    it('are found by fsck if they differ from the documents', async () => {
      const { store } = nodes[0]!;
      const { resource: container } = await store.createContainer(CALLER, 'db', 'damaged', definition(CLEAR_PATHS), -1);
      const item = { id: 'a' as const, pk: 'p' as const, fields: { status: 'open', n: 1 }, ttl: undefined };
      await play(store, container, { kind: 'upsert', item });
      expect((await store.fsck()).problems).toEqual([]);
      const table = await clearTable();
      const [one] = await server.run(`SELECT max(birth) AS birth FROM ${table}`, cluster.url);
      const birth = Number(one!['birth']);
      await server.run(`DELETE FROM ${table} WHERE birth = ${birth} AND path = 0`, cluster.url);
      await server.run(
        `INSERT INTO ${table} SELECT container, birth - 1, path, value FROM ${table} WHERE birth = ${birth}`,
        cluster.url,
      );
      const { problems } = await store.fsck();
      expect(problems.map(({ code, subject }) => [code, subject])).toEqual([
        ['clear-copies-left', container.rid],
        ['clear-copies-differ', container.rid],
      ]);
      await server.run(`DELETE FROM ${table} WHERE birth >= ${birth - 1}`, cluster.url);
    }, 30_000);
  },
);
