import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AUDITOR_KEY, openWorld, ORDERS, READ_ONLY_KEY, START_MS, WRITER, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld(-1);
  await world.store.advanceClock(10_000);
  for (let number = 0; number < 10; number++) {
    await world.write(`plain-${number}`);
    await world.store.advanceClock(10_000);
  }
  await world.write('soon', { ttl: 7_200 });
  await world.write('kept', { ttl: -1 });
});
afterEach(() => world.close());

const preview = async (body: unknown) =>
  (await world.ask('POST', `${ORDERS}/ttl/preview`, { body, key: READ_ONLY_KEY })).json<Record<string, unknown>>();
const changeTtl = (body: unknown) => world.ask('PUT', `${ORDERS}/ttl`, { body });
const listed = async () =>
  (await world.store.listItems(world.store.container('shop', 'orders'), { maxItemCount: 100 })).items.map(
    ({ id }) => id,
  );

async function writeOf(customer: string, id: string): Promise<void> {
  const document = { id, customer };
  await world.store.writeItem(WRITER, world.store.container('shop', 'orders'), 'upsert', {
    id,
    partitionKey: JSON.stringify([customer]),
    document,
    json: JSON.stringify(document),
  });
}

async function hold(id: string, scope: object): Promise<void> {
  const response = await world.ask('PUT', `${ORDERS}/holds/${encodeURIComponent(id)}`, {
    body: { ...scope, reason: 'a case' },
  });
  expect(response.statusCode).toBe(201);
}

