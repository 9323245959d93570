import type { Container, OfferDefinition, Resource } from '@azure/cosmos';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { raw } from '../support/raw.ts';
import { refusalOf, World } from '../support/world.ts';

type Offer = OfferDefinition & Resource;

let world: World;
beforeAll(async () => {
  world = await World.open();
  await world.container({ id: 'first' });
});
afterAll(() => world.end());

const offerOf = async (container: Container): Promise<Offer> => (await container.readOffer()).resource!;
const withThroughput = (offer: Offer, offerThroughput: number): Offer => ({
  ...offer,
  content: { ...offer.content!, offerThroughput },
});
const replace = (offer: Offer, initialHeaders: Record<string, string> = {}) =>
  world.client.offer(offer.id).replace(offer, { initialHeaders });

/** Creates something with headers that the client would not send. */
const create = (path: string, headers: Record<string, string>, body: object) =>
  raw(world.endpoint, 'POST', path, { headers, body: JSON.stringify(body) });

describe('the throughput of a container', () => {
  test('is 400 by default, and otherwise what was given at its creation', async () => {
    expect((await offerOf(await world.container())).content).toMatchObject({ offerThroughput: 400 });
    expect((await offerOf(await world.container({ throughput: 700 }))).content).toMatchObject({ offerThroughput: 700 });
    const scaled = await offerOf(await world.container({ maxThroughput: 4_000 }));
    expect(scaled.content).toMatchObject({ offerThroughput: 400, offerAutopilotSettings: { maxThroughput: 4_000 } });
  });

  test('is changed by replacing the offer, which is found by its id and its owner and keeps its link', async () => {
    const container = await world.container({ throughput: 400 });
    const before = await offerOf(container);
    const { resource: after, headers } = await replace(withThroughput(before, 1_200));
    expect(after).toMatchObject({ id: before.id, _self: before._self, content: { offerThroughput: 1_200 } });
    expect(after!._etag).not.toBe(before._etag);
    expect(headers).toMatchObject({ 'x-ms-cosmos-min-throughput': '400', 'x-ms-offer-replace-pending': 'false' });
    expect((await world.client.offer(before.id).read()).resource).toEqual(after);
    expect(await offerOf(container)).toEqual(after);
    const { resource } = await container.read();
    expect(after!.offerResourceId).toBe((resource as unknown as { _rid: string })._rid);
  });

  test('is not changed by an offer that has the rid of another, or none', async () => {
    const offer = await offerOf(await world.container({ throughput: 400 }));
    const other = await offerOf(await world.container());
    for (const names of [{ _rid: other._rid }, { _rid: 'InvalidRid' }, { id: null, _rid: null }]) {
      const named = { ...withThroughput(offer, 500), ...names };
      const answer = world.client.offer(offer.id).replace(named as unknown as Offer);
      expect((await refusalOf(answer)).code, JSON.stringify(names)).toBe(400);
    }
    expect((await world.client.offer(offer.id).read()).resource).toEqual(offer);
  });

  test('keeps an auto-upgrade policy, as it was given or replaced', async () => {
    const policy = (incrementPercent: number) => ({ throughputPolicy: { incrementPercent } });
    const container = await world.container({ id: 'growing', maxThroughput: 5_000, autoUpgradePolicy: policy(0) });
    const settings = async () => (await offerOf(world.of('growing'))).content!.offerAutopilotSettings;
    expect(await settings()).toEqual({ maxThroughput: 5_000, autoUpgradePolicy: policy(0) });
    const offer = await offerOf(container);
    const changed = (autoUpgradePolicy: unknown) => {
      const content = { ...offer.content, offerAutopilotSettings: { maxThroughput: 5_000, autoUpgradePolicy } };
      return replace({ ...offer, content } as unknown as Offer);
    };
    await changed(policy(20));
    await world.restart();
    expect(await settings()).toEqual({ maxThroughput: 5_000, autoUpgradePolicy: policy(20) });
    for (const bad of [policy(-1), policy(0.5), policy('2' as never), 2]) {
      expect((await refusalOf(changed(bad))).code).toBe(400);
    }
    await changed(undefined);
    expect(await settings()).toEqual({ maxThroughput: 5_000 });
  });

  test('is recorded with who changed it, and is the same after a restart', async () => {
    const container = await world.container({ id: 'kept', throughput: 400 });
    await replace(withThroughput(await offerOf(container), 900));
    await world.restart();
    expect((await offerOf(world.of('kept'))).content).toMatchObject({ offerThroughput: 900 });
    const facts = await world.store.containerHistory(world.store.container('shop', 'kept'));
    expect(facts.filter(({ type }) => type === 'ThroughputChanged')).toMatchObject([
      { actor: 'key:primary', data: { from: { kind: 'none' }, to: { kind: 'manual', requestUnitsPerSecond: 400 } } },
      {
        actor: 'key:primary',
        data: {
          from: { kind: 'manual', requestUnitsPerSecond: 400 },
          to: { kind: 'manual', requestUnitsPerSecond: 900 },
        },
      },
    ]);
  });

  test('becomes autoscale, and manual again, only by a migration', async () => {
    const manual = await offerOf(await world.container({ throughput: 1_100 }));
    const settings = { ...manual, content: { offerAutopilotSettings: { maxThroughput: 4_000 } } };
    expect((await refusalOf(replace(settings as unknown as Offer))).code).toBe(400);
    const toAutoscale = { 'x-ms-cosmos-migrate-offer-to-autopilot': 'true' };
    // The service chooses the maximum, and refuses one that comes with the migration.
    const refused = await refusalOf(replace(settings as unknown as Offer, toAutoscale));
    expect([refused.code, refused.message]).toEqual([
      400,
      expect.stringContaining('must not contain autopilotSettings'),
    ]);
    const { resource: scaled } = await replace(manual, toAutoscale);
    expect(scaled!.content).toMatchObject({ offerThroughput: 200, offerAutopilotSettings: { maxThroughput: 2_000 } });
    const { resource: back } = await replace(scaled!, { 'x-ms-cosmos-migrate-offer-to-manual-throughput': 'true' });
    expect(back!.content).toMatchObject({ offerThroughput: 2_000 });
    expect(back!.content).not.toHaveProperty('offerAutopilotSettings');
    const { resource: again } = await replace(back!, toAutoscale);
    // Migrating an offer that is autoscale already has no effect: it keeps its own maximum.
    expect((await replace(again!, toAutoscale)).resource!.content).toEqual(again!.content);
  });

  test.each([
    ['x-ms-offer-throughput', '300'],
    ['x-ms-offer-throughput', '450'],
    ['x-ms-offer-throughput', '-400'],
    ['x-ms-offer-throughput', '4e2'],
    ['x-ms-offer-throughput', 'many'],
    ['x-ms-offer-throughput', '1000100'],
    ['x-ms-cosmos-offer-autopilot-settings', '{"maxThroughput":1500}'],
    ['x-ms-cosmos-offer-autopilot-settings', '{"maxThroughput":400}'],
    ['x-ms-cosmos-offer-autopilot-settings', '{"maxThroughput":"4000"}'],
    ['x-ms-cosmos-offer-autopilot-settings', '{"maxThroughput":4000,"autoUpgradePolicy":2}'],
    ['x-ms-cosmos-offer-autopilot-settings', '{'],
    ['x-ms-cosmos-offer-autopilot-settings', '4000'],
  ])('can not be set by %s: %s', async (name, value) => {
    const head = await world.head();
    const body = { id: 'none', partitionKey: { paths: ['/customer'], kind: 'Hash' } };
    const answer = await create('/dbs/shop/colls', { [name]: value }, body);
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ code: 'BadRequest' });
    expect(await world.head()).toBe(head);
  });

  test('is manual or autoscale, not both', async () => {
    const headers = {
      'x-ms-offer-throughput': '400',
      'x-ms-cosmos-offer-autopilot-settings': '{"maxThroughput":1000}',
    };
    expect((await create('/dbs', headers, { id: 'both' })).status).toBe(400);
  });

  test('is unchanged after an invalid one was refused', async () => {
    const offer = await offerOf(await world.container({ throughput: 400 }));
    for (const amount of [0, 399, 450, 400.5, 2_000_000]) {
      expect((await refusalOf(replace(withThroughput(offer, amount)))).code).toBe(400);
    }
    for (const changed of [
      { content: undefined },
      { content: {} },
      { content: { offerThroughput: null } },
      { offerResourceId: 'another' },
    ]) {
      expect((await refusalOf(replace({ ...offer, ...changed } as never))).code, JSON.stringify(changed)).toBe(400);
    }
    expect((await create('/dbs', { 'x-ms-offer-throughput': '399' }, { id: 'too low' })).status).toBe(400);
    expect((await world.client.offer(offer.id).read()).resource).toEqual(offer);
  });
});

