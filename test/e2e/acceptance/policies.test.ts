import type { Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { raw } from '../support/raw.ts';
import { CALLER, refusalOf, seen, sightings, statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open({ policyGraceSeconds: 3_600 });
});
afterAll(() => world.end());

/** Items with every kind of ttl, written now. */
async function stocked(defaultTtl: number | undefined): Promise<{ container: Container; ts: number }> {
  const container = await world.container(defaultTtl === undefined ? {} : { defaultTtl });
  for (const [id, ttl] of [['plain'], ['short', 10], ['long', 100], ['never', -1]] as const) {
    await container.items.create({ id, customer: 'ann', ...(ttl === undefined ? {} : { ttl }) });
  }
  const { resource } = await container.item('plain', 'ann').read();
  return { container, ts: resource!._ts };
}

const ids = ['plain', 'short', 'long', 'never'];

describe('a container whose time to live is changed', () => {
  test('from off to on: the countdown began with the last write, and overdue items are gone at that instant', async () => {
    const { container, ts } = await stocked(undefined);
    await world.advanceTo((ts + 50) * 1000);
    expect(await sightings(container, ids)).toEqual(seen(...ids));
    await world.setTtl(container.id, 60);
    const changedAtMs = await world.now();
    expect(await sightings(container, ids)).toEqual(seen('plain', 'long', 'never'));
    expect(await world.explain(container.id, 'short')).toMatchObject({
      state: 'expired',
      expiredAtMs: changedAtMs,
      policy: { version: 2, defaultTtl: 60, sinceMs: changedAtMs },
    });
    await world.advanceTo((ts + 60) * 1000 - 1);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'long', 'never'));
    await world.advance(1);
    expect(await sightings(container, ids)).toEqual(seen('long', 'never'));
    await world.advanceTo((ts + 100) * 1000);
    expect(await sightings(container, ids)).toEqual(seen('never'));
  });

  test('from off to on without a default: only an own ttl counts', async () => {
    const { container, ts } = await stocked(undefined);
    await world.advanceTo((ts + 50) * 1000);
    await world.setTtl(container.id, -1);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'long', 'never'));
    await world.advanceTo((ts + 1_000_000) * 1000);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'never'));
  });

  test('from on to off: nothing expires any more, and expired items do not come back', async () => {
    const { container, ts } = await stocked(60);
    await world.advanceTo((ts + 10) * 1000 + 1);
    await world.setTtl(container.id, undefined);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'long', 'never'));
    await world.advanceTo((ts + 1_000_000) * 1000);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'long', 'never'));
    expect(await world.explain(container.id, 'short')).toMatchObject({ state: 'expired', policy: { version: 1 } });
    await world.setTtl(container.id, 2_000_000);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'never'));
    await world.setTtl(container.id, undefined);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'never'));
  });

  test('to a shorter one: items that are too old are gone at once, the others at their new deadlines', async () => {
    const { container, ts } = await stocked(60);
    await world.advanceTo((ts + 5) * 1000);
    await container.items.create({ id: 'younger', customer: 'ann' });
    await world.setTtl(container.id, 5);
    const all = [...ids, 'younger'];
    expect(await sightings(container, all)).toEqual(seen('short', 'long', 'never', 'younger'));
    await world.advanceTo((ts + 10) * 1000 - 1);
    expect(await sightings(container, all)).toEqual(seen('short', 'long', 'never', 'younger'));
    await world.advance(1);
    expect(await sightings(container, all)).toEqual(seen('long', 'never'));
  });

  test('to a longer one: present items stay longer, and expired ones stay gone, purged or not', async () => {
    for (const purged of [false, true]) {
      const { container, ts } = await stocked(20);
      await world.advanceTo((ts + 15) * 1000);
      await container.items.create({ id: 'younger', customer: 'ann' });
      const all = [...ids, 'younger'];
      await world.advanceTo((ts + 20) * 1000 + 1);
      if (purged) await world.purge();
      await world.setTtl(container.id, 1_000);
      expect(await sightings(container, all)).toEqual(seen('long', 'never', 'younger'));
      await world.advanceTo((ts + 1_014) * 1000);
      expect(await sightings(container, all)).toEqual(seen('never', 'younger'));
      await world.advance(1_000);
      expect(await sightings(container, all)).toEqual(seen('never'));
    }
  });

  test('to -1: the default no longer applies, but an item’s own ttl does', async () => {
    const { container, ts } = await stocked(60);
    await world.advanceTo((ts + 59) * 1000);
    await world.setTtl(container.id, -1);
    await world.advanceTo((ts + 1_000) * 1000);
    expect(await sightings(container, ids)).toEqual(seen('plain', 'never'));
  });

  test('repeatedly never brings an item back, nor do a purge and a restart in between', async () => {
    const { container, ts } = await stocked(20);
    const { id: name } = container;
    await world.advanceTo((ts + 20) * 1000 + 1);
    for (const [step, defaultTtl] of [undefined, 1_000, -1, undefined, 20, 5_000, -1].entries()) {
      await world.setTtl(name, defaultTtl);
      if (step === 2) await world.restart();
      if (step === 3) await world.purge();
      expect(await sightings(world.of(name), ids), `step ${step}`).toEqual(seen('long', 'never'));
      await world.advance(250);
    }
    expect((await world.containerHistory(name)).map(({ type, data }) => [type, data['policyVersion'] ?? 1])).toEqual([
      ['ContainerCreated', 1],
      ...[2, 3, 4, 5, 6, 7, 8].map((version) => ['ContainerTtlChanged', version]),
    ]);
    expect(await world.fsck()).toEqual([]);
  });

  test('to its present value records nothing', async () => {
    const { container } = await stocked(20);
    const before = await world.head();
    await world.setTtl(container.id, 20);
    expect(await world.head()).toBe(before);
  });
});