describe('the preview of a TTL policy', () => {
  test.each([
    [80, 0],
    [81, 1],
    [100, 2],
  ])('with a floor of %i s tells how many items’ content it keeps after the grace: %i', async (seconds, kept) => {
    await world.ask('PUT', `${ORDERS}/policy-grace`, { body: { seconds: 20 } });
    await world.ask('PUT', `${ORDERS}/retention-floor`, { body: { seconds, reason: 'tax law' } });
    expect(await preview({ defaultTtl: 55 })).toMatchObject({
      atOnce: { items: 5, erasedFrom: '2026-11-21T10:02:10.000Z' },
      kept: { floorSeconds: seconds, byFloor: kept },
    });
    await changeTtl({ defaultTtl: 55 });
    await world.store.runPurge();
    expect(await world.store.purgeStatus()).toMatchObject({ inGrace: 5 });
    // The change has advanced the clock by a millisecond.
    await world.store.advanceClock(Date.UTC(2026, 10, 21, 10, 2, 10, 1) - world.store.nowMs());
    await world.store.runPurge();
    const orders = world.store.container('shop', 'orders');
    const states = [0, 1, 2, 3, 4].map(
      async (number) => (await world.store.explain(orders, `plain-${number}`, '["ann"]')).state,
    );
    expect((await Promise.all(states)).filter((state) => state === 'expired')).toHaveLength(kept);
  });

  test('counts what would expire at once, later and never, and changes nothing', async () => {
    expect(await preview({ defaultTtl: 55 })).toMatchObject({
      from: -1,
      to: 55,
      effectiveFrom: '2026-11-21T10:01:50.000Z',
      items: 12,
      atOnce: {
        items: 5,
        oldest: '2026-11-21T10:00:10.000Z',
        erasedFrom: '2026-11-22T10:01:50.000Z',
        sample: [0, 1, 2, 3, 4].map((number) => ({ id: `plain-${number}`, partitionKey: ['ann'], ttl: null })),
      },
      never: 1,
      inertTtls: 0,
      unreadableTtls: 0,
    });
    const { later } = (await preview({ defaultTtl: 55 })) as { later: { withinSeconds: number; items: number }[] };
    expect(later.filter(({ items }) => items > 0)).toEqual([
      { withinSeconds: 3_600, until: '2026-11-21T11:01:50.000Z', items: 5 },
      { withinSeconds: 86_400, until: '2026-11-22T10:01:50.000Z', items: 1 },
    ]);
    expect(await listed()).toHaveLength(12);
  });

  test('predicts what the change then does', async () => {
    const { atOnce } = (await preview({ defaultTtl: 55 })) as { atOnce: { items: number } };
    expect((await changeTtl({ defaultTtl: 55 })).statusCode).toBe(200);
    expect(await listed()).toHaveLength(12 - atOnce.items);
  });

  test('of a later time does not count items that would have expired by then anyway', async () => {
    expect((await changeTtl({ defaultTtl: 100 })).statusCode).toBe(200);
    // By 10:02:31 the default of 100 s has expired plain-0 to plain-4. A default of 85 s would expire plain-5 with them.
    expect(await preview({ defaultTtl: 85, effectiveFrom: '2026-11-21T10:02:31Z' })).toMatchObject({
      items: 7,
      atOnce: { items: 1 },
    });
  });

  test('of the second at which items would have expired anyway predicts what the change then does with them', async () => {
    await changeTtl({ defaultTtl: 100 });
    // By the default of 100 s plain-4 would expire at this instant, but that default is no longer in force then.
    const effectiveFrom = '2026-11-21T10:02:30Z';
    const longer = await preview({ defaultTtl: 200, effectiveFrom });
    expect(longer).toMatchObject({ items: 8, atOnce: { items: 0 } });
    const shorter = await preview({ defaultTtl: 85, effectiveFrom });
    expect(shorter).toMatchObject({ items: 8, atOnce: { items: 2, sample: [{ id: 'plain-4' }, { id: 'plain-5' }] } });
    await world.ask('PUT', `${ORDERS}/ttl/brake`, { body: { maxItems: 1 } });
    expect((await changeTtl({ defaultTtl: 85, effectiveFrom })).json()).toMatchObject({
      code: 'ttl-change-braked',
      detail: expect.stringContaining('2 of 8 items') as string,
    });
    expect((await changeTtl({ defaultTtl: 200, effectiveFrom })).statusCode).toBe(200);
    await world.store.advanceClock(Date.parse(effectiveFrom) - world.store.nowMs());
    expect(await listed()).toHaveLength(8);
  });

  test('tells how many items have a ttl without effect, and how many an invalid one', async () => {
    expect((await changeTtl({ defaultTtl: null })).statusCode).toBe(200);
    await world.write('odd', { ttl: 'a week' });
    expect(await preview({ defaultTtl: null })).toMatchObject({ inertTtls: 2, unreadableTtls: 1 });
    expect(await preview({ defaultTtl: -1 })).toMatchObject({ inertTtls: 0, unreadableTtls: 1 });
    await changeTtl({ defaultTtl: 5 });
    expect(await preview({ defaultTtl: -1 })).toMatchObject({ items: 3, unreadableTtls: 1 });
    await world.store.advanceClock(5_000);
    // The item has expired, whether or not that is recorded yet.
    expect(await preview({ defaultTtl: -1 })).toMatchObject({ items: 2, unreadableTtls: 0 });
  });

  test('counts the items that holds will keep, as the purge then does', async () => {
    const many = 1_100;
    await world.ask('PUT', `${ORDERS}/policy-grace`, { body: { seconds: 0 } });
    for (let number = 0; number < many; number++) await writeOf(`customer ${number % 100}`, `many-${number}`);
    await world.store.advanceClock(10_000);
    await hold('of-items', {
      items: [
        ...['plain-0', 'never-there', 'kept'].map((id) => ({ id, partitionKey: ['ann'] })),
        { id: 'many-7', partitionKey: ['customer 7'] },
      ],
    });
    await hold('of-a-query', { query: { query: "SELECT * FROM c WHERE c.customer = 'customer 9'" } });
    await hold('of-a-partition', { partitionKey: ['customer 9'] });
    await hold('of-another', { partitionKey: ['customer 11'] });
    await hold('of-nobody', { partitionKey: ['nobody'] });
    // The items are looked up by the names in the holds, of which there are few.
    const kept = 2 + many / 100 + many / 100;
    expect(await preview({ defaultTtl: 5 })).toMatchObject({
      atOnce: { items: many + 10 },
      kept: { byHolds: { atLeast: kept, atMost: kept } },
    });
    await changeTtl({ defaultTtl: 5 });
    expect((await world.ask('POST', '/purge/run')).json()).toMatchObject({ heldBack: kept, purged: many + 10 - kept });
  });

  test('gives a lower and an upper bound of the items that holds keep if they are too many to examine', async () => {
    for (let number = 0; number < 1_100; number++) await world.write(`many-${number}`);
    await world.store.advanceClock(10_000);
    await hold('of-a-partition', { partitionKey: ['ann'] });
    const { atOnce, kept } = (await preview({ defaultTtl: 5 })) as {
      atOnce: { items: number };
      kept: { byHolds: { atLeast: number; atMost: number } };
    };
    expect(atOnce.items).toBe(1_110);
    expect(kept.byHolds.atLeast).toBeGreaterThan(400);
    expect(kept.byHolds.atMost).toBe(1_110);
    await hold('of-all', { container: true });
    expect(await preview({ defaultTtl: 5 })).toMatchObject({ kept: { byHolds: { atLeast: 1_110, atMost: 1_110 } } });
  });

  test('describes the scope of a hold in the same words as the list of holds', async () => {
    await hold('a', { container: true });
    await hold('b', { partitionKey: ['ann'] });
    await hold('c', { items: [{ id: 'i', partitionKey: ['ann'] }] });
    await hold('d', { query: { query: 'SELECT * FROM c' } });
    const { kept } = (await preview({ defaultTtl: 5 })) as { kept: { holds: { holdId: string; scope: string }[] } };
    const { holds } = (await world.get(`${ORDERS}/holds`)) as { holds: { id: string; scope: string }[] };
    expect(kept.holds.toSorted((left, right) => left.holdId.localeCompare(right.holdId))).toEqual(
      holds.map(({ id, scope }) => ({ holdId: id, scope })),
    );
  });

  test('names some of the holds if there are many, and tells how many more there are', async () => {
    await Promise.all(Array.from({ length: 100 }, (_, number) => hold(`h-${number}`, { container: true })));
    const keptBy = async () => ((await preview({ defaultTtl: 5 })) as { kept: { holds: unknown[] } }).kept;
    const all = await keptBy();
    expect(all.holds).toHaveLength(100);
    expect(all).not.toHaveProperty('moreHolds');
    await hold('h-100', { container: true });
    await hold('h-101', { container: true });
    expect(await keptBy()).toMatchObject({ holds: { length: 100 }, moreHolds: 2 });
  });

  test('refuses an invalid policy and a key that may only see history', async () => {
    for (const body of [{}, { defaultTtl: 0 }, { defaultTtl: '55' }, { defaultTtl: 55, effectiveFrom: 'soon' }]) {
      expect((await world.ask('POST', `${ORDERS}/ttl/preview`, { body })).json()).toMatchObject({
        code: 'bad-request',
      });
    }
    const past = { defaultTtl: 55, effectiveFrom: '2026-11-21T09:00:00Z' };
    expect((await world.ask('POST', `${ORDERS}/ttl/preview`, { body: past })).json()).toMatchObject({
      detail: expect.stringContaining("can't take effect in the past") as string,
    });
    const audited = await world.ask('POST', `${ORDERS}/ttl/preview`, { body: { defaultTtl: 5 }, key: AUDITOR_KEY });
    expect(audited.statusCode).toBe(403);
  });
});

