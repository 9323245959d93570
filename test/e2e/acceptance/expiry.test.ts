import type { Container } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { seen, sightings, statusOf, World, type Explained } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const total = (n: number) => ({ id: 'a', customer: 'ann', total: n });

describe('an item that expires', () => {
  test('is gone at that instant for all reads and writes, and its id is free', async () => {
    const container = await world.container({ defaultTtl: 10 });
    const { resource, etag } = await container.items.create(total(1));
    await world.advanceTo((resource!._ts + 10) * 1000 - 1);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
    await world.advance(1);
    const item = container.item('a', 'ann');
    expect(await sightings(container, ['a'])).toEqual(seen());
    expect(await statusOf(item.replace(total(2)))).toBe(404);
    expect(await statusOf(item.patch([{ op: 'set', path: '/total', value: 2 }]))).toBe(404);
    expect(await statusOf(item.delete())).toBe(404);
    const matching = { accessCondition: { type: 'IfMatch', condition: etag } };
    expect(await statusOf(item.replace(total(2), matching))).toBe(404);
    expect(await sightings(container, ['a'])).toEqual(seen());
    // An upsert under If-Match creates the item, because there is no item whose etag could differ.
    const again = await container.items.upsert(total(3), matching);
    expect(again.statusCode).toBe(201);
    expect(again.resource!['_rid']).not.toBe(resource!['_rid']);
    expect(again.etag).not.toBe(etag);
    expect((await item.read()).resource).toMatchObject({ total: 3 });
    expect((await world.history(container.id, 'a')).map(({ life, type }) => [life, type])).toEqual([
      [0, 'ItemUpserted'],
      [0, 'ItemExpired'],
      [1, 'ItemUpserted'],
    ]);
  });

  test('is gone at that instant even for queries that are repeated and may be answered from a cache', async () => {
    const container = await world.container({ defaultTtl: 30 });
    for (const [id, ttl] of Object.entries({ long: 20, short: 10, default: undefined, forever: -1 })) {
      await container.items.create({ id, customer: id, total: 1, ...(ttl === undefined ? {} : { ttl }) });
    }
    const asked = async () => {
      const queries = [
        'SELECT VALUE c.id FROM c WHERE c.total > 0',
        'SELECT VALUE c.id FROM c ORDER BY c.id',
        'SELECT VALUE COUNT(1) FROM c WHERE c.total > 0',
        'SELECT VALUE c.id FROM c WHERE c._ts > 0',
      ];
      const answers = [];
      // Later repetitions may be answered from what the earlier ones have left in memory.
      for (const query of [...queries, ...queries, ...queries]) {
        answers.push((await container.items.query<unknown>(query, { maxItemCount: 2 }).fetchAll()).resources);
      }
      return answers;
    };
    const thrice = (...answers: unknown[]) => [...answers, ...answers, ...answers];
    const all = ['long', 'short', 'default', 'forever'];
    expect(await asked()).toEqual(thrice(all, all.toSorted(), [4], all));
    await world.advance(10_000);
    const left = ['long', 'default', 'forever'];
    expect(await asked()).toEqual(thrice(left, left.toSorted(), [3], left));
    await container.items.upsert({ id: 'long', customer: 'long', total: 0 });
    expect(await asked()).toEqual(thrice(['default', 'forever'], left.toSorted(), [2], left));
    await world.advance(20_000);
    expect((await asked()).at(-1)).toEqual(['long', 'forever']);
    await world.purge();
    expect((await asked()).at(-1)).toEqual(['long', 'forever']);
  });

  test.each([
    ['an upsert', (container: Container) => container.items.upsert(total(2)), 201],
    ['a create', (container: Container) => container.items.create(total(2)), 201],
  ])('does not prevent %s, which begins a new life and is answered with 201', async (_name, write, status) => {
    const container = await world.container({ defaultTtl: 10 });
    await container.items.create(total(1));
    await world.advance(10_000);
    expect(await statusOf(write(container))).toBe(status);
    expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'live', life: 1 });
  });

  test('has the same explanation before the purge, after it, and after a restart', async () => {
    await world.purge();
    const { id: name } = await world.container({ defaultTtl: 100 });
    const { resource } = await world.of(name).items.create({ ...total(1), ttl: 10 });
    const deadlineMs = (resource!._ts + 10) * 1000;
    const expected = {
      life: 0,
      expiredAtMs: deadlineMs,
      rule: 'item-ttl',
      policy: { version: 1, defaultTtl: 100 },
    };
    const arithmetic = new RegExp(`^_ts ${resource!._ts} \\(.*\\) \\+ ttl 10 s = ${resource!._ts + 10} \\(`);
    const check = (explained: Explained, state: Explained['state']) => {
      expect(explained).toMatchObject({ ...expected, state });
      expect(explained.arithmetic).toMatch(arithmetic);
      expect(explained.sentence).toContain(new Date(deadlineMs).toISOString());
      expect(explained.sentence).toContain('its own ttl of 10 s');
      expect(explained.sentence).toContain('policy version 1');
    };
    expect(await world.explain(name, 'a')).toMatchObject({ state: 'live', expiresAtMs: deadlineMs });

    await world.advanceTo(deadlineMs + 5_000);
    const unrecorded = await world.explain(name, 'a');
    check(unrecorded, 'expired');
    expect(unrecorded.recordedAtMs).toBeUndefined();
    await world.purge();
    const purged = await world.explain(name, 'a');
    check(purged, 'purged');
    expect(purged).toMatchObject({ purgedAtMs: deadlineMs + 5_000, recordedAtMs: deadlineMs + 5_000, lagMs: 5_000 });

    const history = await world.history(name, 'a');
    expect(history.map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemExpired', 'ItemPurged']);
    expect(history[0]).toMatchObject({ fromLedger: true, data: { ts: resource!._ts, ttl: 10 } });
    expect(history[1]!.data).toMatchObject({ expiredAtMs: deadlineMs, ts: resource!._ts, ttl: 10, policyVersion: 1 });
    await world.restart();
    expect(await world.explain(name, 'a')).toEqual(purged);
    expect(await world.history(name, 'a')).toEqual(history);
    check(await world.explain(name, 'a', deadlineMs), 'expired');
    expect(await world.explain(name, 'a', deadlineMs - 1)).toMatchObject({ state: 'live', life: 0 });
    expect(await world.explain(name, 'a', resource!._ts * 1000 - 1)).toMatchObject({ state: 'never-existed' });

    await world.advance(1);
    expect(await statusOf(world.of(name).items.create(total(2)))).toBe(201);
    await world.advance(100_000);
    expect(await sightings(world.of(name), ['a'])).toEqual(seen());
    await world.purge();
    const both = await world.history(name, 'a');
    expect(both.slice(0, 3)).toEqual(history);
    expect(both.slice(3).map(({ life, type }) => [life, type])).toEqual([
      [1, 'ItemUpserted'],
      [1, 'ItemExpired'],
      [1, 'ItemPurged'],
    ]);
    check(await world.explain(name, 'a', deadlineMs + 5_000), 'purged');
    expect(await world.explain(name, 'a')).toMatchObject({ state: 'purged', life: 1, rule: 'container-default' });
    expect((await world.disappearances(name)).disappearances).toMatchObject([
      { id: 'a', life: 0, cause: 'expired', atMs: deadlineMs, rule: 'item-ttl' },
      { id: 'a', life: 1, cause: 'expired', rule: 'container-default' },
    ]);
    expect(await world.fsck()).toEqual([]);
  });

  test('can live many times, and each life is explained with its own times after all are purged', async () => {
    const { id: name } = await world.container({ defaultTtl: 1 });
    const births: number[] = [];
    for (let life = 0; life < 12; life += 1) {
      births.push(await world.now());
      expect(await statusOf(world.of(name).items.create(total(life)))).toBe(201);
      await world.advance(1_000);
      if (life % 3 === 0) await world.purge();
    }
    await world.purge();
    await world.restart();
    for (const [life, birthMs] of births.entries()) {
      expect(await world.explain(name, 'a', birthMs)).toMatchObject({ state: 'live', life });
    }
    expect(await world.history(name, 'a')).toHaveLength(3 * 12);
    expect(await world.fsck()).toEqual([]);
  });

  test('is recorded as deleted if a client deleted it first, and the history names that client', async () => {
    const { id: name } = await world.container({ defaultTtl: 10 });
    await world.of(name).items.create(total(1));
    await world.advance(1_000);
    const deletedAtMs = await world.now();
    await world.of(name).item('a', 'ann').delete();
    await world.advance(100_000);
    expect(await world.explain(name, 'a')).toMatchObject({ state: 'deleted', deletedAtMs });
    await world.purge();
    expect(await world.explain(name, 'a')).toMatchObject({ state: 'purged', deletedAtMs });
    expect((await world.explain(name, 'a')).sentence).toContain('key:primary');
    expect((await world.disappearances(name)).disappearances).toMatchObject([{ cause: 'deleted', atMs: deletedAtMs }]);
  });
});