describe('a change of policy that was scheduled', () => {
  test('is not undone by a replace under an etag from before it began, which is answered with 412', async () => {
    const { id } = await world.container({ defaultTtl: 60 });
    const path = `/dbs/shop/colls/${id}`;
    const fromMs = (await world.now()) + 10_000;
    const scheduled = await world.manage('PUT', `${path}/ttl`, { defaultTtl: 3_600, effectiveFrom: String(fromMs) });
    expect(scheduled).toMatchObject({ status: 200 });
    const before = await raw(world.endpoint, 'GET', path);
    const etag = String(before.headers['etag']);
    const read = () => raw(world.endpoint, 'GET', path, { headers: { 'if-none-match': etag } });
    const replace = (ifMatch: string, defaultTtl: number) =>
      raw(world.endpoint, 'PUT', path, {
        headers: { 'if-match': ifMatch },
        body: JSON.stringify({ ...before.json, defaultTtl }),
      });
    await world.advanceTo(fromMs - 1);
    expect(await read()).toMatchObject({ status: 304 });
    await world.advanceTo(fromMs);
    const after = await read();
    expect(after).toMatchObject({ status: 200, json: { defaultTtl: 3_600, _etag: after.headers['etag'] } });
    expect(await replace(etag, 60)).toMatchObject({ status: 412 });
    const replaced = await replace(String(after.headers['etag']), 7_200);
    expect(replaced).toMatchObject({ status: 200, json: { defaultTtl: 7_200, _etag: replaced.headers['etag'] } });
    expect(await replace(String(replaced.headers['etag']), 60)).toMatchObject({ status: 200 });
  });
});