describe('the policies of a container', () => {
  test('are listed in pages if a limit is given', async () => {
    for (const seconds of [10, 20, 30, 40, 50]) {
      await changeTtl({ defaultTtl: seconds });
      await world.store.advanceClock(1_000);
    }
    interface Policies {
      readonly current: { readonly defaultTtl: number };
      readonly past: readonly { readonly version: number }[];
      readonly continuation?: string;
    }
    const versions = ({ past }: Policies): number[] => past.map(({ version }) => version);
    const pages: number[][] = [];
    for (let more = ''; pages.length < 9;) {
      const page = (await world.get(`${ORDERS}/ttl?limit=2${more}`)) as unknown as Policies;
      expect(page.current.defaultTtl).toBe(50);
      pages.push(versions(page));
      if (page.continuation === undefined) break;
      more = `&continuation=${page.continuation}`;
    }
    expect(pages).toEqual([[1, 2], [3, 4], [5]]);
    const all = (await world.get(`${ORDERS}/ttl`)) as unknown as Policies;
    expect(versions(all)).toEqual([1, 2, 3, 4, 5]);
    expect(all).not.toHaveProperty('continuation');
  });

  test('in the answer to a change are at most the last hundred past ones', async () => {
    let last = await changeTtl({ defaultTtl: 1_000 });
    for (let seconds = 1; seconds <= 110; seconds++) {
      await world.store.advanceClock(1_000);
      last = await changeTtl({ defaultTtl: 1_000 + seconds });
    }
    const versions = ({ past }: { readonly past: readonly { readonly version: number }[] }) =>
      past.map(({ version }) => version);
    const hundred = Array.from({ length: 100 }, (_, index) => 12 + index);
    expect(versions(last.json())).toEqual(hundred);
    const braked = await world.ask('PUT', `${ORDERS}/ttl/brake`, { body: { maxItems: 3, reason: 'r' } });
    expect(versions(braked.json())).toEqual(hundred);
    expect(versions((await world.get(`${ORDERS}/ttl`)) as never)).toHaveLength(111);
  });
});

