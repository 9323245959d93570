import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { AUDITOR_KEY, createOrders, item, openWorld, ORDERS, START_MS, WRITER, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

describe('explain', () => {
  test('tells why an item left: the rule, the arithmetic, the policy and who set it', async () => {
    await world.write('a');
    await world.store.advanceClock(60_000);
    expect(await world.get(`${ORDERS}/explain${item('a')}`)).toEqual({
      state: 'expired',
      sentence: expect.stringContaining('"a" expired at 2026-11-21T10:01:00.000Z'),
      id: 'a',
      partitionKey: ['ann'],
      container: {
        rid: world.store.container('shop', 'orders').rid,
        name: 'orders',
        createdAt: '2026-11-21T10:00:00.000Z',
        createdAtMs: START_MS,
      },
      at: '2026-11-21T10:01:00.000Z',
      atMs: START_MS + 60_000,
      life: 0,
      lastWrite: { at: '2026-11-21T10:00:00.000Z', atMs: START_MS, ts: START_MS / 1000, ttl: null },
      expiredAt: '2026-11-21T10:01:00.000Z',
      expiredAtMs: START_MS + 60_000,
      rule: 'container-default',
      arithmetic: expect.stringContaining('+ ttl 60 s'),
      policy: {
        version: 1,
        defaultTtl: 60,
        since: '2026-11-21T10:00:00.000Z',
        sinceMs: START_MS,
        setBy: 'key:primary',
      },
      holds: [],
    });
    await world.store.advanceClock(1_500);
    await world.ask('POST', '/purge/run');
    expect(await world.get(`${ORDERS}/explain${item('a')}`)).toMatchObject({
      state: 'purged',
      expiredAt: '2026-11-21T10:01:00.000Z',
      recordedAt: '2026-11-21T10:01:01.500Z',
      purgedAt: '2026-11-21T10:01:01.500Z',
      lag: 'PT1.5S',
      lagMs: 1500,
    });
  });

  test('at a past instant foretells what was known then, also from a policy that was scheduled and later withdrawn', async () => {
    await world.write('a');
    const schedule = async (defaultTtl: number, seconds: number) => {
      const effectiveFromMs = world.store.nowMs() + seconds * 1000;
      await world.store.changeTtl(WRITER, 'shop', 'orders', {
        defaultTtl,
        effectiveFromMs,
        confirmed: true,
        reason: 'r',
      });
    };
    const expiresAt = async (seconds: number) => {
      const at = START_MS + seconds * 1000;
      const explained = await world.get(`${ORDERS}/explain${item('a')}&at=${at}`);
      return (Number(explained['expiresAtMs']) - START_MS) / 1000;
    };
    await world.store.advanceClock(10_000);
    await schedule(5, 20);
    await world.store.advanceClock(5_000);
    await world.store.withdrawTtl(WRITER, 'shop', 'orders');
    await world.store.advanceClock(1_000);
    await schedule(6, 20);
    await world.store.advanceClock(1_000);
    await world.store.withdrawTtl(WRITER, 'shop', 'orders');
    await world.store.advanceClock(1_000);
    expect(await Promise.all([9, 10, 14.999, 15, 15.999, 16, 16.999, 17, 18].map(expiresAt))).toEqual([
      60, 30, 30, 60, 60, 36, 36, 60, 60,
    ]);
  });

  test('accepts any instant, as ISO time with or without offset, or in milliseconds', async () => {
    await world.store.advanceClock(10_000);
    await world.write('a');
    await world.store.advanceClock(100_000);
    for (const [at, state] of [
      ['2026-11-21T10:00:09.999Z', 'never-existed'],
      ['2026-11-21T11:00:10+01:00', 'live'],
      [String(START_MS + 69_999), 'live'],
      [String(START_MS + 70_000), 'expired'],
      ['2026-11-20', 'never-existed'],
    ] as const) {
      expect([at, (await world.get(`${ORDERS}/explain${item('a', { at })}`))['state']]).toEqual([at, state]);
    }
  });

  test.each(['a/b', 'a?b=c&d#e', '100 %', '%2F', 'a+b', '"q"', '日本\u{1F600}', '..', "o'clock", ' '])(
    'finds an item whose id is %j',
    async (id) => {
      await world.write(id);
      expect(await world.get(`${ORDERS}/explain${item(id)}`)).toMatchObject({ state: 'live', id });
    },
  );

  test('accepts a partition key in any spelling of its JSON', async () => {
    await world.write('a');
    const query = new URLSearchParams({ id: 'a', partitionKey: ' [ "\\u0061nn" ] ' });
    expect(await world.get(`${ORDERS}/explain?${query.toString()}`)).toMatchObject({
      state: 'live',
      partitionKey: ['ann'],
    });
  });

  test('finds items of a deleted container by its rid, and calls the container by its name', async () => {
    await world.write('a');
    const { rid } = world.store.container('shop', 'orders');
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    expect((await world.ask('GET', `${ORDERS}/explain${item('a')}`)).statusCode).toBe(404);
    expect(await world.get(`${ORDERS}/explain${item('a', { rid })}`)).toMatchObject({
      state: 'deleted',
      container: { rid, deletedAt: '2026-11-21T10:00:00.000Z' },
      sentence: expect.stringContaining('deleted at 2026-11-21T10:00:00.000Z by key:primary.') as string,
    });
    await createOrders(world.store, null);
    expect(await world.get(`${ORDERS}/explain${item('a')}`)).toMatchObject({
      state: 'never-existed',
      sentence: expect.stringContaining(`ask with their rid: ${rid}.`) as string,
    });
    expect(await world.get(`${ORDERS}/explain${item('a', { rid })}`)).toMatchObject({ state: 'deleted' });
    for (const target of [
      '/history',
      '/disappearances',
      '/as-of?at=2026-11-21T10:00:00Z',
      '/bundle',
      '/certificates',
      `/certificate${item('a')}`,
      '/holds',
      '/holds/h',
      '/ttl',
    ]) {
      const { headers } = await world.ask('GET', `${ORDERS}${target}`);
      expect([target, headers['x-epitaph-earlier-containers']]).toEqual([target, rid]);
      const { headers: ofThat } = await world.ask(
        'GET',
        `${ORDERS}${target}${target.includes('?') ? '&' : '?'}rid=${encodeURIComponent(rid)}`,
      );
      expect(ofThat['x-epitaph-earlier-containers']).toBeUndefined();
    }
    const other = await world.ask('GET', `/dbs/shop/colls/others/explain${item('a', { rid })}`);
    expect([other.statusCode, other.json()]).toMatchObject([404, { code: 'container-not-found' }]);
  });

  test('does not find a container by its rid under another database', async () => {
    const { rid } = world.store.container('shop', 'orders');
    await world.store.createDatabase(WRITER, 'archive');
    await createOrders(world.store, null, 'archive');
    const archived = world.store.container('archive', 'orders');
    await world.store.deleteContainer(WRITER, 'archive', 'orders');
    const { headers } = await world.ask('GET', `${ORDERS}/history`);
    expect(headers['x-epitaph-earlier-containers']).toBeUndefined();
    const explained = await world.get(`${ORDERS}/explain${item('nobody')}`);
    expect(explained['sentence']).not.toContain(archived.rid);
    const byRid = (database: string, of: string) =>
      world.ask('GET', `/dbs/${database}/colls/orders/history?${new URLSearchParams({ rid: of }).toString()}`);
    expect((await byRid('archive', archived.rid)).statusCode).toBe(200);
    expect((await byRid('shop', archived.rid)).json()).toMatchObject({ status: 404, code: 'container-not-found' });
    // The present database is not the one that had the container.
    await world.store.deleteDatabase(WRITER, 'shop');
    await world.store.createDatabase(WRITER, 'shop');
    const gone = await world.ask('GET', `${ORDERS}/history`);
    expect(gone.json()).toMatchObject({ status: 404, detail: expect.stringContaining(`rid: ${rid}.`) as string });
    await createOrders(world.store, null);
    expect((await world.ask('GET', `${ORDERS}/history`)).headers['x-epitaph-earlier-containers']).toBe(rid);
    const { container } = await world.get(`${ORDERS}/history?${new URLSearchParams({ rid }).toString()}`);
    expect(container).toMatchObject({ rid, deletedAt: expect.stringMatching(/^2026-11-21T10:00:00/) as string });
  });
});

describe('history', () => {
  test('has every fact of all lives, oldest first, also when the content is gone', async () => {
    await world.write('a', { ttl: 5 });
    await world.store.advanceClock(5_000);
    await world.ask('POST', '/purge/run');
    await world.write('a');
    const { events, ...about } = await world.get(`${ORDERS}/history${item('a')}`);
    expect(about).toMatchObject({ id: 'a', partitionKey: ['ann'], container: { name: 'orders' } });
    expect(events).toMatchObject([
      { life: 0, type: 'ItemUpserted', occurredAt: '2026-11-21T10:00:00.000Z', fromLedger: true, data: { ttl: 5 } },
      { life: 0, type: 'ItemExpired', occurredAtMs: START_MS + 5_000 },
      { life: 0, type: 'ItemPurged', actor: 'system:purge' },
      { life: 1, type: 'ItemUpserted', actor: 'key:primary', data: { ttl: null } },
    ]);
  });

  test('of an item that never existed is empty', async () => {
    expect(await world.get(`${ORDERS}/history${item('nobody')}`)).toMatchObject({ events: [] });
  });

  test('without an id is that of the container', async () => {
    await world.ask('PUT', `${ORDERS}/policy-grace`, { body: { seconds: 0, reason: 'a test' } });
    const { events } = await world.get(`${ORDERS}/history`);
    expect(events).toMatchObject([
      { type: 'ContainerCreated', data: { defaultTtl: 60 } },
      { type: 'PolicyGraceChanged', actor: 'key:primary', data: { toSeconds: 0, reason: 'a test' } },
    ]);
  });

  test('of a container comes in pages if a limit is given', async () => {
    for (const defaultTtl of [10, 20, 30]) await world.ask('PUT', `${ORDERS}/ttl`, { body: { defaultTtl } });
    interface History {
      readonly events: readonly { readonly revision: number }[];
      readonly continuation?: string;
    }
    const revisions = ({ events }: History): number[] => events.map(({ revision }) => revision);
    const read = vi.spyOn(world.store, 'containerHistory');
    const first = (await world.get(`${ORDERS}/history?limit=2`)) as unknown as History;
    expect(revisions(first)).toEqual([0, 1]);
    // It reads only one event more than the page, to tell whether there are more.
    expect((await read.mock.results[0]!.value) as unknown).toHaveLength(3);
    const last = (await world.get(
      `${ORDERS}/history?limit=2&continuation=${first.continuation}`,
    )) as unknown as History;
    expect(revisions(last)).toEqual([2, 3]);
    expect(last).not.toHaveProperty('continuation');
    const all = (await world.get(`${ORDERS}/history`)) as unknown as History;
    expect(all.events).toEqual([...first.events, ...last.events]);
    expect(all).not.toHaveProperty('continuation');
    expect((await world.ask('GET', `${ORDERS}/history?limit=0`)).statusCode).toBe(400);
    expect((await world.ask('GET', `${ORDERS}/history?continuation=0.1`)).statusCode).toBe(400);
  });

  test('of a container that was deleted with its database says so, whole and in pages', async () => {
    const { rid } = world.store.container('shop', 'orders');
    await world.ask('PUT', `${ORDERS}/retention-floor`, { body: { seconds: 1, reason: 'a test' } });
    await world.store.deleteDatabase(WRITER, 'shop');
    const query = new URLSearchParams({ rid }).toString();
    await world.ask('PUT', `${ORDERS}/retention-floor?${query}`, { body: { seconds: 2, reason: 'a test' } });
    const { events } = await world.get(`${ORDERS}/history?${query}`);
    expect(events).toMatchObject([
      { type: 'ContainerCreated' },
      { type: 'RetentionFloorChanged' },
      { type: 'DatabaseDeleted', actor: WRITER.actor, occurredAt: expect.stringMatching(/^2026-11-21T10/) as string },
      { type: 'RetentionFloorChanged' },
    ]);
    for (const limit of [1, 2, 3, 4]) {
      const paged: unknown[] = [];
      for (let more: string | undefined = ''; more !== undefined;) {
        const page = (await world.get(`${ORDERS}/history?${query}&limit=${limit}${more}`)) as unknown as {
          readonly events: readonly unknown[];
          readonly continuation?: string;
        };
        expect(page.events.length).toBeLessThanOrEqual(limit);
        paged.push(...page.events);
        more = page.continuation && `&continuation=${page.continuation}`;
      }
      expect(paged).toEqual(events);
    }
  });

  test('of an item comes in pages if a limit is given, over all its lives, and each page reads no more than it needs', async () => {
    const deleted = async () => {
      await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'a', '["ann"]');
    };
    const times = async (count: number) => {
      for (let write = 0; write < count; write++) await world.write('a');
    };
    // A life that is purged and truncated, one that has ended, and one that was deleted with its partition key.
    await times(5);
    await deleted();
    await world.store.runPurge();
    await world.store.pausePurge(WRITER);
    await times(4);
    await deleted();
    await times(20);
    await world.store.advanceClock(1_000);
    await world.store.deletePartitionKey(WRITER, world.store.container('shop', 'orders'), '["ann"]');
    interface History {
      readonly events: readonly { readonly life: number; readonly type: string; readonly revision?: number }[];
      readonly continuation?: string;
    }
    const ask = async (more: string) => (await world.get(`${ORDERS}/history${item('a')}${more}`)) as unknown as History;
    const whole = await ask('');
    expect(whole).not.toHaveProperty('continuation');
    expect(whole.events.map(({ life, type }) => `${life} ${type}`)).toEqual([
      ...Array.from({ length: 5 }, () => '0 ItemUpserted'),
      '0 ItemDeleted',
      '0 ItemPurged',
      ...Array.from({ length: 4 }, () => '1 ItemUpserted'),
      '1 ItemDeleted',
      ...Array.from({ length: 20 }, () => '2 ItemUpserted'),
      '2 PartitionKeyDeleted',
    ]);
    for (let limit = 1; limit <= whole.events.length; limit++) {
      const events: History['events'][number][] = [];
      for (let more = ''; ;) {
        const page = await ask(`&limit=${limit}${more}`);
        expect(page.events.length).toBeLessThanOrEqual(limit);
        events.push(...page.events);
        if (page.continuation === undefined) break;
        expect(page.events.length).toBe(limit);
        more = `&continuation=${page.continuation}`;
      }
      expect(events).toEqual(whole.events);
    }
    const read = vi.spyOn(SqliteEventLog.prototype, 'readStream');
    const page = await ask('&limit=2&continuation=2.4');
    const found = read.mock.results.map(({ value }) => (value as unknown[]).length);
    read.mockRestore();
    expect(page.events.map(({ revision }) => revision)).toEqual([5, 6]);
    expect(page.continuation).toBe('2.6');
    expect(found).toEqual([3]);
    expect((await world.ask('GET', `${ORDERS}/history${item('a')}&continuation=3`)).statusCode).toBe(400);
  });

  test('of an item that is purged meanwhile shows what the ledger has', async () => {
    for (let write = 0; write < 3; write++) await world.write('a');
    const { readLast } = SqliteEventLog.prototype;
    const looked = vi.spyOn(SqliteEventLog.prototype, 'readLast');
    looked.mockImplementationOnce(function (this: SqliteEventLog, stream: string) {
      const last = readLast.call(this, stream);
      const purged = async () => {
        await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'a', '["ann"]');
        await world.store.runPurge();
        return last;
      };
      return purged() as never;
    });
    const page = await world.get(`${ORDERS}/history${item('a')}&limit=2`);
    looked.mockRestore();
    expect(page).toMatchObject({
      events: [
        { type: 'ItemUpserted', revision: 0, fromLedger: true },
        { type: 'ItemUpserted', revision: 1, fromLedger: true },
      ],
      continuation: '0.1',
    });
  });

  test('is read in parts even without a limit, because an item may have been written a million times', async () => {
    for (let write = 0; write < 5; write++) await world.write('a');
    const { historyPage } = world.store;
    const asked: (number | undefined)[] = [];
    const read = vi.spyOn(world.store, 'historyPage').mockImplementation((container, id, key, page) => {
      asked.push(page.limit);
      return historyPage(container, id, key, { ...page, limit: 2 });
    });
    const history = await world.get(`${ORDERS}/history${item('a')}`);
    read.mockRestore();
    const events = history['events'] as readonly { readonly revision: number }[];
    expect(events.map(({ revision }) => revision)).toEqual([0, 1, 2, 3, 4]);
    expect(history).not.toHaveProperty('continuation');
    expect(asked).toEqual([10_000, 10_000, 10_000]);
  });

  test('ends after the last life, also if a page after it is asked for', async () => {
    await world.write('a');
    expect(await world.get(`${ORDERS}/history${item('a')}&continuation=7.0`)).toMatchObject({ events: [] });
  });

  test('shows no content to anybody', async () => {
    await world.write('a', { secret: 'zauberwort' });
    for (const url of [`${ORDERS}/history${item('a')}`, `${ORDERS}/explain${item('a')}`]) {
      const response = await world.ask('GET', url, { key: AUDITOR_KEY });
      expect(response.statusCode).toBe(200);
      expect(response.payload).not.toContain('zauberwort');
    }
  });
});