describe('with a clock that stands still', () => {
  const asks: [string, (container: Container) => Promise<unknown>][] = [
    ['a point read', (container) => container.item('a', 'ann').read()],
    ['a query', (container) => container.items.query('SELECT * FROM c').fetchAll()],
    ['a count', (container) => container.items.query('SELECT VALUE COUNT(1) FROM c').fetchAll()],
    ['a look-up by id', (c) => c.items.query('SELECT * FROM c WHERE c.id = "a"', { partitionKey: 'ann' }).fetchAll()],
    ['a feed', (container) => container.items.readAll({ partitionKey: 'ann' }).fetchAll()],
    ['a replace', (container) => statusOf(container.item('a', 'ann').replace({ id: 'a', customer: 'ann' }))],
    ['a delete', (container) => statusOf(container.item('a', 'ann').delete())],
    ['a patch', (container) => statusOf(container.item('a', 'ann').patch([{ op: 'set', path: '/x', value: 1 }]))],
    ['a purge', () => world.purge()],
    ['an explanation', (container) => world.explain(container.id, 'a')],
    ['a batch', (container) => container.items.batch([{ operationType: 'Read', id: 'a' }], 'ann')],
    ['a change feed', (container) => raw(world.endpoint, 'GET', `${pathOf(container)}/docs`, FEED)],
    ['a look at held content', (c) => world.manage('GET', `${pathOf(c)}/held-content?${HELD}`)],
    ['a preview', (container) => world.manage('POST', `${pathOf(container)}/ttl/preview`, { defaultTtl: 5 })],
    [
      'a replay',
      (c) => world.manage('POST', `${pathOf(c)}/ttl/replay`, { timeline: [{ from: '0', defaultTtl: null }] }),
    ],
    ['a state as of now', async (c) => world.manage('GET', `${pathOf(c)}/as-of?at=${await world.now()}`)],
  ];
  const HELD = new URLSearchParams({ id: 'a', partitionKey: '["ann"]', reason: 'case 7' }).toString();
  const FEED = { headers: { 'a-im': 'Incremental Feed' } };
  const pathOf = ({ id }: Container): string => `/dbs/shop/colls/${id}`;
  const prepared = async (): Promise<{ container: Container; deadlineMs: number }> => {
    const container = await world.container({ defaultTtl: 10 });
    const { resource } = await container.items.create({ id: 'a', customer: 'ann' });
    await container.items.create({ id: 'b', customer: 'ann' });
    const deadlineMs = (resource!._ts + 10) * 1000;
    expect(await world.advanceTo(deadlineMs)).toBe(deadlineMs);
    return { container, deadlineMs };
  };

  test.each(asks)(
    'after %s at the deadline, the item stays expired even if the policy is lifted at the same instant',
    async (_name, ask) => {
      const { container, deadlineMs } = await prepared();
      await ask(container);
      await world.setTtl(container.id, undefined);
      expect(await sightings(container, ['a'])).toMatchObject({
        reads: [],
        query: [],
        queryOfKey: [],
        queryById: [],
        count: 0,
      });
      expect(await statusOf(container.item('a', 'ann').replace({ id: 'a', customer: 'ann' }))).toBe(404);
      expect(await world.explain(container.id, 'a')).toMatchObject({ expiredAtMs: deadlineMs });
      await world.purge();
      expect((await container.item('a', 'ann').read()).statusCode).toBe(404);
      expect(await statusOf(container.items.create({ id: 'a', customer: 'ann' }))).toBe(201);
      expect(await world.fsck()).toEqual([]);
    },
  );

  test.each([
    ['its container', (container: Container) => container.delete()],
    ['its database', () => world.client.database('shop').delete()],
  ])('an item found expired is recorded as expired, even if %s is deleted at once', async (_name, remove) => {
    const { container, deadlineMs } = await prepared();
    const rid = (await container.read()).resource!._rid;
    expect((await container.item('a', 'ann').read()).statusCode).toBe(404);
    await remove(container);
    expect(await world.explain(container.id, 'a', undefined, { rid })).toMatchObject({
      state: 'expired',
      expiredAtMs: deadlineMs,
    });
    await world.purge();
    expect((await world.disappearances(container.id, rid)).disappearances).toMatchObject([
      { id: 'a', cause: 'expired' },
      { id: 'b', cause: 'expired' },
    ]);
  });

  test('an item that a reader found expired stays gone after a restart, even if the policy is lifted at the same instant', async () => {
    const { container } = await prepared();
    expect((await container.item('a', 'ann').read()).statusCode).toBe(404);
    await world.restart();
    await world.setTtl(container.id, undefined);
    expect(await sightings(world.of(container.id), ['a', 'b'])).toEqual(seen());
    expect(await world.fsck()).toEqual([]);
  });

  test('readers and a policy change that meet at the deadline agree', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { container } = await prepared();
      const asked: Promise<boolean>[] = [];
      const ask = () =>
        asked.push(
          container
            .item('a', 'ann')
            .read()
            .then(({ statusCode }) => statusCode === 404),
        );
      for (let n = 0; n < 10; n += 1) ask();
      const { resource } = await container.read();
      const { defaultTtl: _, ...off } = resource!;
      const change = container.replace(off);
      for (let n = 0; n < 10; n += 1) ask();
      await change;
      const toldGone = (await Promise.all(asked)).includes(true);
      const thereNow = (await container.item('a', 'ann').read()).statusCode === 200;
      expect(toldGone && thereNow).toBe(false);
    }
  });

  test('a read just before a policy change agrees with the reads after it on what has expired', async () => {
    const { container } = await prepared();
    const { store } = world;
    const state = store.container('shop', container.id);
    // All of these calls are in one turn of the event loop. Requests over a network can't be placed so exactly.
    const read = store.readItem(state, 'a', '["ann"]').then(
      () => 'there',
      () => 'gone',
    );
    const listed = store.listItems(state, { maxItemCount: 10 });
    const change = store.replaceContainer(CALLER, 'shop', container.id, state.definition, null);
    const toldGone = (await read) === 'gone' || (await listed).items.length < 2;
    await change;
    const after = await sightings(container, ['a', 'b']);
    expect(after).toEqual(toldGone ? seen() : seen('a', 'b'));
  });

  test('a write that is under way at the deadline is not lost, and no concurrent reader finds the item gone', async () => {
    const { store } = world;
    const container = await world.container({ defaultTtl: 10 });
    const { resource } = await container.items.create({ id: 'a', customer: 'ann' });
    const state = store.container('shop', container.id);
    await world.advanceTo((resource!._ts + 10) * 1000 - 1);
    const item = { id: 'a', partitionKey: '["ann"]', document: {}, json: '{"id":"a","customer":"ann","n":2}' };
    const write = store.writeItem(CALLER, state, 'replace', item);
    // Waits until the write has its timestamp and is on its way to the log.
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    const advanced = store.advanceClock(1);
    const sql = { sql: 'SELECT VALUE c.id FROM c', parameters: [], maxItemCount: 10 };
    const count = { sql: 'SELECT VALUE COUNT(1) FROM c', parameters: [], maxItemCount: 10 };
    const answers = await Promise.all([
      store.readItem(state, 'a', '["ann"]').then(
        () => true,
        () => false,
      ),
      store.listItems(state, { maxItemCount: 10 }).then(({ items }) => items.length > 0),
      store.queryItems(state, sql).then(({ rows }) => rows.length > 0),
      store.queryItems(state, { ...sql, partitionKey: '["ann"]' }).then(({ rows }) => rows.length > 0),
      store.queryItems(state, count).then(({ rows }) => rows[0] !== 0),
    ]);
    await Promise.all([write, advanced]);
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ n: 2 });
    expect(answers).toEqual([true, true, true, true, true]);
  });

  test('a policy that was replaced within its own millisecond was never in force', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(100_000);
    const before = await world.now();
    await world.setTtl(container.id, 5);
    await world.setTtl(container.id, 1_000);
    expect(await world.now()).toBe(before);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'live', policy: { version: 3 } });
    expect((await world.containerHistory(container.id)).map(({ data }) => data['to'])).toEqual([undefined, 5, 1_000]);
  });

  test('a policy under which somebody found an item gone stays in force for its millisecond', async () => {
    const container = await world.container();
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(100_000);
    await world.setTtl(container.id, 5);
    expect((await container.item('a', 'ann').read()).statusCode).toBe(404);
    await world.setTtl(container.id, 1_000);
    expect(await sightings(container, ['a'])).toEqual(seen());
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'expired', policy: { version: 2 } });
  });
});