describe('the brake', () => {
  const setBrake = (body: unknown) => world.ask('PUT', `${ORDERS}/ttl/brake`, { body });

  test('refuses a change above it with the count, until somebody confirms with a reason; all of it is recorded', async () => {
    expect((await setBrake({ maxItems: 3, reason: 'never again' })).json()).toMatchObject({ brake: { maxItems: 3 } });
    const refused = await changeTtl({ defaultTtl: 55 });
    expect(refused.statusCode).toBe(412);
    expect(refused.json()).toMatchObject({
      code: 'ttl-change-braked',
      detail: expect.stringContaining('5 of 12 items'),
    });
    expect(await listed()).toHaveLength(12);
    expect((await changeTtl({ defaultTtl: 55, confirm: true })).json()).toMatchObject({ code: 'bad-request' });
    const confirmed = await changeTtl({ defaultTtl: 55, confirm: true, reason: 'ticket 4711' });
    expect(confirmed.json()).toMatchObject({
      current: { version: 2, defaultTtl: 55, setBy: 'key:primary', reason: 'ticket 4711' },
      past: [{ version: 1, defaultTtl: -1 }],
    });
    const { events } = (await world.get(`${ORDERS}/history`)) as { events: { type: string; data: unknown }[] };
    expect(events.slice(1)).toMatchObject([
      { type: 'TtlBrakeChanged', data: { from: null, to: { maxItems: 3 }, reason: 'never again' } },
      {
        type: 'ContainerTtlChanged',
        data: { confirmed: true, reason: 'ticket 4711', expiringAtOnce: { items: 5, of: 12 } },
      },
    ]);
  });

  test('also refuses a client’s replacement of the container, which can’t confirm', async () => {
    await setBrake({ maxItems: 3 });
    const { definition } = world.store.container('shop', 'orders');
    const replace = (defaultTtl: number) =>
      world.store.replaceContainer(WRITER, 'shop', 'orders', definition, defaultTtl);
    await expect(replace(55)).rejects.toMatchObject({ code: 'ttl-change-braked' });
    expect(await listed()).toHaveLength(12);
    // The items of 10:00:10 to 10:00:30, of those up to 10:01:50.
    await replace(75);
    expect(await listed()).toHaveLength(9);
  });

  test('can be a share of the items; a body without limits removes it', async () => {
    expect((await setBrake({ maxShare: 0.2 })).statusCode).toBe(200);
    expect((await changeTtl({ defaultTtl: 55 })).statusCode).toBe(412);
    await setBrake({ maxShare: 0.07, maxItems: 2 });
    expect((await changeTtl({ defaultTtl: 55 })).json()).toMatchObject({
      detail: expect.stringContaining('at most 2 and 7 % of them. To make the change anyway, confirm it') as string,
    });
    expect((await setBrake({})).json()).toMatchObject({ brake: null });
    expect((await changeTtl({ defaultTtl: 55 })).statusCode).toBe(200);
  });
});