describe('every write', () => {
  test.each([
    ['upsert', (container: Container) => container.items.upsert(total(2))],
    ['replace', (container: Container) => container.item('a', 'ann').replace(total(2))],
    ['patch', (container: Container) => container.item('a', 'ann').patch([{ op: 'incr', path: '/total', value: 1 }])],
  ])('restarts the countdown: %s', async (_name, write) => {
    const container = await world.container({ defaultTtl: 10 });
    const { resource } = await container.items.create(total(1));
    await world.advanceTo((resource!._ts + 10) * 1000 - 1);
    const { resource: written, statusCode } = await write(container);
    expect(statusCode).toBe(200);
    expect(written).toMatchObject({ total: 2, _ts: resource!._ts + 9, _rid: resource!['_rid'] });
    await world.advanceTo((resource!._ts + 19) * 1000 - 1);
    expect(await sightings(container, ['a'])).toEqual(seen('a'));
    await world.advance(1);
    expect(await sightings(container, ['a'])).toEqual(seen());
  });

  test('with another ttl replaces the item’s ttl, and one without a ttl restores the default', async () => {
    const container = await world.container({ defaultTtl: 100 });
    const item = container.item('a', 'ann');
    const writes: [string, () => Promise<unknown>, number | null][] = [
      ['an own ttl', () => container.items.upsert({ ...total(1), ttl: 5 }), 5],
      ['replaced without', () => item.replace(total(1)), 100],
      ['patched in', () => item.patch([{ op: 'add', path: '/ttl', value: 7 }]), 7],
      ['patched out', () => item.patch([{ op: 'remove', path: '/ttl' }]), 100],
      ['never', () => item.replace({ ...total(1), ttl: -1 }), null],
      ['upserted without', () => container.items.upsert(total(1)), 100],
    ];
    for (const [name, write, seconds] of writes) {
      await world.advance(1_250);
      await write();
      const { resource } = await item.read<{ ttl?: number }>();
      const { expiresAtMs } = await world.explain(container.id, 'a');
      expect(expiresAtMs, name).toBe(seconds === null ? undefined : (resource!._ts + seconds) * 1000);
    }
    expect((await item.read()).resource).not.toHaveProperty('ttl');
  });

  test('that is refused does not restart the countdown', async () => {
    const container = await world.container({ defaultTtl: 10 });
    const { resource } = await container.items.create(total(1));
    await world.advance(5_000);
    const stale = { accessCondition: { type: 'IfMatch', condition: '"stale"' } };
    const item = container.item('a', 'ann');
    expect(await statusOf(item.replace(total(2), stale))).toBe(412);
    expect(await statusOf(container.items.upsert(total(2), stale))).toBe(412);
    expect(await statusOf(container.items.create(total(2)))).toBe(409);
    expect(await statusOf(item.patch([{ op: 'replace', path: '/missing', value: 1 }]))).toBe(400);
    await world.advanceTo((resource!._ts + 10) * 1000);
    expect(await sightings(container, ['a'])).toEqual(seen());
  });
});