describe('disappearances', () => {
  beforeEach(async () => {
    for (const id of ['a', 'b,"x"\n=1', 'c']) {
      await world.write(id);
      await world.store.advanceClock(1_000);
    }
    await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'c', '["ann"]');
    await world.store.advanceClock(100_000);
    await world.ask('POST', '/purge/run');
  });

  test('come in pages, in the order in which the items left', async () => {
    const first = await world.get(`${ORDERS}/disappearances?limit=2`);
    expect(first).toMatchObject({
      container: { name: 'orders' },
      disappearances: [
        { id: 'c', cause: 'deleted', at: '2026-11-21T10:00:03.000Z', actor: 'key:primary', rule: null },
        {
          id: 'a',
          partitionKey: ['ann'],
          cause: 'expired',
          at: '2026-11-21T10:01:00.000Z',
          recordedAt: '2026-11-21T10:01:43.000Z',
          purgedAtMs: START_MS + 103_000,
          actor: null,
          rule: 'container-default',
        },
      ],
      continuation: expect.any(String),
    });
    const second = await world.get(`${ORDERS}/disappearances?limit=2&continuation=${String(first['continuation'])}`);
    expect(second).toMatchObject({ disappearances: [{ id: 'b,"x"\n=1' }] });
    expect(second).not.toHaveProperty('continuation');
  });

  test('tell who deleted an item or its partition key, or had it erased; also after a rebuild', async () => {
    const other = { ...WRITER, actor: 'key:secondary' };
    const container = world.store.container('shop', 'orders');
    for (const id of ['x', 'y']) await world.write(id);
    await world.ask('POST', `${ORDERS}/erase`, {
      body: { id: 'x', partitionKey: ['ann'], reason: 'article 17', requestedBy: 'desk 3' },
    });
    await world.store.deletePartitionKey(other, container, '["ann"]');
    const who = async () =>
      ((await world.get(`${ORDERS}/disappearances`))['disappearances'] as Record<string, unknown>[])
        .filter(({ id }) => id === 'x' || id === 'y')
        .map(({ id, cause, actor }) => [id, cause, actor])
        .toSorted();
    const expected = [
      ['x', 'erasure', 'key:primary'],
      ['y', 'deleted', 'key:secondary'],
    ];
    expect(await who()).toEqual(expected);
    await world.ask('POST', '/purge/run');
    expect(await who()).toEqual(expected);
    world.store.startRebuild('items');
    await vi.waitFor(() => expect(world.store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
    expect(await who()).toEqual(expected);
  });

  test('can be filtered by time and cause', async () => {
    const ids = async (query: string): Promise<unknown[]> => {
      const answer = await world.get(`${ORDERS}/disappearances?${query}`);
      return (answer['disappearances'] as { id: string }[]).map(({ id }) => id);
    };
    expect(await ids('cause=deleted')).toEqual(['c']);
    expect(await ids('from=2026-11-21T10:01:00Z')).toHaveLength(2);
    expect(await ids(`to=${START_MS + 4_000}`)).toEqual(['c']);
  });

  test('export as CSV that gives every id back as it was', async () => {
    const response = await world.ask('GET', `${ORDERS}/disappearances`, { accept: 'text/csv' });
    expect(response.headers['content-type']).toBe('text/csv; charset=utf-8');
    const lines = response.payload.split('\r\n');
    expect(lines[0]).toBe('position,id,partitionKey,life,cause,at,recordedAt,purgedAt,actor,rule,ttl,policyVersion');
    expect(lines[1]).toMatch(/^\d+,c,"\[""ann""\]",0,deleted,2026-11-21T10:00:03.000Z,/);
    expect(lines[3]).toContain(',"b,""x""\n=1",');
    expect(lines.at(-1)).toBe('');
  });

  test('export as one JSON object a line, including all pages', async () => {
    const container = world.store.container('shop', 'orders');
    for (let n = 0; n < 1100; n += 1) {
      await world.write(`n${n}`);
      await world.store.deleteItem(WRITER, container, `n${n}`, '["ann"]');
    }
    const response = await world.ask('GET', `${ORDERS}/disappearances`, { accept: 'application/x-ndjson' });
    const rows = response.payload
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string });
    expect(rows).toHaveLength(1103);
    expect(new Set(rows.map(({ id }) => id)).size).toBe(1103);
  });

  describe('of a container that was deleted', () => {
    interface Page {
      readonly disappearances: { id: string; cause: string; at: string; purgedAt: string | null }[];
      readonly continuation?: string;
    }
    let rid: string;
    const list = async (query: string): Promise<Page> =>
      (await world.get(`${ORDERS}/disappearances?rid=${encodeURIComponent(rid)}${query}`)) as unknown as Page;
    const ids = ({ disappearances }: Page) => disappearances.map(({ id }) => id);

    beforeEach(async () => {
      ({ rid } = world.store.container('shop', 'orders'));
      for (const id of ['p', 'q', 'overdue', 'r', 's']) await world.write(id, id === 'overdue' ? { ttl: 1 } : {});
      const scope = { items: [{ id: 'q', partitionKey: ['ann'] }] };
      await world.ask('PUT', `${ORDERS}/holds/case`, { body: { ...scope, reason: 'a test' } });
      await world.store.advanceClock(2_000);
      await world.store.deleteContainer(WRITER, 'shop', 'orders');
      await world.store.advanceClock(1_000);
    });
    const taken = (id: string, purgedAt: string | null) => ({
      id,
      cause: 'container-deleted',
      at: '2026-11-21T10:01:45.000Z',
      recordedAt: '2026-11-21T10:01:45.000Z',
      purgedAt,
      actor: 'key:primary',
    });

    test('list its items from its deletion on, before they are erased and while a hold keeps them', async () => {
      expect(await list('&cause=container-deleted')).toMatchObject({
        disappearances: ['p', 'q', 'r', 's'].map((id) => taken(id, null)),
      });
      await world.ask('POST', '/purge/run');
      const after = await list('&cause=container-deleted');
      const erased = '2026-11-21T10:01:46.000Z';
      expect(after).toMatchObject({
        disappearances: ['p', 'q', 'r', 's'].map((id) => taken(id, id === 'q' ? null : erased)),
      });
      expect(ids(await list(''))).toEqual(['c', 'a', 'b,"x"\n=1', 'overdue', 'p', 'q', 'r', 's']);
      const csv = await world.ask('GET', `${ORDERS}/disappearances?rid=${encodeURIComponent(rid)}`, {
        accept: 'text/csv',
      });
      expect(csv.payload).toMatch(/,q,"\[""ann""\]",0,container-deleted,2026-11-21T10:01:45.000Z,/);
    });

    test('have each item on one page, even if the purge runs between two pages', async () => {
      const first = await list('&cause=container-deleted&limit=2');
      expect(ids(first)).toEqual(['p', 'q']);
      await world.ask('POST', '/purge/run');
      const second = await list(`&cause=container-deleted&limit=2&continuation=${first.continuation!}`);
      expect(ids(second)).toEqual(['r', 's']);
      const third = await list(`&cause=container-deleted&limit=2&continuation=${second.continuation!}`);
      expect(third.disappearances).toEqual([]);
      expect(third.continuation).toBe(undefined);
    });

    test('are filtered by time and cause like all others', async () => {
      expect(ids(await list('&cause=erasure'))).toEqual([]);
      expect(ids(await list(`&from=${START_MS + 105_000}&to=${START_MS + 105_001}`))).toEqual(['p', 'q', 'r', 's']);
      expect(ids(await list(`&from=${START_MS + 105_001}`))).toEqual([]);
      expect(ids(await list(`&from=${START_MS + 103_001}&to=${START_MS + 105_000}`))).toEqual([]);
    });

    test('are the same after the read models are rebuilt', async () => {
      await world.ask('POST', '/purge/run');
      const before = await list('');
      world.store.startRebuild('items');
      await vi.waitFor(() => expect(world.store.rebuildStatus('items')).toMatchObject({ state: 'done' }));
      expect(await list('')).toEqual(before);
    });
  });

  test('refuse a limit in exports', async () => {
    const response = await world.ask('GET', `${ORDERS}/disappearances?limit=5`, { accept: 'text/csv' });
    expect(response.statusCode).toBe(400);
  });
});
