import { expect, test } from 'vitest';
import { call, shop, testServer } from './support/client.ts';

const THROUGHPUT = { 'x-ms-offer-throughput': '12000' };

test('the ranges of a container are listed with their parents and their share', async () => {
  const app = await shop();
  const partitionKey = { paths: ['/a'], kind: 'Hash', version: 2 };
  const { json: container } = await call(app, 'POST', '/dbs/shop/colls', {
    body: { id: 'wide', partitionKey },
    headers: THROUGHPUT,
  });
  const { json, headers } = await call(app, 'GET', '/dbs/shop/colls/wide/pkranges');
  const half = '20000000000000000000000000000000';
  const common = {
    _rid: container['_rid'],
    _etag: headers['etag'],
    throughputFraction: 0.5,
    status: 'online',
    parents: ['0'],
    _ts: container['_ts'],
  };
  const self = (id: string) => `${String(container['_self'])}pkranges/${id}/`;
  expect(json).toEqual({
    _rid: container['_rid'],
    PartitionKeyRanges: [
      { ...common, id: '1', minInclusive: '', maxExclusive: half, ridPrefix: 1, _self: self('1') },
      { ...common, id: '2', minInclusive: half, maxExclusive: 'FF', ridPrefix: 2, _self: self('2') },
    ],
    _count: 2,
  });
  expect(headers['x-ms-item-count']).toBe('2');
  // An answer names its range: the first one for the container, the last one for a scope that nothing can be in.
  const named = async (target: string, scope: Readonly<Record<string, string>> = {}) =>
    (await call(app, 'GET', target, { headers: scope })).headers['x-ms-documentdb-partitionkeyrangeid'];
  expect(await named('/dbs/shop/colls/wide')).toBe('1');
  expect(await named('/dbs/shop/colls/wide/docs', { 'x-ms-start-epk': 'FF', 'x-ms-end-epk': 'FF' })).toBe('2');
});

test('the ranges of a container come in one page, whatever page size is requested, so that no split comes between two pages', async () => {
  const app = await shop();
  const body = { id: 'wide', partitionKey: { paths: ['/a'], kind: 'Hash', version: 2 } };
  await call(app, 'POST', '/dbs/shop/colls', { body, headers: THROUGHPUT });
  const { json, headers } = await call(app, 'GET', '/dbs/shop/colls/wide/pkranges', {
    headers: { 'x-ms-max-item-count': '1' },
  });
  expect(json).toMatchObject({ PartitionKeyRanges: [{ id: '1' }, { id: '2' }], _count: 2 });
  expect(headers).not.toHaveProperty('x-ms-continuation');
});

test('the ranges of a container that was created again differ from those that a client knows', async () => {
  const app = await shop();
  const ranges = (known: string) =>
    call(app, 'GET', '/dbs/shop/colls/orders/pkranges', { headers: { 'if-none-match': known } });
  const etag = String((await ranges('none')).headers['etag']);
  expect((await ranges(etag)).status).toBe(304);
  await call(app, 'DELETE', '/dbs/shop/colls/orders');
  await call(app, 'POST', '/dbs/shop/colls', { body: { id: 'orders', partitionKey: { paths: ['/customer'] } } });
  expect((await ranges(etag)).status).toBe(200);
});

test('reading the ranges of a missing container fails', async () => {
  const target = '/dbs/shop/colls/orders/pkranges';
  expect((await call(await shop(), 'POST', target, { body: {} })).status).toBe(405);
  const gone = await call(testServer(), 'GET', target);
  expect({ status: gone.status, substatus: gone.headers['x-ms-substatus'] }).toEqual({
    status: 404,
    substatus: '1003',
  });
});
