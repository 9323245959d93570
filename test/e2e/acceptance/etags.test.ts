import type { Container, OperationInput, PatchOperation, RequestOptions } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { statusOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const total = (n: number) => ({ id: 'a', customer: 'ann', total: n });
const ifMatch = (condition: string): RequestOptions => ({ accessCondition: { type: 'IfMatch', condition } });
const ifNoneMatch = (condition: string): RequestOptions => ({ accessCondition: { type: 'IfNoneMatch', condition } });
const increment = [{ op: 'incr', path: '/total', value: 1 }] as const;

/** An item, with its present etag and its etag before that. */
async function written(): Promise<{ container: Container; etag: string; stale: string }> {
  const container = await world.container();
  const { etag: stale } = await container.items.create(total(1));
  const { etag } = await container.items.upsert(total(2));
  return { container, etag, stale };
}

describe('an etag', () => {
  test('is returned with every answer, equals the document’s _etag, and changes with every write', async () => {
    const container = await world.container();
    const item = container.item('a', 'ann');
    const etags: string[] = [];
    for (const write of [
      () => container.items.create(total(1)),
      () => container.items.upsert(total(1)),
      () => item.replace(total(1)),
      () => item.patch([...increment]),
    ]) {
      const { etag, resource } = await write();
      expect(resource!._etag).toBe(etag);
      expect(etag).toMatch(/^".+"$/);
      const read = await item.read();
      expect([read.etag, read.resource!._etag]).toEqual([etag, etag]);
      etags.push(etag);
    }
    expect(new Set(etags).size).toBe(4);
    await item.delete();
    const { etag } = await container.items.create(total(1));
    expect(etags).not.toContain(etag);
  });

  test('in If-None-Match makes a read answer 304 if nothing has changed', async () => {
    const { container, etag, stale } = await written();
    const target = `/dbs/shop/colls/${container.id}/docs/a`;
    const read = (condition: string) =>
      raw(world.endpoint, 'GET', target, { headers: { ...keyHeader('ann'), 'if-none-match': condition } });
    const json = 'application/json';
    expect(await read(etag)).toMatchObject({ status: 304, text: '', headers: { etag, 'content-type': json } });
    expect(await read(stale)).toMatchObject({ status: 200, json: { total: 2 } });
    expect((await container.item('a', 'ann').read(ifNoneMatch(etag))).statusCode).toBe(304);
    expect((await container.item('a', 'ann').read(ifNoneMatch(stale))).resource).toMatchObject({ total: 2 });
  });

  const writes: [string, (container: Container, options: RequestOptions) => Promise<{ statusCode: number }>, number][] =
    [
      ['replace', (container, options) => container.item('a', 'ann').replace(total(3), options), 200],
      ['upsert', (container, options) => container.items.upsert(total(3), options), 200],
      ['patch', (container, options) => container.item('a', 'ann').patch([...increment], options), 200],
      ['delete', (container, options) => container.item('a', 'ann').delete(options), 204],
    ];
  const changed: [string, (given: unknown) => string][] = [
    ['made weak', (given) => `W/${String(given)}`],
    ['named after gzip', (given) => String(given).replace(/"$/, '-gzip"')],
    ['named after Brotli', (given) => String(given).replace(/"$/, '-br"')],
    ['named after gzip, and made weak', (given) => `W/${String(given).replace(/"$/, '--gzip"')}`],
  ];
  test.each(changed)(
    'that a proxy has %s because it compressed the answer names the same version',
    async (_, alter) => {
      const { container, etag, stale } = await written();
      const coll = `/dbs/shop/colls/${container.id}`;
      const again = async (target: string, headers: Readonly<Record<string, string>> = {}) => {
        const first = await raw(world.endpoint, 'GET', target, { headers });
        const known = { ...headers, 'if-none-match': alter(first.headers['etag']) };
        return (await raw(world.endpoint, 'GET', target, { headers: known })).status;
      };
      const offers = (await raw(world.endpoint, 'GET', '/offers')).json?.['Offers'] as readonly {
        readonly id: string;
      }[];
      expect(await again(`${coll}/docs/a`, keyHeader('ann'))).toBe(304);
      expect(await again(`${coll}/docs`, { ...keyHeader('ann'), 'a-im': 'Incremental feed' })).toBe(304);
      for (const target of ['/dbs/shop', coll, `${coll}/pkranges`, `/offers/${offers[0]!.id}`]) {
        expect(await again(target), target).toBe(304);
      }
      const replace = (named: string) =>
        raw(world.endpoint, 'PUT', `${coll}/docs/a`, {
          headers: { ...keyHeader('ann'), 'if-match': named },
          body: JSON.stringify(total(3)),
        });
      expect((await replace(alter(stale))).status).toBe(412);
      const replaced = await replace(alter(etag));
      expect(replaced.status).toBe(200);
      const operations = [{ operationType: 'Delete', id: 'a', ifMatch: alter(replaced.headers['etag']) }] as const;
      const { result } = await container.items.batch([...operations], 'ann');
      expect(result).toMatchObject([{ statusCode: 204 }]);
    },
  );

  test.each(writes)('in If-Match allows a %s only while it is the present etag', async (_name, write, status) => {
    const { container, etag, stale } = await written();
    const history = await world.history(container.id, 'a');
    for (const wrong of [stale, '"nothing"', etag.slice(1, -1), '']) {
      if (wrong === '') continue;
      expect(await statusOf(write(container, ifMatch(wrong))), wrong).toBe(412);
    }
    expect(await world.history(container.id, 'a')).toEqual(history);
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ total: 2, _etag: etag });
    expect(await statusOf(write(container, ifMatch(etag)))).toBe(status);
    expect(await statusOf(write(container, ifMatch(etag)))).toBe(_name === 'delete' ? 404 : 412);
  });

  test('that is stale in If-Match is reported with 412 even if the patch does not fit the present document either', async () => {
    const { container, etag, stale } = await written();
    const item = container.item('a', 'ann');
    const taken: PatchOperation[] = [{ op: 'remove', path: '/removed/since' }];
    expect(await statusOf(item.patch(taken, ifMatch(stale)))).toBe(412);
    expect(await statusOf(item.patch(taken, ifMatch(etag)))).toBe(400);
    const operation = { operationType: 'Patch', id: 'a', resourceBody: { operations: taken }, ifMatch: stale } as const;
    expect((await container.items.batch([operation], 'ann')).result).toMatchObject([{ statusCode: 412 }]);
  });

  test('that does not match and a patch condition that is not fulfilled are both 412, with different substatus', async () => {
    const { container, stale } = await written();
    const unmet = { condition: 'FROM c WHERE c.total = 7', operations: [...increment] };
    const headers = keyHeader('ann');
    const send = (body: object, conditions: Readonly<Record<string, string>> = {}) =>
      raw(world.endpoint, 'PATCH', `/dbs/shop/colls/${container.id}/docs/a`, {
        headers: { ...headers, ...conditions },
        body: JSON.stringify(body),
      });
    const [byCondition, byEtag] = [await send(unmet), await send([...increment], { 'if-match': stale })];
    expect([byCondition.status, byCondition.headers['x-ms-substatus']]).toEqual([412, '1110']);
    expect([byEtag.status, byEtag.headers['x-ms-substatus']]).toEqual([412, undefined]);
    const operation = { operationType: 'Patch', id: 'a', resourceBody: unmet } as const;
    expect((await container.items.batch([operation], 'ann')).result).toMatchObject([
      { statusCode: 412, subStatusCode: 1110 },
    ]);
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ total: 2 });
  });

  test.each(writes)('of * in If-Match allows a %s if the item exists', async (_name, write, status) => {
    const { container } = await written();
    expect(await statusOf(write(container, ifMatch('*')))).toBe(status);
  });

  test.each(writes)(
    'in If-Match does not prevent an upsert of a missing item; other writes of one are 404: %s',
    async (name, write) => {
      const { container, etag } = await written();
      await container.item('a', 'ann').delete();
      for (const [other, condition] of [
        [container, etag],
        [await world.container(), '*'],
        [await world.container(), etag],
      ] as const) {
        const history = await world.history(other.id, 'a');
        expect(await statusOf(write(other, ifMatch(condition)))).toBe(name === 'upsert' ? 201 : 404);
        if (name !== 'upsert') expect(await world.history(other.id, 'a')).toEqual(history);
      }
    },
  );

  test('of * in If-None-Match turns an upsert into a create', async () => {
    const container = await world.container();
    expect(await statusOf(container.items.upsert(total(1), ifNoneMatch('*')))).toBe(201);
    expect(await statusOf(container.items.upsert(total(2), ifNoneMatch('*')))).toBe(412);
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ total: 1 });
  });

  // Source: https://learn.microsoft.com/dotnet/api/microsoft.azure.cosmos.requestoptions.ifnonematchetag: "If specified for writes (ex:
  // Create, Replace, Delete) will be ignored". An upsert that replaces is the exception.
  test.each(writes.filter(([name]) => name !== 'upsert'))(
    'in If-None-Match is ignored by a %s, as by the service',
    async (_name, write, status) => {
      for (const condition of [() => '*', (etag: string) => etag]) {
        const { container, etag } = await written();
        expect(await statusOf(write(container, ifNoneMatch(condition(etag))))).toBe(status);
      }
    },
  );

  test('in If-None-Match is ignored by replaces, patches and deletes in a batch, too', async () => {
    const { container } = await written();
    const { result } = await container.items.batch(
      [
        { operationType: 'Replace', id: 'a', ifNoneMatch: '*', resourceBody: total(3) },
        { operationType: 'Patch', id: 'a', ifNoneMatch: '*', resourceBody: { operations: [...increment] } },
        { operationType: 'Delete', id: 'a', ifNoneMatch: '*' },
      ] as unknown as OperationInput[],
      'ann',
    );
    expect(result).toMatchObject([{ statusCode: 200 }, { statusCode: 200 }, { statusCode: 204 }]);
  });

  test('of an earlier life of the id does not match the next one', async () => {
    const { container, etag } = await written();
    await container.item('a', 'ann').delete();
    await container.items.create(total(9));
    for (const [, write] of writes) expect(await statusOf(write(container, ifMatch(etag)))).toBe(412);
  });
});