describe('an item that expires because a policy begins', () => {
  const mistyped = async (): Promise<{ name: string; changedAtMs: number }> => {
    const container = await world.container({ defaultTtl: 1_000 });
    for (const id of ['a', 'b']) await container.items.create({ id, customer: 'ann' });
    await world.advance(1_000_000);
    await container.items.upsert({ id: 'fresh', customer: 'ann' });
    for (const id of ['c', 'd']) await container.items.create({ id, customer: 'ann' });
    await world.advance(10_000);
    await world.setTtl(container.id, 10);
    return { name: container.id, changedAtMs: await world.now() };
  };

  test('is hidden at once, and erased when the grace period is over, not before', async () => {
    const { name, changedAtMs } = await mistyped();
    const all = ['a', 'b', 'c', 'd', 'fresh'];
    expect(await sightings(world.of(name), all)).toEqual(seen());
    await world.purge();
    for (const id of ['c', 'd', 'fresh']) expect(await world.explain(name, id)).toMatchObject({ state: 'expired' });
    for (const id of ['a', 'b']) expect(await world.explain(name, id)).toMatchObject({ state: 'purged' });
    await world.advanceTo(changedAtMs + 3_600_000 - 1);
    await world.purge();
    expect(await world.explain(name, 'c')).toMatchObject({ state: 'expired', expiredAtMs: changedAtMs });
    await world.restart();
    await world.purge();
    expect(await world.explain(name, 'c')).toMatchObject({ state: 'expired', expiredAtMs: changedAtMs });
    await world.advance(1);
    await world.purge();
    expect(await world.explain(name, 'c')).toMatchObject({
      state: 'purged',
      expiredAtMs: changedAtMs,
      purgedAtMs: changedAtMs + 3_600_000,
    });
    expect(await world.fsck()).toEqual([]);
  });

  test('is erased at once with a grace period of 0', async () => {
    const container = await world.container();
    await world.setGrace(container.id, 0);
    await container.items.create({ id: 'a', customer: 'ann' });
    await world.advance(100_000);
    await world.setTtl(container.id, 10);
    expect(await world.purge()).toMatchObject({ expired: 1, purged: 1 });
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'purged', purgedAtMs: await world.now() });
  });

  test('does not come back when the policy is reverted', async () => {
    const { name } = await mistyped();
    expect((await world.of(name).item('c', 'ann').read()).statusCode).toBe(404);
    await world.setTtl(name, 100_000);
    expect(await sightings(world.of(name), ['a', 'b', 'c', 'd', 'fresh'])).toEqual(seen());
    expect(await statusOf(world.of(name).items.create({ id: 'c', customer: 'ann' }))).toBe(201);
  });

  test('has a grace period that must be a number of seconds', async () => {
    const container = await world.container();
    for (const seconds of [-1, 1.5, '10', null]) {
      const { status } = await world.manage('PUT', `/dbs/shop/colls/${container.id}/policy-grace`, { seconds });
      expect(status).toBe(400);
    }
    expect((await world.containerHistory(container.id)).length).toBe(1);
    expect((await refusalOf(world.setGrace('not-there', 1))).message).toContain('404');
  });
});
