import type { Container } from '@azure/cosmos';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  anyContainer,
  anyItem,
  anyPatch,
  MAX_TTL,
  refusalOf,
  seen,
  sightings,
  statusOf,
  World,
  type Fields,
} from '../support/world.ts';

interface Scenario {
  readonly table: string;
  readonly defaultTtl: number | null;
  readonly ttl: number | 'absent';
  readonly expiresAfter: number | null;
}

const { scenarios, refused } = JSON.parse(
  readFileSync(new URL('../../data/ttl-scenarios.json', import.meta.url), 'utf8'),
) as {
  readonly scenarios: readonly Scenario[];
  readonly refused: { readonly defaultTtl: readonly unknown[]; readonly ttl: readonly unknown[] };
};

const documented = (value: unknown) =>
  `The input ttl '${JSON.stringify(value)}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or '-1' which means never expire.`;

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

describe('the published scenarios', () => {
  const expiring = scenarios.filter(({ expiresAfter }) => expiresAfter !== null);
  const lasting = scenarios.filter(({ expiresAfter }) => expiresAfter === null);

  test('are 21, of which 9 expire', () => {
    expect(scenarios).toHaveLength(21);
    expect(expiring).toHaveLength(9);
  });

  const prepared = async ({
    defaultTtl,
    ttl,
  }: Scenario): Promise<{ container: Container; ts: number; item: Fields }> => {
    const container = await world.container(defaultTtl === null ? {} : { defaultTtl });
    const item = { customer: 'ann', ...(ttl === 'absent' ? {} : { ttl }) };
    const { resource } = await container.items.create({ id: 'a', ...item });
    await container.items.create({ id: 'b', ...item });
    expect(resource!._ts).toBe(Math.floor((await world.now()) / 1000));
    return { container, ts: resource!._ts, item };
  };
  const named = ({ table, defaultTtl, ttl, expiresAfter }: Scenario) =>
    `${table}: defaultTtl ${defaultTtl ?? 'off'} and ttl ${ttl}: ${expiresAfter === null ? 'never' : `${expiresAfter} s`}`;

  test.each(expiring.map((scenario) => [named(scenario), scenario] as const))('%s', async (_name, scenario) => {
    const { container, ts, item } = await prepared(scenario);
    const deadlineMs = (ts + scenario.expiresAfter!) * 1000;
    await world.advanceTo(deadlineMs - 1);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
    expect(await statusOf(container.items.create({ id: 'a', ...item }))).toBe(409);

    await world.advance(1);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen());
    expect(await statusOf(container.items.create({ id: 'a', ...item }))).toBe(201);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a'));

    await world.advance(1);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a'));
    expect(await statusOf(container.items.create({ id: 'b', ...item }))).toBe(201);
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
    await world.purge();
    expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
    expect(await world.explain(container.id, 'a', deadlineMs - 1)).toMatchObject({ state: 'live', life: 0 });
    expect(await world.explain(container.id, 'b', deadlineMs)).toMatchObject({ state: 'expired', life: 0 });
  });

  test('and the items of all other scenarios never expire', async () => {
    const kept = await Promise.all(lasting.map(async (scenario) => ({ ...(await prepared(scenario)), scenario })));
    const startMs = kept[0]!.ts * 1000;
    const edges = new Set(
      lasting.flatMap(({ defaultTtl, ttl }) => [defaultTtl, ttl]).filter((n) => typeof n === 'number' && n > 0),
    ) as Set<number>;
    for (const seconds of [...edges, MAX_TTL].sort((left, right) => left - right)) {
      for (const offset of [-1, 0, 1]) {
        await world.advanceTo(startMs + seconds * 1000 + offset);
        for (const { container, scenario } of kept) {
          const reads = await Promise.all(['a', 'b'].map((id) => container.item(id, 'ann').read()));
          expect(
            reads.map(({ statusCode }) => statusCode),
            named(scenario),
          ).toEqual([200, 200]);
        }
      }
    }
    await world.purge();
    for (const { container, item } of kept) {
      expect(await sightings(container, ['a', 'b'])).toEqual(seen('a', 'b'));
      expect(await statusOf(container.items.create({ id: 'a', ...item }))).toBe(409);
      expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'live' });
    }
    expect(await world.fsck()).toEqual([]);
  });
});