describe('on the system clock', () => {
  let real: World;
  beforeAll(async () => {
    real = await World.open({ clock: 'system', automaticPurge: true });
  });
  afterAll(() => real.end());

  test('an expired item that one reader found gone is never seen by another reader later', async () => {
    const container = await real.container({ defaultTtl: 2 });
    const ids = ['a', 'b', 'c', 'd'];
    const deadlines = new Map<string, number>();
    for (const [index, id] of ids.entries()) {
      const { resource } = await container.items.create({
        id,
        customer: 'ann',
        ...(index % 2 === 0 ? { ttl: 1 } : {}),
      });
      deadlines.set(id, (resource!._ts + (index % 2 === 0 ? 1 : 2)) * 1000);
    }
    const endMs = Math.max(...deadlines.values()) + 400;
    const goneSince = new Map<string, number>();
    const late: string[] = [];
    let looks = 0;
    /** One look. An item that was found gone before the look began must not be in it. */
    const look = async (who: string, ask: () => Promise<readonly string[]>) => {
      while (Date.now() < endMs) {
        const began = performance.now();
        const beganMs = Date.now();
        const found = await ask();
        const answeredMs = Date.now();
        for (const id of ids) {
          const there = found.includes(id);
          const gone = goneSince.get(id);
          if (there && gone !== undefined && gone < began) late.push(`${who} saw ${id} after it was gone`);
          if (there && beganMs > deadlines.get(id)!) late.push(`${who} saw ${id} after its deadline`);
          if (!there && answeredMs < deadlines.get(id)!) late.push(`${who} missed ${id} before its deadline`);
          if (!there && gone === undefined) goneSince.set(id, performance.now());
        }
        looks += 1;
      }
    };
    const clients = Array.from({ length: 4 }, () => real.connect());
    const readers = clients.flatMap((client, n) => {
      const own = client.database('shop').container(container.id);
      return [
        look(`reader ${n}`, async () => {
          const found = await Promise.all(ids.map((id) => own.item(id, 'ann').read<{ id: string }>()));
          return found.flatMap(({ resource }) => (resource === undefined ? [] : [resource.id]));
        }),
        look(`query ${n}`, async () => {
          const sql = n % 2 === 0 ? 'SELECT VALUE c.id FROM c' : 'SELECT VALUE c.id FROM c ORDER BY c._ts';
          return (await own.items.query<string>(sql).fetchAll()).resources;
        }),
        look(`feed ${n}`, async () =>
          (await own.items.readAll<{ id: string }>({ partitionKey: 'ann' }).fetchAll()).resources.map(({ id }) => id),
        ),
      ];
    });
    await Promise.all(readers);
    for (const client of clients) client.dispose();
    expect(late).toEqual([]);
    expect([...goneSince.keys()].sort()).toEqual(ids);
    expect(looks).toBeGreaterThan(30);
    const explained = await real.explain(container.id, 'b');
    expect(explained).toMatchObject({ expiredAtMs: deadlines.get('b') });
  });

  test('an expired item is purged automatically, at most 1.5 seconds after its deadline', async () => {
    const container = await real.container({ defaultTtl: 1 });
    const { resource } = await container.items.create({ id: 'a', customer: 'ann' });
    const deadlineMs = (resource!._ts + 1) * 1000;
    await expect
      .poll(() => real.explain(container.id, 'a'), { timeout: 5_000, interval: 50 })
      .toMatchObject({ state: 'purged', expiredAtMs: deadlineMs });
    const { purgedAtMs } = await real.explain(container.id, 'a');
    expect(purgedAtMs! - deadlineMs).toBeLessThan(1_500);
    // The log is truncated after the purge was recorded.
    await expect.poll(() => real.fsck(), { timeout: 5_000, interval: 50 }).toEqual([]);
  });
});
