import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { HoldRegister } from '@epitaph/core/retention/hold-register.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { turn } from '@epitaph/core/turn.ts';
import type { ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import type { ReadModelNews } from '@epitaph/projections/shared-projector.ts';
import { openDatabase, type PostgresDatabase, UnusableServer } from '@epitaph/storage/postgres/database.ts';
import { LOCK_SPACE, locks, NODE_NAME } from '@epitaph/storage/postgres/migrations.ts';
import { CheckpointMoved, type PostgresReadModelStore } from '@epitaph/storage/postgres/postgres-read-model-store.ts';
import { PostgresReadModels } from '@epitaph/storage/postgres/postgres-read-models.ts';
import { describeReadModel } from '../contracts/read-model-contract.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';
import { StatementProxy } from './statement-proxy.ts';

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

async function inDatabase(body: (database: PostgresDatabase, url: string) => Promise<void>): Promise<void> {
  const url = await server.newDatabase();
  const database = await openDatabase(url);
  try {
    await body(database, url);
  } finally {
    await database.close();
  }
}

function written(position: number, more: Partial<Extract<ReadModelChange, { kind: 'item-written' }>> = {}) {
  return {
    kind: 'item-written' as const,
    container: 2,
    partitionKey: '["a"]',
    id: `item ${position}`,
    life: 0,
    revision: 0,
    position,
    ts: 1_700_000_000,
    ttl: null,
    key: position,
    unreadableTtl: false,
    ...more,
  };
}

describe.skipIf(whyNoPostgres !== undefined)(`on a real PostgreSQL server${skipReason}`, () => {
  describeReadModel('the PostgreSQL read model', async () => {
    const url = await server.newDatabase();
    let database = await openDatabase(url);
    const readModels = await PostgresReadModels.open(database);
    const lead = await readModels.lead(() => {});
    return {
      store: readModels.current.store,
      another: async () => (await readModels.createNext()).store,
      reopen: async () => {
        await database.close();
        database = await openDatabase(url);
        return (await PostgresReadModels.open(database)).current.store;
      },
      dispose: async () => {
        await lead!.release();
        await database.close();
      },
    };
  });

  it('applies a write in two round trips to the server', async () => {
    const url = new URL(await server.newDatabase());
    const proxy = await StatementProxy.to(url.hostname, Number(url.port));
    const database = await openDatabase(proxy.url(url.href));
    try {
      const { store } = (await PostgresReadModels.open(database)).current;
      // The first write of a connection also checks whether the server is a standby.
      await store.apply([written(5)], 5, 0);
      const before = proxy.roundTrips;
      await store.apply([written(6)], 6, 5);
      await store.apply([written(7, { id: 'item 6', life: 0, revision: 1 })], 7, 6);
      expect(proxy.roundTrips - before).toBe(4);
      expect(await store.countItems(2)).toBe(2);
    } finally {
      await database.close();
      await proxy.close();
    }
  });

  it('applies nothing if it can’t notify the other nodes', () =>
    inDatabase(async (database, url) => {
      const { store } = (await PostgresReadModels.open(database)).current;
      await store.apply([written(5)], 5, 0);
      await server.run(
        `CREATE SCHEMA mute; CREATE FUNCTION mute.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
         ALTER DATABASE ${new URL(url).pathname.slice(1)} SET search_path = mute, pg_catalog`,
        url,
      );
      const later = await openDatabase(url);
      const other = (await PostgresReadModels.open(later)).current.store;
      await expect(other.apply([written(6)], 6, 5)).rejects.toThrow('no room');
      await later.close();
      expect([await store.countItems(2), await store.checkpoint()]).toEqual([1, 5]);
    }));

  describe('a read model that several nodes write by mistake', () => {
    it('takes each batch once: a node whose checkpoint is old is refused and must look again', () =>
      inDatabase(async (database) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        await one.current.store.apply([written(5)], 5, 0);
        await one.current.store.apply([written(6)], 6, 5);
        const late = other.current.store.apply([written(6), written(7)], 7, 5);
        await expect(late).rejects.toThrow(CheckpointMoved);
        expect(await one.current.store.countItems(2)).toBe(2);
        await other.current.store.apply([written(7)], 7, 6);
        expect(await one.current.store.countItems(2)).toBe(3);
      }));

    it('refuses a batch for an old checkpoint even if another reader on that node has read the new one meanwhile', () =>
      inDatabase(async (database) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        const [first, again] = [written(5), written(6, { id: 'item 5', revision: 1 })];
        await one.current.store.apply([first], 5, 0);
        expect(await other.current.store.checkpoint()).toBe(5);
        await one.current.store.apply([again], 6, 5);
        await one.current.store.apply([written(7, { id: 'item 5', revision: 2 })], 7, 6);
        // As the purge or fsck would do.
        expect(await other.current.store.checkpoint()).toBe(7);
        await expect(other.current.store.apply([again], 6, 5)).rejects.toThrow(CheckpointMoved);
        expect(await one.current.store.checkpoint()).toBe(7);
        expect((await one.current.store.findItem(2, '["a"]', 'item 5'))?.position).toBe(7);
      }));

    it('accepts the next batch although another reader asks for the checkpoint meanwhile', () =>
      inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        await store.apply([written(5)], 5, 0);
        const query = database.query.bind(database);
        const { promise: applied, resolve } = Promise.withResolvers<void>();
        vi.spyOn(database, 'query').mockImplementationOnce(async (...args) => {
          const rows = await query(...args);
          await applied;
          return rows;
        });
        const asked = store.checkpoint();
        await store.apply([written(6)], 6, 5);
        resolve();
        expect(await asked).toBe(5);
        await store.apply([written(7)], 7, 6);
        expect(await store.countItems(2)).toBe(3);
      }));
  });

  describe('look-ups by name', () => {
    const names = Array.from({ length: 300 }, (_, index) => `item ${index + 1}`);

    it('are combined: many that are asked for at once take a few statements', () =>
      inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        const there = [1, 2, 299, 300];
        await store.apply(
          there.map((position) => written(position, { id: names[position - 1]! })),
          300,
          0,
        );
        const query = vi.spyOn(database, 'query');
        const found = await Promise.all(names.map((id) => store.findItem(2, '["a"]', id)));
        expect(found.flatMap((row) => row?.position ?? [])).toEqual(there);
        expect(query).toHaveBeenCalledTimes(2);
        expect(await Promise.all(names.map((id) => store.lastLife(2, '["a"]', id)))).toEqual(
          names.map((_, index) => (there.includes(index + 1) ? 0 : undefined)),
        );
        expect(query).toHaveBeenCalledTimes(4);
      }));

    it('find what is whole, although what others ask for at the same time is damaged', () =>
      inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        await store.apply([written(1), written(2), written(3)], 3, 0);
        // Stands in for a page of the table that the server can't read: dividing by zero fails for birth 2.
        await database.query('ALTER TABLE epitaph_items_v1.items RENAME TO whole');
        await database.query(`CREATE VIEW epitaph_items_v1.items AS SELECT birth, container, partition_key, id, life, position,
          ts / (2 - birth) * (2 - birth) AS ts, ttl, key, name_digest FROM epitaph_items_v1.whole`);
        const found = await Promise.allSettled(
          ['item 1', 'item 2', 'item 3'].map((id) => store.findItem(2, '["a"]', id)),
        );
        expect(found).toMatchObject([
          { value: { position: 1 } },
          { reason: { message: expect.stringMatching('division by zero') } },
          { value: { position: 3 } },
        ]);
      }));

    it('all fail at the first failure when the server is away, without further statements', () =>
      inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        const away = new StorageUnavailable('it is away');
        const query = vi.spyOn(database, 'query').mockRejectedValue(away);
        const found = await Promise.allSettled(names.slice(0, 3).map((id) => store.findItem(2, '["a"]', id)));
        expect(found.map((one) => one.status === 'rejected' && one.reason)).toEqual([away, away, away]);
        expect(query).toHaveBeenCalledTimes(1);
      }));
  });

  it('run ANALYZE once the tables have grown, and not again when that is unnecessary', () =>
    inDatabase(async (database) => {
      const size = async () => {
        const named = "SELECT reltuples AS rows FROM pg_class WHERE oid = 'epitaph_items_v1.items'::regclass";
        return (await database.query<{ rows: number }>(named))[0]!.rows;
      };
      const apply = async (from: number) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        const query = vi.spyOn(database, 'query');
        const changes = Array.from({ length: 500 }, (_, index) => written(from + index));
        await store.apply(changes, from + 499);
        await query.mock.results[0]!.value;
        await turn();
        const asked = query.mock.calls.map(([text]) => text.split(' ', 1)[0]);
        await Promise.all(query.mock.results.map(({ value }) => value as Promise<unknown>));
        query.mockRestore();
        return asked;
      };
      expect(await apply(1)).toEqual(['SELECT', 'ANALYZE']);
      expect(await size()).toBe(500);
      expect(await apply(501)).toEqual(['SELECT']);
    }));

  describe('a search for some rows of a container', () => {
    const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
    /** In a log whose positions count bytes, births are this far apart. */
    const births = Array.from({ length: 20 }, (_, index) => (index + 1) * 50_000_000);
    const LAST = { afterBirth: 0, limit: 10, marks, where: { ids: [`item ${births.at(-1)}`] } };

    async function withItems(body: (database: PostgresDatabase, store: PostgresReadModelStore) => Promise<void>) {
      await inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        const changes = births.map((birth) => written(birth));
        await store.apply(changes, births.at(-1)!, 0);
        await body(database, store);
      });
    }

    it.each([
      { scope: {}, statements: 2 },
      { scope: { prefix: '["a"]' }, statements: 2 },
      { scope: { partitionKey: '["a"]' }, statements: 1 },
    ])('takes no more statements if the items lie far apart in the log: $scope', ({ scope, statements }) =>
      withItems(async (database, store) => {
        const query = vi.spyOn(database, 'query');
        const found = await store.scanItems(2, { ...LAST, ...scope });
        expect(found).toHaveLength('prefix' in scope ? 0 : 1);
        expect(query).toHaveBeenCalledTimes(statements);
      }),
    );

    it('passes over many items in pieces, each once', () =>
      withItems(async (database, store) => {
        await database.query('ANALYZE epitaph_items_v1.items', []);
        const query = database.query.bind(database);
        // Pieces of 3 instead of a million rows, which would take long to create.
        const fewer = (values: readonly unknown[]) => values.map((value) => (value === 1_000_000 ? 3 : value));
        const asked = vi.spyOn(database, 'query');
        asked.mockImplementation((text, values) => query(text, fewer(values ?? [])));
        expect((await store.scanItems(2, LAST)).map(({ birth }) => birth)).toEqual(births.slice(-1));
        // Each piece has four rows: three, and the one after them. The last piece is empty.
        expect(asked).toHaveBeenCalledTimes(12);
        const all = { ...LAST, where: { minTs: 1 } };
        expect((await store.scanItems(2, { ...all, limit: 100 })).map(({ birth }) => birth)).toEqual(births);
        expect((await store.scanItems(2, { ...all, limit: 7 })).map(({ birth }) => birth)).toEqual(births.slice(0, 7));
      }));
  });

  it('notify other nodes that a database was deleted with its containers, and name no other containers', () =>
    inDatabase(async (database) => {
      const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
      const news: ReadModelNews[] = [];
      const ear = await other.listen((heard) => news.push(heard));
      const state = {
        rid: 'Db',
        name: 'db',
        createdAtMs: 1,
        changedAtMs: 1,
        etag: '"e"',
        throughput: { kind: 'none' },
      };
      const change = (more: object) =>
        ({ kind: 'database', number: 5, state: { ...state, ...more } }) as unknown as ReadModelChange;
      await one.current.store.apply([change({ status: 'live' })], 5);
      await one.current.store.apply([change({ status: 'deleted' })], 6);
      await expect
        .poll(() => news)
        .toEqual([
          { containers: [], databases: [], erased: [] },
          { containers: [], databases: ['Db'], erased: [] },
        ]);
      await ear.close();
    }));

  it('read many containers and users in as few statements as one', () =>
    inDatabase(async (database) => {
      const { store } = (await PostgresReadModels.open(database)).current;
      const change = (number: number): ReadModelChange[] => {
        const holds = HoldRegister.of([{ holdId: 'h', position: number, releasePosition: number }]);
        const state = { rid: `rid ${number}`, timeline: [{ version: 1 }], retention: { holds } };
        const user = { rid: `user ${number}`, status: 'live', name: `${number}` };
        return [
          { kind: 'container', number, state },
          { kind: 'user', number: number + 1_000, state: user },
        ] as unknown as ReadModelChange[];
      };
      let statements = 0;
      const transaction = database.transaction.bind(database);
      vi.spyOn(database, 'transaction').mockImplementation((work) =>
        transaction((sql) =>
          work({
            query: (text, values) => {
              statements += 1;
              return sql.query(text, values);
            },
          }),
        ),
      );
      await store.apply(change(1), 1);
      const ofOne = statements;
      const many = Array.from({ length: 200 }, (_, index) => change(index + 2)).flat();
      await store.apply(many, 2);
      expect(statements - ofOne).toBe(ofOne);
      expect((await store.containers()).map(({ state }) => state)).toEqual(
        [change(1), many].flat().flatMap((each) => (each.kind === 'container' ? [each.state] : [])),
      );
      expect((await store.catalogEntries()).length).toBe(201);
    }));

  it(
    'leave no more prepared statements on the server after many rebuilds than after a few, on every node',
    () =>
      inDatabase(async (database, url) => {
        const one = await PostgresReadModels.open(database);
        const lead = await one.lead(() => {});
        const another = await openDatabase(url);
        const other = await PostgresReadModels.open(another);
        /** The number of prepared statements of the session that has most. */
        const prepared = async (of: PostgresDatabase): Promise<number> => {
          const sql = 'SELECT count(*) AS count, pg_sleep(0.05) FROM pg_prepared_statements';
          const counts = await Promise.all(Array.from({ length: 10 }, () => of.query<{ count: number }>(sql)));
          return Math.max(...counts.map(([row]) => row!.count));
        };
        const read = async (store: PostgresReadModelStore): Promise<void> => {
          const looks = [() => store.allItems(2, 0, 1), () => store.countItems(2), () => store.containersWithContent()];
          await Promise.all(looks.flatMap((look) => [look(), look(), look()]));
        };
        const rebuild = async (): Promise<void> => {
          const { version, store } = await one.createNext();
          await store.apply([written(5)], 5);
          await read(store);
          await one.swapTo(version);
          await other.look();
          expect(other.current.version).toBe(version);
          await Promise.all([read(one.current.store), read(other.current.store)]);
          // A discarded version leaves none either.
          const given = await one.createNext();
          await given.store.apply([written(5)], 5);
          await one.discard(given.version);
        };
        try {
          const counts: number[][] = [];
          for (let round = 0; round < 20; round++) {
            await rebuild();
            counts.push([await prepared(database), await prepared(another)]);
          }
          const most = (some: readonly number[][]) => [0, 1].map((node) => Math.max(...some.map((row) => row[node]!)));
          const [few, many] = [most(counts.slice(0, 5)), most(counts.slice(5))];
          expect(many[0]).toBeLessThanOrEqual(few[0]! + 5);
          expect(many[1]).toBeLessThanOrEqual(few[1]! + 5);
        } finally {
          await lead?.release();
          await another.close();
        }
      }),
    60_000,
  );

  describe('the sealed bodies', () => {
    it('are those of the last write, gone with the item, and absent if the log left them out', () =>
      inDatabase(async (database) => {
        const { store } = (await PostgresReadModels.open(database)).current;
        const sealed = (text: string) => ({
          sealed: { stream: 'item-rid.a.0', eventId: crypto.randomUUID(), body: Buffer.from(text) },
        });
        const first = written(5, sealed('first'));
        await store.apply([first, written(6), written(7, sealed('third'))], 7);
        const body = sealed('second');
        const second = written(8, { ...body, id: first.id, revision: 1 });
        await store.apply([second], 8);
        const found = await store.sealedBodies(2, [5, 6, 7, 99]);
        expect(found.toSorted((left, right) => left.position - right.position)).toEqual([
          expect.objectContaining({ position: 7, revision: 0, body: Buffer.from('third') }),
          {
            position: 8,
            stream: 'item-rid.a.0',
            revision: 1,
            eventId: body.sealed.eventId,
            body: Buffer.from('second'),
          },
        ]);
        // Each is asked for by itself, many at the same time.
        const query = vi.spyOn(database, 'query');
        const births = Array.from({ length: 40 }, (_, index) => index + 1);
        const each = await Promise.all(births.map((birth) => store.sealedBodies(2, [birth])));
        expect(each.map((bodies) => bodies.map((one) => String(one.body)))).toEqual(
          births.map((birth) => (birth === 5 ? ['second'] : birth === 7 ? ['third'] : [])),
        );
        expect(query).toHaveBeenCalledTimes(3);
        expect(await store.sealedBodies(2, [5])).toEqual([found.find(({ position }) => position === 8)]);
      }));
  });

  it('are compared in a time proportional to the rows, however far apart these are in a log whose positions are bytes', () =>
    inDatabase(async (database) => {
      const readModels = await PostgresReadModels.open(database);
      const lead = await readModels.lead(() => {});
      const [one, other] = [readModels.current.store, (await readModels.createNext()).store];
      const [near, far] = [written(5), written(10 ** 13)];
      // More rows than one piece has, and one version lacks a row in an earlier container.
      const many = Array.from({ length: 12_000 }, (_, index) => written(10 ** 12 + index * 1_000, { container: 3 }));
      await one.apply([near, ...many, far], far.position);
      await other.apply([...many, far], far.position);
      const digests = await Promise.all(
        [one, other].map(async (store) => {
          const snapshot = await store.snapshot();
          const found = await snapshot.digests();
          await snapshot.close();
          return found;
        }),
      );
      expect(digests.map((of) => [of.get(2)?.items, of.get(3)?.items])).toEqual([
        [2, 12_000],
        [1, 12_000],
      ]);
      expect(digests[0]!.get(3)).toEqual(digests[1]!.get(3));
      expect(digests[0]!.get(2)).not.toEqual(digests[1]!.get(2));
      await lead!.release();
    }));

  it('a delete by partition key moves its items in statements of a few thousand rows, because the server cancels long ones', () =>
    inDatabase(async (database) => {
      // given
      const readModels = await PostgresReadModels.open(database);
      const lead = await readModels.lead(() => {});
      const { store } = readModels.current;
      const many = Array.from({ length: 11_000 }, (_, index) => written(index + 5));
      const expired = written(20_000, { ttl: 1 });
      const other = written(20_001, { partitionKey: '["b"]' });
      await store.apply([...many, expired, other], 20_001);
      await database.query(`
        CREATE TABLE sizes (rows bigint NOT NULL);
        CREATE FUNCTION note_size() RETURNS trigger LANGUAGE plpgsql AS
          'BEGIN INSERT INTO public.sizes SELECT count(*) FROM taken; RETURN NULL; END';
        CREATE TRIGGER note_size AFTER INSERT ON epitaph_items_v1.ended REFERENCING NEW TABLE AS taken
          FOR EACH STATEMENT EXECUTE FUNCTION note_size()`);
      // when
      const atMs = (1_700_000_000 + 10) * 1000;
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: atMs };
      const deleted = {
        kind: 'partition-key-deleted',
        container: 2,
        partitionKey: '["a"]',
        atMs,
        actor: 'a',
        marks,
      } as const;
      await store.apply([deleted], 20_002);
      // then
      const left = await store.allItems(2, 0, 10);
      expect(left.map(({ birth }) => birth)).toEqual([20_000, 20_001]);
      expect(await store.countEnded(2, false, atMs)).toBe(many.length);
      const sizes = await database.query<{ rows: number }>('SELECT rows FROM sizes WHERE rows > 0');
      expect(Math.max(...sizes.map(({ rows }) => rows))).toBeLessThanOrEqual(5_000);
      expect(sizes.reduce((sum, { rows }) => sum + rows, 0)).toBe(many.length);
      await lead!.release();
    }));

  it('returns a few large bodies at a time, the first ones, and at least one', () =>
    inDatabase(async (database) => {
      const { store } = (await PostgresReadModels.open(database)).current;
      const body = Buffer.alloc(1024 * 1024, 7);
      const sealed = { stream: 'item-rid.a.0', eventId: crypto.randomUUID(), body };
      const births = Array.from({ length: 10 }, (_, index) => index + 5);
      await store.apply(
        [
          ...births.map((birth) => written(birth, { sealed })),
          written(20, { sealed: { ...sealed, body: Buffer.alloc(5 * 1024 * 1024) } }),
        ],
        20,
      );
      const found = async (wanted: readonly number[]) =>
        (await store.sealedBodies(2, wanted)).map(({ position }) => position).toSorted((left, right) => left - right);
      expect(await found(births)).toEqual([5, 6, 7, 8]);
      expect(await found(births.slice(8))).toEqual([13, 14]);
      expect(await found([20])).toEqual([20]);
    }));

  it('return names unchanged that PostgreSQL can’t store as text', () =>
    inDatabase(async (database) => {
      const { store } = (await PostgresReadModels.open(database)).current;
      const ids = [
        'nul \u0000',
        '\ud800 half',
        'half \udc00',
        '\\u0000',
        'quote " \\',
        'tab \t',
        'Grabstätte 🪦',
        'x'.repeat(1_023),
      ];
      const partitionKey = JSON.stringify(['\u0000 \ud800 "', 'long '.repeat(400)]);
      await store.apply(
        ids.map((id, index) => written(index + 5, { id, partitionKey })),
        99,
      );
      for (const [index, id] of ids.entries()) {
        expect(await store.findItem(2, partitionKey, id)).toMatchObject({ id, partitionKey, birth: index + 5 });
      }
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
      const rows = await store.scanItems(2, { partitionKey, afterBirth: 0, limit: 100, marks });
      expect(rows.map((row) => row.id)).toEqual(ids);
    }));

  describe('the versions of the read models', () => {
    it('are swapped for every node at once, and the old one can be read until the next is built', () =>
      inDatabase(async (database) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        await one.current.store.apply([written(5)], 5);
        const lead = await one.lead(() => {});
        const next = await one.createNext();
        await next.store.apply([written(5), written(6)], 6);
        await one.swapTo(next.version);
        expect(await one.current.store.countItems(2)).toBe(2);
        expect(await other.current.store.countItems(2)).toBe(1);
        expect(await other.look()).toEqual({ version: next.version, position: 6, catalogChanges: 0 });
        expect(await other.current.store.countItems(2)).toBe(2);
        const third = await one.createNext();
        await one.discard(third.version);
        await lead!.release();
        expect((await PostgresReadModels.open(database)).current.version).toBe(next.version);
      }));

    it('that another node has removed are unavailable, which is not reported as damage', () =>
      inDatabase(async (database) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        const lead = await one.lead(() => {});
        await one.swapTo((await one.createNext()).version);
        await one.createNext();
        await expect(other.current.store.countItems(2)).rejects.toThrow(StorageUnavailable);
        await expect(other.current.store.apply([written(5)], 5)).rejects.toThrow(StorageUnavailable);
        await other.look();
        expect(await other.current.store.countItems(2)).toBe(0);
        await lead!.release();
      }));

    it('that a rebuild left unfinished are continued by whichever node rebuilds next', () =>
      inDatabase(async (database, url) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        expect(await other.openUnfinished()).toBe(undefined);
        const first = await one.lead(() => {});
        const { version, store } = await one.createNext();
        await store.apply([written(5)], 5);
        const found = await other.openUnfinished();
        expect([found?.version, await found?.store.checkpoint()]).toEqual([version, 5]);
        await first!.release();
        const later = await PostgresReadModels.open(database);
        const second = await later.lead(() => {});
        expect(later.unfinished).toEqual({ version, position: 5 });
        await later.discard(version);
        expect([later.unfinished, await other.openUnfinished()]).toEqual([undefined, undefined]);
        await second!.release();
        const third = await one.lead(() => {});
        // The version before a swap is not an unfinished one, and neither is one that a program with another schema began.
        await one.swapTo((await one.createNext()).version);
        expect(await other.openUnfinished()).toBe(undefined);
        const foreign = await one.createNext();
        await server.run(`COMMENT ON SCHEMA epitaph_items_v${foreign.version} IS 'another'`, url);
        expect(await other.openUnfinished()).toBe(undefined);
        await third!.release();
      }));

    it('are created, swapped and discarded only by the node with the right to write', () =>
      inDatabase(async (database) => {
        const [one, other] = [await PostgresReadModels.open(database), await PostgresReadModels.open(database)];
        const lost = await one.lead(() => {});
        const { version } = await one.createNext();
        await lost!.release();
        await expect(one.swapTo(version)).rejects.toThrow(StorageUnavailable);
        await expect(one.createNext()).rejects.toThrow(StorageUnavailable);
        const lead = await other.lead(() => {});
        await expect(one.swapTo(version)).rejects.toThrow('another node keeps the read models up');
        const taken = await other.openUnfinished();
        await taken!.store.apply([written(5)], 5);
        await other.swapTo(version);
        // This node has not looked since, and still takes the version for an unfinished one.
        await one.discard(version);
        expect(await one.look()).toMatchObject({ version, position: 5 });
        await lead!.release();
      }));

    it('are in use from their swap on, even if its answer was lost, and are not discarded then', () =>
      inDatabase(async (database) => {
        const readModels = await PostgresReadModels.open(database);
        const lead = await readModels.lead(() => {});
        const next = await readModels.createNext();
        await next.store.apply([written(5)], 5);
        const transaction = database.transaction.bind(database);
        const lost = new StorageUnavailable('PostgreSQL: Connection terminated unexpectedly');
        const asked = vi.spyOn(database, 'transaction').mockImplementationOnce(async (work) => {
          await transaction(work);
          throw lost;
        });
        await readModels.swapTo(next.version);
        expect(readModels.current.version).toBe(next.version);
        // Not even if the answer is lost and the server can't be asked whether the swap was done.
        const last = await readModels.createNext();
        asked.mockImplementationOnce(async (work) => {
          await transaction(work);
          throw lost;
        });
        asked.mockRejectedValueOnce(lost);
        await expect(readModels.swapTo(last.version)).rejects.toThrow(lost);
        await readModels.discard(last.version);
        expect(await readModels.look()).toMatchObject({ version: last.version, position: 0 });
        await lead!.release();
      }));

    it('made by a newer Epitaph are refused, made by an older one are projected again', () =>
      inDatabase(async (database, url) => {
        const before = await PostgresReadModels.open(database);
        await before.current.store.apply([written(5)], 5);
        const setSchema = (version: number) =>
          server.run(`UPDATE epitaph_read_models.in_use SET schema_version = ${version}`, url);
        await setSchema(99);
        const refused = PostgresReadModels.open(database);
        await expect(refused).rejects.toThrow(UnusableServer);
        await expect(refused).rejects.toThrow(/schema 99, made by a later Epitaph/);
        await setSchema(0);
        const again = await PostgresReadModels.open(database);
        expect(await again.current.store.checkpoint()).toBe(0);
        expect(again.current.version).toBeGreaterThan(before.current.version);
      }));

    it('are made again if they are missing, as after a dump without them', () =>
      inDatabase(async (database, url) => {
        const before = await PostgresReadModels.open(database);
        await before.current.store.apply([written(5)], 5);
        await server.run(`DROP SCHEMA epitaph_items_v${before.current.version} CASCADE`, url);
        const again = await PostgresReadModels.open(database);
        expect(await again.current.store.checkpoint()).toBe(0);
        expect(again.current.version).toBeGreaterThan(before.current.version);
      }));

    it.each([
      { what: 'a table', damage: 'DROP TABLE epitaph_items_v1.ended', says: 'table ended is not there' },
      {
        what: 'how far they have come',
        damage: 'DELETE FROM epitaph_items_v1.checkpoint',
        says: 'checkpoint is empty',
      },
    ])('that have lost $what are refused, with the advice that they may be dropped', ({ damage, says }) =>
      inDatabase(async (database, url) => {
        await PostgresReadModels.open(database);
        await server.run(damage, url);
        const refused = PostgresReadModels.open(database);
        await expect(refused).rejects.toThrow(UnusableServer);
        await expect(refused).rejects.toThrow(says);
        await server.run('DROP SCHEMA epitaph_items_v1 CASCADE', url);
        expect((await PostgresReadModels.open(database)).current.version).toBe(2);
      }),
    );

    it.each([
      { what: 'which of them is in use is lost', damage: 'DELETE FROM epitaph_read_models.in_use' },
      { what: 'what says which of them is in use is lost', damage: 'DROP TABLE epitaph_read_models.in_use' },
      { what: 'all that says of them is lost', damage: 'DROP SCHEMA epitaph_read_models CASCADE' },
    ])('are made again if $what, and nothing is left of the former ones', ({ damage }) =>
      inDatabase(async (database, url) => {
        const before = await PostgresReadModels.open(database);
        await before.current.store.apply([written(5)], 5, 0);
        await server.run(damage, url);
        const { current } = await PostgresReadModels.open(database);
        expect(await current.store.checkpoint()).toBe(0);
        const left = "SELECT nspname AS name FROM pg_namespace WHERE nspname ~ '^epitaph_items_v'";
        expect(await server.run(left, url)).toEqual([{ name: `epitaph_items_v${current.version}` }]);
      }),
    );

    it('continue if the numbers for new versions are lost, and new versions get unused numbers', () =>
      inDatabase(async (database, url) => {
        const before = await PostgresReadModels.open(database);
        await before.current.store.apply([written(5)], 5, 0);
        await server.run('DROP SEQUENCE epitaph_read_models.versions', url);
        const again = await PostgresReadModels.open(database);
        expect(again.current.version).toBe(1);
        expect(await again.current.store.checkpoint()).toBe(5);
        const lead = await again.lead(() => {});
        expect((await again.createNext()).version).toBe(2);
        await lead!.release();
      }));

    it.each([
      'DELETE FROM epitaph_read_models.in_use',
      'DROP TABLE epitaph_read_models.in_use',
      'DROP SCHEMA epitaph_read_models CASCADE',
    ])(
      'are reported by running nodes if it is lost which are in use, and these nodes go on with the new ones: %s',
      (damage) =>
        inDatabase(async (database, url) => {
          const node = await PostgresReadModels.open(database);
          await server.run(damage, url);
          for (const ask of [() => node.look(), () => node.openUnfinished()]) {
            await expect(ask()).rejects.toThrow(UnusableServer);
            await expect(ask()).rejects.toThrow(/in_use is empty.*Restart a node/);
          }
          const { current } = await PostgresReadModels.open(database);
          expect(current.version).toBe(2);
          expect(await node.look()).toMatchObject({ version: 2 });
        }),
    );

    it.each([
      { what: 'made by an older Epitaph', change: 'UPDATE epitaph_read_models.in_use SET schema_version = 0' },
      { what: 'of which it is lost which are in use', change: 'DELETE FROM epitaph_read_models.in_use' },
    ])('$what are left alone while nodes of an older Epitaph use them', ({ change }) =>
      inDatabase(async (database, url) => {
        const before = await PostgresReadModels.open(database);
        await before.current.store.apply([written(5)], 5);
        await server.run(change, url);
        const nodeOf = async (version: string) => {
          const { connection } = await database.dedicated(async (sql) => {
            await sql.query(`SET application_name = '${version}'`);
            await sql.query('SELECT pg_advisory_lock_shared($1, $2)', [LOCK_SPACE, locks.nodes]);
          });
          return connection;
        };
        const [older, same] = [await nodeOf('epitaph'), await nodeOf(NODE_NAME)];
        const refused = PostgresReadModels.open(database);
        await expect(refused).rejects.toThrow(UnusableServer);
        await expect(refused).rejects.toThrow(/Nodes of an older version \(1\) use this.*Stop all of them first/);
        expect(await before.current.store.checkpoint()).toBe(5);
        await older.close();
        const again = await PostgresReadModels.open(database);
        expect(await again.current.store.checkpoint()).toBe(0);
        await same.close();
      }),
    );
  });

  describe('the plans of the statements that run on every tick, scan and preview', () => {
    const where = 'FROM items WHERE container = 2';
    const plans = {
      'overdue items by default': [`SELECT count(*) ${where} AND due IS NULL AND ts <= 5`, 'items_by_ts'],
      'overdue items by their own ttl': [`SELECT count(*) ${where} AND due <= 5`, 'items_by_due'],
      'the oldest of them': [`SELECT birth ${where} AND due IS NULL AND ts <= 5 ORDER BY ts LIMIT 9`, 'items_by_ts'],
      'the next deadline': [`SELECT min(due) ${where} AND due > 5`, 'items_by_due'],
      'the visible in order of birth': [
        `SELECT birth ${where} AND birth > 5 AND ((due IS NULL AND ts > 3) OR due > 4) ORDER BY birth LIMIT 9`,
        'items_pkey',
      ],
      'those of a partition': [
        `SELECT birth ${where} AND partition_digest = '\\x00' AND birth > 5 ORDER BY birth LIMIT 9`,
        'items_by_partition',
      ],
      'an item by its name': [`SELECT birth ${where} AND name_digest = '\\x00'`, 'items_by_name'],
    } as const;
    it('use a range of an index, without a sort', () =>
      inDatabase(async (database, url) => {
        const { version, store } = (await PostgresReadModels.open(database)).current;
        const changes = Array.from({ length: 3_000 }, (_, index) =>
          written(index + 5, { ttl: index % 2 === 0 ? null : 9, container: (index % 3) + 1 }),
        );
        await store.apply(changes, 9_000);
        const schema = `epitaph_items_v${version}`;
        await server.run(`ANALYZE ${schema}.items`, url);
        for (const [what, [sql, index]] of Object.entries(plans)) {
          const rows = await server.run(`EXPLAIN ${sql.replace('FROM items', `FROM ${schema}.items`)}`, url);
          const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
          expect(plan, what).toMatch(new RegExp(`Index (Only )?Scan using ${index}`));
          expect(plan, what).not.toMatch(/Seq Scan|Sort/);
        }
      }));
  });
});