describe('an invalid default ttl', () => {
  test.each(refused.defaultTtl.map((value) => [JSON.stringify(value), value] as const))(
    'is refused for %s, at creation and replacement, and leaves nothing on record',
    async (_name, defaultTtl) => {
      const container = await world.container({ defaultTtl: 10 });
      const before = { head: await world.head(), history: await world.containerHistory(container.id) };
      const { containers } = world.client.database('shop');
      const body = { partitionKey: { paths: ['/customer'] }, defaultTtl };
      for (const call of [
        () => containers.create(anyContainer({ id: 'never-made', ...body })),
        () =>
          container.replace({ ...anyContainer({ ...body }), id: container.id } as Parameters<Container['replace']>[0]),
      ]) {
        const { code, message } = await refusalOf(call());
        expect(code).toBe(400);
        expect(JSON.parse(/Message: (\{.*\})/.exec(message)![1]!)).toEqual({ Errors: [documented(defaultTtl)] });
      }
      expect({ head: await world.head(), history: await world.containerHistory(container.id) }).toEqual(before);
      expect((await container.read()).resource).toMatchObject({ defaultTtl: 10 });
      expect(await statusOf(containers.createIfNotExists({ id: 'never-made-either' }))).toBe(201);
      await world.of('never-made-either').delete();
      expect(await statusOf(world.of('never-made').read())).toBe(404);
    },
  );
});

describe('an invalid ttl of an item', () => {
  test.each(refused.ttl.map((value) => [JSON.stringify(value), value] as const))(
    'is refused for %s by every write while time to live is on, and leaves nothing on record',
    async (_name, ttl) => {
      for (const defaultTtl of [-1, 10]) {
        const container = await world.container({ defaultTtl });
        const { resource } = await container.items.create({ id: 'a', customer: 'ann', n: 1 });
        const state = async () => ({
          head: await world.head(),
          history: await world.history(container.id, 'a'),
          containerHistory: await world.containerHistory(container.id),
          read: (await container.item('a', 'ann').read()).resource,
        });
        const before = await state();
        const item = container.item('a', 'ann');
        for (const call of [
          () => container.items.create(anyItem({ id: 'new', customer: 'ann', ttl })),
          () => container.items.upsert(anyItem({ id: 'new', customer: 'ann', ttl })),
          () => container.items.upsert(anyItem({ id: 'a', customer: 'ann', ttl })),
          () => item.replace(anyItem({ id: 'a', customer: 'ann', ttl })),
          () => item.patch(anyPatch([{ op: 'set', path: '/ttl', value: ttl }])),
        ]) {
          const { code, message } = await refusalOf(call());
          expect(code).toBe(400);
          expect(JSON.parse(/Message: (\{.*\})/.exec(message)![1]!)).toEqual({ Errors: [documented(ttl)] });
        }
        expect(await state()).toEqual(before);
        expect(before.read).toEqual(resource);
        expect(await world.history(container.id, 'new')).toEqual([]);
        expect(await world.explain(container.id, 'new')).toMatchObject({ state: 'never-existed' });
      }
    },
  );

  test.each(refused.ttl.map((value) => [JSON.stringify(value), value] as const))(
    'is an ordinary property for %s while time to live is off, and counts as absent when it is turned on',
    async (_name, ttl) => {
      const container = await world.container();
      const { resource } = await container.items.create(anyItem({ id: 'a', customer: 'ann', ttl }));
      expect(resource).toMatchObject({ ttl });
      await world.advance(5_000);
      await world.setTtl(container.id, 10);
      expect(await sightings(container, ['a'])).toEqual(seen('a'));
      await world.advanceTo((resource!._ts + 10) * 1000 - 1);
      expect((await container.item('a', 'ann').read()).resource).toMatchObject({ ttl });
      await world.advance(1);
      expect(await sightings(container, ['a'])).toEqual(seen());
      expect(await world.explain(container.id, 'a')).toMatchObject({ state: 'expired', rule: 'container-default' });
    },
  );
});