describe('an offer', () => {
  test('is not replaced by one with another id, and an unknown id is 404', async () => {
    const [one, other] = [await offerOf(await world.container()), await offerOf(await world.container())];
    expect((await refusalOf(world.client.offer(one.id).replace(other))).code).toBe(400);
    expect((await refusalOf(world.client.offer('none').replace(one))).code).toBe(404);
    expect((await refusalOf(world.client.offer('none').read())).code).toBe(404);
  });

  test('is replaced under its own etag only', async () => {
    const offer = await offerOf(await world.container({ throughput: 400 }));
    const guarded = (etag: string) => ({ accessCondition: { type: 'IfMatch', condition: etag } });
    const put = (amount: number, etag: string) =>
      world.client.offer(offer.id).replace(withThroughput(offer, amount), guarded(etag));
    const { resource } = await put(500, offer._etag);
    expect((await refusalOf(put(600, offer._etag))).code).toBe(412);
    expect((await put(600, resource!._etag)).resource!.content).toMatchObject({ offerThroughput: 600 });
  });

  test('tells the highest throughput that it had and the lowest that it may have, and is not sent to a client that has it', async () => {
    const offer = await offerOf(await world.container({ throughput: 600 }));
    const { resource: lowered, headers } = await replace(withThroughput(offer, 400));
    expect(headers['x-ms-cosmos-min-throughput']).toBe('400');
    expect(lowered!.content).toMatchObject({
      offerIsAutoScaleEnabled: false,
      offerMinimumThroughputParameters: { maxThroughputEverProvisioned: 600 },
    });
    const { id } = await offerOf(await world.container({ maxThroughput: 4_000 }));
    const autoscale = await world.client.offer(id).read();
    expect(autoscale.headers['x-ms-cosmos-min-throughput']).toBe('1000');
    expect(autoscale.resource!.content).toMatchObject({ offerIsAutoScaleEnabled: true });
    const get = (etag: string) =>
      raw(world.endpoint, 'GET', `/offers/${offer.id}`, { headers: { 'if-none-match': etag } });
    expect([(await get(lowered!._etag)).status, (await get(offer._etag)).status]).toEqual([304, 200]);
  });

  test('is deleted with its container', async () => {
    const container = await world.container({ throughput: 400 });
    const offer = await offerOf(container);
    await container.delete();
    expect((await refusalOf(world.client.offer(offer.id).read())).code).toBe(404);
    const { resources } = await world.client.offers.readAll().fetchAll();
    expect(resources.map(({ id }) => id)).not.toContain(offer.id);
  });

  test('is found by the query that the .NET clients send', async () => {
    const container = await world.container({ throughput: 500 });
    const offer = await offerOf(container);
    const { resources } = await world.client.offers
      .query({
        query: 'select * from root r where r.offerResourceId= @offerResourceId',
        parameters: [{ name: '@offerResourceId', value: offer.offerResourceId! }],
      })
      .fetchAll();
    expect(resources).toEqual([offer]);
  });
});