describe('many clients at once', () => {
  test('of 16 replaces with the same etag exactly one wins', async () => {
    const { container, etag } = await written();
    const statuses = await Promise.all(
      Array.from({ length: 16 }, (_, n) => statusOf(container.item('a', 'ann').replace(total(n), ifMatch(etag)))),
    );
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(statuses.filter((status) => status === 412)).toHaveLength(15);
    const { resource } = await container.item('a', 'ann').read();
    expect(resource).toMatchObject({ total: statuses.indexOf(200) });
    expect(await world.history(container.id, 'a')).toHaveLength(3);
  });

  test('of 32 upserts of one item all are acknowledged, and history has each', async () => {
    const container = await world.container();
    const answers = await Promise.all(Array.from({ length: 32 }, (_, n) => container.items.upsert(total(n))));
    expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([...Array.from({ length: 31 }, () => 200), 201]);
    expect(new Set(answers.map(({ etag }) => etag)).size).toBe(32);
    const history = await world.history(container.id, 'a');
    expect(history.map(({ life, revision, type }) => [life, revision, type])).toEqual(
      Array.from({ length: 32 }, (_, revision) => [0, revision, 'ItemUpserted']),
    );
    const { resource, etag } = await container.item('a', 'ann').read();
    expect(answers.find((answer) => answer.etag === etag)!.resource).toMatchObject({ total: resource!['total'] });
    expect(new Set(answers.map((answer) => answer.resource!['_rid']))).toEqual(new Set([resource!['_rid']]));
  });

  test('of 16 creates of one id exactly one is 201', async () => {
    const container = await world.container();
    const statuses = await Promise.all(
      Array.from({ length: 16 }, (_, n) => statusOf(container.items.create(total(n)))),
    );
    expect(statuses.toSorted()).toEqual([201, ...Array.from({ length: 15 }, () => 409)]);
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ total: statuses.indexOf(201) });
    expect(await world.history(container.id, 'a')).toHaveLength(1);
  });

  test('of 16 creates at the instant at which the earlier item expires exactly one is 201', async () => {
    const container = await world.container({ defaultTtl: 10 });
    const { resource } = await container.items.create(total(-1));
    await world.advanceTo((resource!._ts + 10) * 1000);
    const statuses = await Promise.all(
      Array.from({ length: 16 }, (_, n) => statusOf(container.items.create(total(n)))),
    );
    expect(statuses.toSorted()).toEqual([201, ...Array.from({ length: 15 }, () => 409)]);
    expect((await world.history(container.id, 'a')).map(({ life, type }) => [life, type])).toEqual([
      [0, 'ItemUpserted'],
      [0, 'ItemExpired'],
      [1, 'ItemUpserted'],
    ]);
  });

  test('no increment of 32 patches is lost', async () => {
    const container = await world.container();
    await container.items.create(total(0));
    await Promise.all(Array.from({ length: 32 }, () => container.item('a', 'ann').patch([...increment])));
    expect((await container.item('a', 'ann').read()).resource).toMatchObject({ total: 32 });
  });

  test('of 16 deletes exactly one finds the item, and concurrent creates and deletes leave lives without gaps', async () => {
    const container = await world.container();
    await container.items.create(total(0));
    const statuses = await Promise.all(Array.from({ length: 16 }, () => statusOf(container.item('a', 'ann').delete())));
    expect(statuses.toSorted()).toEqual([204, ...Array.from({ length: 15 }, () => 404)]);
    const outcomes = await Promise.all(
      Array.from({ length: 40 }, (_, n) =>
        statusOf(n % 2 === 0 ? container.items.create(total(n)) : container.item('a', 'ann').delete()),
      ),
    );
    const created = outcomes.filter((status) => status === 201).length;
    const deleted = outcomes.filter((status) => status === 204).length;
    const there = (await container.item('a', 'ann').read()).statusCode === 200;
    expect(created - deleted).toBe(there ? 1 : 0);
    const history = await world.history(container.id, 'a');
    expect(history).toHaveLength(2 + created + deleted);
    expect(new Set(history.map(({ life }) => life))).toEqual(
      new Set(Array.from({ length: created + 1 }, (_, life) => life)),
    );
    expect(await world.fsck()).toEqual([]);
  });

  test('of 8 creates of a container, and of a database, exactly one is 201', async () => {
    const { database } = await world.client.databases.createIfNotExists({ id: 'shop' });
    const containers = Array.from({ length: 8 }, () =>
      statusOf(database.containers.create({ id: 'contended', partitionKey: '/customer' })),
    );
    expect((await Promise.all(containers)).toSorted()).toEqual([201, ...Array.from({ length: 7 }, () => 409)]);
    const databases = Array.from({ length: 8 }, () => statusOf(world.client.databases.create({ id: 'contended' })));
    expect((await Promise.all(databases)).toSorted()).toEqual([201, ...Array.from({ length: 7 }, () => 409)]);
  });
});