describe('a scheduled TTL change', () => {
  const LATER = '2026-11-21T12:00:00.000Z';

  test('takes effect at its time and not before; until then it is shown, and no other change is accepted', async () => {
    const answer = await changeTtl({ defaultTtl: 55, effectiveFrom: LATER, reason: 'from noon on' });
    expect(answer.json()).toMatchObject({
      current: { version: 1, defaultTtl: -1 },
      scheduled: { version: 2, defaultTtl: 55, from: LATER, reason: 'from noon on' },
    });
    expect((await changeTtl({ defaultTtl: 5 })).json()).toMatchObject({
      code: 'ttl-change-scheduled',
      detail: expect.stringContaining('Withdraw it first: epitaph ttl … --withdraw, or DELETE /_epitaph/dbs/…'),
    });
    await world.store.advanceClock(Date.parse(LATER) - 1 - world.store.nowMs());
    expect(await listed()).toHaveLength(12);
    await world.store.advanceClock(1);
    // "soon" has a ttl of two hours, from 10:01:50 on.
    expect(await listed()).toEqual(['soon', 'kept']);
    expect(await world.get(`${ORDERS}/ttl`)).toMatchObject({
      current: { version: 2 },
      scheduled: null,
      past: [{ version: 1 }],
    });
  });

  test('that is withdrawn in time never takes effect, and both facts stay recorded', async () => {
    await changeTtl({ defaultTtl: 55, effectiveFrom: LATER });
    const withdrawn = await world.ask('DELETE', `${ORDERS}/ttl/scheduled`, { body: { reason: 'too early' } });
    expect(withdrawn.json()).toMatchObject({ current: { version: 1 }, scheduled: null });
    expect((await world.ask('DELETE', `${ORDERS}/ttl/scheduled`)).json()).toMatchObject({
      status: 404,
      code: 'no-ttl-change-scheduled',
    });
    await world.store.advanceClock(3 * 3_600_000);
    expect(await listed()).toHaveLength(11);
    expect((await changeTtl({ defaultTtl: 86_400 })).json()).toMatchObject({ current: { version: 3 } });
    expect((await world.store.fsck()).ok).toBe(true);
  });

  test.each(['container', 'database'])('whose %s is deleted before its time never takes effect', async (what) => {
    await changeTtl({ defaultTtl: 55, effectiveFrom: LATER });
    const { rid } = world.store.container('shop', 'orders');
    const deletedAt = new Date(world.store.nowMs()).toISOString();
    if (what === 'container') await world.store.deleteContainer(WRITER, 'shop', 'orders');
    else await world.store.deleteDatabase(WRITER, 'shop');
    await world.store.advanceClock(3 * 3_600_000);
    const of = `rid=${encodeURIComponent(rid)}`;
    expect(await world.get(`${ORDERS}/ttl?${of}`)).toMatchObject({
      container: { deletedAt },
      current: { version: 1 },
      scheduled: { version: 2, from: LATER },
      past: [],
    });
    const body = { seconds: 5, reason: 'tax law' };
    expect((await world.ask('PUT', `${ORDERS}/retention-floor?${of}`, { body })).json()).toMatchObject({
      container: { deletedAt },
      floorSeconds: 5,
    });
  });

  test('is refused for a past time', async () => {
    const past = await changeTtl({ defaultTtl: 55, effectiveFrom: new Date(START_MS).toISOString() });
    expect(past.json()).toMatchObject({
      code: 'bad-request',
      detail: expect.stringContaining("can't take effect in the past"),
    });
  });
});