describe('the throughput of a database', () => {
  test('is shared by the containers without throughput of their own, which have no offers then', async () => {
    const { database } = await world.client.databases.create({ id: 'shared', throughput: 600 });
    const { container: sharing } = await database.containers.create({ id: 'sharing', partitionKey: '/pk' });
    const { container: own } = await database.containers.create({ id: 'own', partitionKey: '/pk', throughput: 700 });
    const { resource: offer } = await database.readOffer();
    expect(offer!.content).toMatchObject({ offerThroughput: 600 });
    expect((await offerOf(own)).content).toMatchObject({ offerThroughput: 700 });
    expect(await offerOf(sharing)).toBe(undefined);
    const { resource } = await replace(withThroughput(offer!, 800));
    expect(resource).toMatchObject({ _self: offer!._self, content: { offerThroughput: 800 } });
    await database.delete();
    expect((await refusalOf(world.client.offer(offer!.id).read())).code).toBe(404);
  });

  test('is none by default', async () => {
    expect((await world.client.database('shop').readOffer()).resource).toBe(undefined);
  });
});

test('a folder with a read model from before it had throughput opens, and has the throughput that is in the log', async () => {
  const container = await world.container({ id: 'older', throughput: 900 });
  await container.items.create({ id: 'a', customer: 'ann' });
  await world.stop();
  const database = new DatabaseSync(join(world.folder, 'items.v1.db'));
  database.exec(`UPDATE containers SET state = json_remove(state, '$.throughput', '$.highestThroughput');
    PRAGMA user_version = 1`);
  database.close();
  await world.start();
  expect((await offerOf(world.of('older'))).content).toMatchObject({ offerThroughput: 900 });
  expect((await world.of('older').item('a', 'ann').read()).resource).toMatchObject({ id: 'a' });
});
