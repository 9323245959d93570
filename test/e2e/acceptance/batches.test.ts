import { crc32 } from 'node:zlib';
import { BulkOperationType, type Container, type OperationInput, type OperationResponse } from '@azure/cosmos';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyHeader, raw } from '../support/raw.ts';
import { CALLER, refusalOf, World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await World.open();
});
afterAll(() => world.end());

const { Create, Upsert, Read, Delete, Replace, Patch } = BulkOperationType;
const doc = (id: string, total = 1, more: object = {}) => ({ id, customer: 'ann', total, ...more });

async function batch(container: Container, operations: OperationInput[]): Promise<readonly OperationResponse[]> {
  return (await container.items.batch(operations, 'ann')).result!;
}

const MINIMAL = { prefer: 'return=minimal' };

/** Sends a bulk request as it is on the wire. It continues after operations that fail. */
const sendBulk = (
  container: Container,
  operations: readonly object[],
  headers: Readonly<Record<string, string>> = {},
) =>
  raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
    headers: {
      'x-ms-cosmos-is-batch-request': 'true',
      'x-ms-cosmos-batch-atomic': 'false',
      'x-ms-cosmos-batch-continue-on-error': 'true',
      ...headers,
    },
    body: JSON.stringify(operations),
  });

const codes = (results: readonly OperationResponse[]) => results.map(({ statusCode }) => statusCode);
const ids = async (container: Container) =>
  (await container.items.query<string>('SELECT VALUE c.id FROM c ORDER BY c.id').fetchAll()).resources;

describe('a transactional batch', () => {
  test('does all of its operations in order, each seeing those before it', async () => {
    const container = await world.container();
    await container.items.create(doc('old'));
    const results = await batch(container, [
      { operationType: Create, resourceBody: doc('new') },
      { operationType: Read, id: 'new' },
      { operationType: Replace, id: 'old', resourceBody: doc('old', 5) },
      { operationType: Patch, id: 'old', resourceBody: [{ op: 'incr', path: '/total', value: 10 }] },
      { operationType: Upsert, resourceBody: doc('up') },
      { operationType: Upsert, resourceBody: doc('up', 2) },
      { operationType: Read, id: 'old' },
      { operationType: Delete, id: 'new' },
      { operationType: Create, resourceBody: doc('new', 9) },
    ]);
    expect(codes(results)).toEqual([201, 200, 200, 200, 201, 200, 200, 204, 201]);
    expect(results[1]!.resourceBody).toMatchObject({ id: 'new', total: 1, _etag: results[0]!.eTag });
    expect(results[3]!.resourceBody).toMatchObject({ total: 15 });
    expect(results[6]!.resourceBody).toEqual(results[3]!.resourceBody);
    expect(results[7]!.resourceBody).toBeUndefined();
    expect(new Set(results.flatMap(({ eTag }) => eTag ?? [])).size).toBe(6);
    expect(results.every(({ requestCharge }) => requestCharge > 0)).toBe(true);
    for (const [id, at] of [
      ['old', 3],
      ['up', 5],
      ['new', 8],
    ] as const) {
      const { resource, etag } = await container.item(id, 'ann').read();
      expect([resource, etag]).toEqual([results[at]!.resourceBody, results[at]!.eTag]);
    }
    const lives = (await world.history(container.id, 'new')).map(({ type, life }) => `${life} ${type}`);
    expect(lives).toEqual(['0 ItemUpserted', '0 ItemDeleted', '1 ItemUpserted']);
    expect(await world.fsck()).toEqual([]);
  });

  test('that fails at any operation writes nothing, and reports which operation failed', async () => {
    const container = await world.container();
    const { etag } = await container.items.create(doc('old'));
    const before = await world.head();
    const failing: [OperationInput, number][] = [
      [{ operationType: Create, resourceBody: doc('old') }, 409],
      [{ operationType: Replace, id: 'missing', resourceBody: doc('missing') }, 404],
      [{ operationType: Read, id: 'missing' }, 404],
      [{ operationType: Delete, id: 'missing' }, 404],
      [{ operationType: Patch, id: 'missing', resourceBody: [{ op: 'add', path: '/a', value: 1 }] }, 404],
      [{ operationType: Patch, id: 'old', resourceBody: [{ op: 'incr', path: '/customer', value: 1 }] }, 400],
      [{ operationType: Patch, id: 'old', resourceBody: [{ op: 'remove', path: '/none' }] }, 400],
      [
        {
          operationType: Patch,
          id: 'old',
          resourceBody: {
            condition: 'FROM c WHERE c.total = 2',
            operations: [{ op: 'add', path: '/a', value: 1 }],
          },
        },
        412,
      ],
      ...['FROM c WHERE', 'FROM c WHERE NONE(c.total)', 'FROM c WHERE d.total = 1'].map(
        (condition): [OperationInput, number] => [
          {
            operationType: Patch,
            id: 'old',
            resourceBody: { condition, operations: [{ op: 'add', path: '/a', value: 1 }] },
          },
          400,
        ],
      ),
      [{ operationType: Replace, id: 'old', ifMatch: '"other"', resourceBody: doc('old') }, 412],
      [{ operationType: Upsert, ifNoneMatch: '*', resourceBody: doc('old') }, 412],
      [{ operationType: Replace, id: 'old', resourceBody: doc('first') }, 409],
      [{ operationType: Replace, id: 'missing', resourceBody: doc('another') }, 404],
      [{ operationType: Replace, id: 'old', ifMatch: '"other"', resourceBody: doc('another') }, 412],
      [{ operationType: Create, resourceBody: { id: 'b', customer: 'bob' } }, 400],
    ];
    for (const [operation, code] of failing) {
      const results = await batch(container, [
        { operationType: Create, resourceBody: doc('first') },
        operation,
        { operationType: Create, resourceBody: doc('last') },
      ]);
      expect(codes(results)).toEqual([424, code, 424]);
    }
    expect(await world.head()).toBe(before);
    expect(await ids(container)).toEqual(['old']);
    expect((await container.item('old', 'ann').read()).etag).toBe(etag);
  });

  test('reports the first operation that failed, even if the document of a later one is not of the batch’s partition', async () => {
    const container = await world.container();
    const results = await batch(container, [
      { operationType: Read, id: 'missing' },
      { operationType: Create, resourceBody: { id: 'b', customer: 'bob' } },
    ]);
    expect(codes(results)).toEqual([404, 424]);
    expect(await ids(container)).toEqual([]);
  });

  test('that fails because an item is missing answers with the range’s session token and without the container’s path, as a read does', async () => {
    const container = await world.container();
    await container.items.create(doc('old'));
    const docs = `/dbs/shop/colls/${container.id}/docs`;
    const read = (...names: readonly string[]) =>
      raw(world.endpoint, 'POST', docs, {
        headers: {
          ...keyHeader('ann'),
          'x-ms-cosmos-is-batch-request': 'true',
          'x-ms-cosmos-batch-atomic': 'true',
        },
        body: JSON.stringify(names.map((id) => ({ operationType: Read, id }))),
      });
    const alone = await raw(world.endpoint, 'GET', `${docs}/none`, { headers: keyHeader('ann') });
    const failing = await read('old', 'none');
    expect([alone.status, failing.status]).toEqual([404, 207]);
    for (const { headers } of [alone, failing]) {
      expect(headers).not.toHaveProperty('x-ms-content-path');
      expect(headers['x-ms-session-token']).toMatch(/^0:-1#\d+$/);
    }
    expect((await read('old')).headers).toHaveProperty('x-ms-content-path');
  });

  test('honours etags and conditions of each operation', async () => {
    const container = await world.container();
    const { etag } = await container.items.create(doc('old'));
    const results = await batch(container, [
      { operationType: Read, id: 'old', ifNoneMatch: etag } as unknown as OperationInput,
      {
        operationType: Patch,
        id: 'old',
        ifMatch: etag,
        resourceBody: {
          condition: 'FROM c WHERE c.total = 1',
          operations: [{ op: 'set', path: '/total', value: 2 }],
        },
      },
    ]);
    expect(codes(results)).toEqual([304, 200]);
    const late = await batch(container, [{ operationType: Delete, id: 'old', ifMatch: etag } as OperationInput]);
    expect(codes(late)).toEqual([412]);
  });

  test('answers a read with 304 if the client has the present version, whatever the etag’s property is called', async () => {
    const container = await world.container();
    const { etag } = await container.items.create(doc('old'));
    for (const atomic of ['true', 'false']) {
      const send = (read: object) =>
        raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
          headers: {
            ...keyHeader('ann'),
            'x-ms-cosmos-is-batch-request': 'true',
            'x-ms-cosmos-batch-atomic': atomic,
          },
          body: JSON.stringify([
            { operationType: 'Upsert', resourceBody: doc('new') },
            { operationType: 'Read', id: 'old', ...read },
          ]),
        });
      for (const read of [{ ifMatch: etag }, { ifNoneMatch: etag }, { ifNoneMatch: '*' }]) {
        const reply = await send(read);
        expect(reply.status).toBe(207);
        const [, unchanged] = reply.json as unknown as readonly OperationResponse[];
        expect(unchanged).toMatchObject({ statusCode: 304, requestCharge: 1, eTag: etag });
      }
      const other = (await send({ ifMatch: '"other"' })).json as unknown as readonly OperationResponse[];
      expect(codes(other)).toEqual([200, 200]);
    }
  });

  test('records the end of an overdue life, and begins the next one', async () => {
    const container = await world.container({ defaultTtl: 10 });
    await container.items.create(doc('a'));
    await container.items.create(doc('b'));
    await world.advance(10_000);
    const results = await batch(container, [
      { operationType: Create, resourceBody: doc('a', 2) },
      { operationType: Upsert, resourceBody: doc('a', 3) },
    ]);
    expect(codes(results)).toEqual([201, 200]);
    expect(codes(await batch(container, [{ operationType: Read, id: 'b' }]))).toEqual([404]);
    const history = await world.history(container.id, 'a');
    expect(history.map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemExpired', 'ItemUpserted', 'ItemUpserted']);
    expect(await ids(container)).toEqual(['a']);
    await world.purge();
    expect(await world.fsck()).toEqual([]);
  });

  test('refuses an invalid ttl', async () => {
    const container = await world.container({ defaultTtl: -1 });
    const results = await batch(container, [{ operationType: Create, resourceBody: doc('a', 1, { ttl: 0 }) }]);
    expect(codes(results)).toEqual([400]);
    expect((results[0] as unknown as { message: string }).message).toContain("The input ttl '0' is invalid");
  });

  test('succeeds beside concurrent batches that write the same items in another order', async () => {
    const container = await world.container();
    await container.items.create(doc('x', 0));
    await container.items.create(doc('y', 0));
    const add = (id: string): OperationInput => ({
      operationType: Patch,
      id,
      resourceBody: [{ op: 'incr', path: '/total', value: 1 }],
    });
    const runs = await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        batch(container, index % 2 === 0 ? [add('x'), add('y')] : [add('y'), add('x')]),
      ),
    );
    expect(runs.every((results) => codes(results).every((code) => code === 200))).toBe(true);
    const totals = await container.items.query<number>('SELECT VALUE c.total FROM c').fetchAll();
    expect(totals.resources).toEqual([40, 40]);
  });

  test('may be sent to a partition key range, if all its operations name the same partition key', async () => {
    const container = await world.container();
    const send = (operations: readonly object[], headers: Readonly<Record<string, string>> = {}) =>
      raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
        headers: { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-atomic': 'true', ...headers },
        body: JSON.stringify(operations),
      });
    const ofRange = { 'x-ms-documentdb-partitionkeyrangeid': '0' };
    const create = (id: string, customer = 'ann') => ({
      operationType: 'Create',
      partitionKey: JSON.stringify([customer]),
      resourceBody: { ...doc(id), customer },
    });
    const read = { operationType: 'Read', id: 'a', partitionKey: '["ann"]' };
    expect(await send([create('a'), read], ofRange)).toMatchObject({
      status: 200,
      json: [{ statusCode: 201 }, { statusCode: 200, resourceBody: { id: 'a' } }],
    });
    const ofTwo = await send([create('b'), create('c', 'bob')], ofRange);
    expect(ofTwo).toMatchObject({ status: 207, json: [{ statusCode: 424 }, { statusCode: 400, subStatusCode: 1001 }] });
    expect(await send([{ operationType: 'Create', resourceBody: doc('d') }], ofRange)).toMatchObject({ status: 400 });
    expect(await send([create('e')])).toMatchObject({ status: 400 });
    expect(await ids(container)).toEqual(['a']);
  });

  test('has limits, and a body that is not a batch is refused with the reason', async () => {
    const container = await world.container();
    const target = `/dbs/shop/colls/${container.id}/docs`;
    const send = (body: unknown, headers: Readonly<Record<string, string>> = keyHeader('ann')) =>
      raw(world.endpoint, 'POST', target, {
        headers: { ...headers, 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-atomic': 'true' },
        body: body as string,
      });
    const create = { operationType: 'Create', resourceBody: doc('a') };
    expect(await send(JSON.stringify([create]), {})).toMatchObject({ status: 400 });
    expect(await send('{}')).toMatchObject({ status: 400 });
    expect(await send('[]')).toMatchObject({ status: 400 });
    expect(await send('[1]')).toMatchObject({ status: 400 });
    for (const body of ['', undefined]) expect(await send(body)).toMatchObject({ status: 400 });
    for (const operationType of ['Steal', { toString: 1 }]) {
      expect(await send(JSON.stringify([{ operationType }]))).toMatchObject({ status: 400 });
    }
    for (const name of ['partitionKey', 'ifMatch', 'ifNoneMatch']) {
      expect(await send(JSON.stringify([{ ...create, [name]: 5 }]))).toMatchObject({ status: 400 });
    }
    for (const operation of [
      { operationType: 'Read' },
      { operationType: 'Create' },
      { operationType: 'Create', resourceBody: 5 },
      { operationType: 'Create', resourceBody: null },
      { operationType: 'Create', resourceBody: [doc('a')] },
      // All operations of a batch must have the same partition key.
      { operationType: 'Create', resourceBody: doc('a', 1, { customer: 'bob' }), partitionKey: '["bob"]' },
      { operationType: 'Read', id: 'a', partitionKey: '["bob"]' },
      { operationType: 'Patch', id: 'a' },
    ]) {
      expect(await send(JSON.stringify([operation]))).toMatchObject({ status: 207, json: [{ statusCode: 400 }] });
    }
    // The document fits into the limit as it is sent, but is too large in the form in which it would be stored.
    const numbers = `{"id":"a","customer":"ann","n":[${'1e20,'.repeat(100_000)}1]}`;
    expect(await send(`[{"operationType":"Create","resourceBody":${numbers}}]`)).toMatchObject({
      status: 207,
      json: [{ statusCode: 413 }],
    });
    expect(await send(JSON.stringify(Array.from({ length: 101 }, () => create)))).toMatchObject({ status: 400 });
    const large = { operationType: 'Create', resourceBody: doc('a', 1, { text: 'x'.repeat(2 * 1024 * 1024) }) };
    expect(await send(JSON.stringify([large]))).toMatchObject({ status: 413 });
    expect(await ids(container)).toEqual([]);

    const upserts = Array.from({ length: 100 }, (_, n) => ({ operationType: 'Upsert', resourceBody: doc(`i${n}`) }));
    expect(await send(JSON.stringify(upserts))).toMatchObject({ status: 200 });
    expect(await ids(container)).toHaveLength(100);
    const filled = (bytes: number) => JSON.stringify(upserts).padEnd(bytes);
    expect(await send(filled(2 * 1024 * 1024))).toMatchObject({ status: 200 });
    expect(await send(filled(2 * 1024 * 1024 + 1))).toMatchObject({ status: 413 });
    // A document in a batch may nest as deeply as one alone. The document itself is one of the levels.
    const nested = (levels: number) => {
      const document = `{"id":"deep","customer":"ann","a":${'['.repeat(levels)}${']'.repeat(levels)}}`;
      return `[{"operationType":"Upsert","resourceBody":${document}}]`;
    };
    expect(await send(nested(127))).toMatchObject({ status: 200 });
    expect(await send(nested(128))).toMatchObject({ status: 400 });
  });
});

describe('operations whose documents are too much for one answer', () => {
  const text = 'x'.repeat(1_900_000);
  const names = ['a', 'b', 'c'];
  // New objects for each call, because the client modifies the ones that it is given.
  const reads = (from = 0, to = names.length) =>
    names.slice(from, to).map((id) => ({ operationType: Read, id, partitionKey: 'ann' }) as const);
  let container: Container;
  beforeAll(async () => {
    container = await world.container();
    for (const id of names) await container.items.create(doc(id, 1, { text }));
  });

  test('make a batch of reads fail, at the first read that does not fit', async () => {
    const results = await batch(container, reads());
    expect(codes(results)).toEqual([424, 424, 413]);
    const { requestCharge } = await container.item('a', 'ann').read();
    expect(results[2]).toMatchObject({ subStatusCode: 3402, requestCharge: expect.closeTo(3 * requestCharge, 2) });
    expect(codes(await batch(container, reads(0, 2)))).toEqual([200, 200]);
  });

  test('make a batch with writes fail before anything is written', async () => {
    const again = Array.from({ length: 12 }, (_, index) => ({ operationType: Read, id: names[index % 3]! }) as const);
    const results = await batch(container, [...again, { operationType: Create, resourceBody: doc('new') }]);
    expect(codes(results)).toEqual([
      ...Array.from({ length: 8 }, () => 424),
      413,
      ...Array.from({ length: 4 }, () => 424),
    ]);
    expect(results[8]).toMatchObject({ subStatusCode: 3402 });
    expect(await ids(container)).toEqual(names);
    const fitting = await batch(container, [...again.slice(0, 8), { operationType: Create, resourceBody: doc('new') }]);
    expect(codes(fitting)).toEqual([...Array.from({ length: 8 }, () => 200), 201]);
    await container.item('new', 'ann').delete();
  });

  test('in a bulk request: the one that does not fit is answered with 413, and can be repeated', async () => {
    const results = await container.items.bulk(reads());
    expect(codes(results).toSorted()).toEqual([200, 200, 413]);
    const late = results.findIndex(({ statusCode }) => statusCode === 413);
    expect(results[late]!.resourceBody).toBeUndefined();
    expect(new Set(results.map(({ requestCharge }) => requestCharge)).size).toBe(1);
    const [again] = await container.items.bulk(reads(late, late + 1));
    expect(again!.resourceBody).toMatchObject({ id: names[late], text });
  });

  test('are all answered if the client calls executeBulkOperations', async () => {
    const results = await container.items.executeBulkOperations(reads());
    expect(results.map(({ response }) => response?.statusCode)).toEqual([200, 200, 200]);
    expect(results.map(({ response }) => response?.resourceBody?.['id'])).toEqual(names);
  });
});

describe.each([
  ['a container', {}],
  ['a container with unique keys', { uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/name'] }] } }],
])('patches of large documents in %s', (_, definition) => {
  const text = 'x'.repeat(1_900_000);
  const names = Array.from({ length: 40 }, (_, index) => `d${index}`);
  const add = { op: 'incr', path: '/total', value: 1 } as const;
  let container: Container;
  beforeAll(async () => {
    container = await world.container(definition);
    for (const id of names) await container.items.create(doc(id, 0, { name: id, text }));
  });
  const totals = async () =>
    (await container.items.query<number>('SELECT VALUE c.total FROM c ORDER BY c._ts').fetchAll()).resources;

  test('are each done, or refused and not done, if the documents of a bulk request exceed the size of an answer', async () => {
    const patches = () =>
      names.map((id) => ({
        operationType: Patch,
        id,
        partitionKey: 'ann',
        resourceBody: { operations: [add] },
      }));
    const results = await container.items.bulk(patches());
    const done = codes(results).filter((code) => code === 200).length;
    expect(done).toBe(17);
    expect(results.filter(({ statusCode }) => statusCode !== 200)).toEqual(
      Array.from({ length: names.length - done }, () =>
        expect.objectContaining({ statusCode: 413, subStatusCode: 3402 }),
      ),
    );
    expect((await totals()).reduce((sum, total) => sum + total, 0)).toBe(done);
    // If the client does not want the documents back, all patches are done.
    const reply = await sendBulk(
      container,
      patches().map((patch) => ({ ...patch, partitionKey: '["ann"]' })),
      MINIMAL,
    );
    expect(codes(reply.json as unknown as readonly OperationResponse[])).toEqual(names.map(() => 200));
  });

  test('let other work have its turn between them', async () => {
    const state = world.store.container('shop', container.id);
    let turn = 0;
    let isOver = false;
    const count = (): void => {
      turn += 1;
      if (!isOver) setImmediate(count);
    };
    count();
    const applied: number[] = [];
    const patches = names.slice(0, 16).map((id) =>
      world.store.patchItem(CALLER, state, id, '["ann"]', {
        // The patch's operations are read at the moment when the patch is applied.
        get operations() {
          applied.push(turn);
          return [add];
        },
      }),
    );
    await Promise.all(patches);
    isOver = true;
    expect(new Set(applied).size).toBeGreaterThan(8);
  });

  test('make a batch fail if the documents come to more than 16 MB', async () => {
    const before = await totals();
    const patches = names.map((id) => ({ operationType: Patch, id, resourceBody: [add] }));
    const results = await batch(container, patches.slice(0, 12));
    expect(codes(results)).toEqual([...Array.from({ length: 8 }, () => 424), 413, 424, 424, 424]);
    expect(await totals()).toEqual(before);
    expect(codes(await batch(container, patches.slice(0, 8)))).toEqual(Array.from({ length: 8 }, () => 200));
  });
});

describe('a bulk request', () => {
  const operations = (count: number): OperationInput[] =>
    Array.from({ length: count }, (_, index) => ({
      operationType: Create,
      partitionKey: `c${index % 7}`,
      resourceBody: { id: `i${index}`, customer: `c${index % 7}`, n: index },
    }));

  test('does operations on any partitions independently, and answers in their order', async () => {
    const container = await world.container();
    await container.items.create({ id: 'there', customer: 'c1' });
    const results = await container.items.bulk([
      ...operations(60),
      { operationType: Create, partitionKey: 'c1', resourceBody: { id: 'there', customer: 'c1' } },
      { operationType: Read, partitionKey: 'c1', id: 'there' },
      { operationType: Read, partitionKey: 'c1', id: 'missing' },
      { operationType: Create, partitionKey: 'c1', resourceBody: { id: 'bad', customer: 'c1', text: 1 } },
      {
        operationType: Patch,
        partitionKey: 'c1',
        id: 'bad',
        resourceBody: { operations: [{ op: 'add', path: '/more', value: [1] }] },
      },
      { operationType: Delete, partitionKey: 'c1', id: 'bad' },
      { operationType: Delete, partitionKey: 'c1', id: 'bad' },
    ]);
    expect(codes(results)).toEqual([...Array.from({ length: 60 }, () => 201), 409, 200, 404, 201, 200, 204, 404]);
    expect(results[59]!.resourceBody).toMatchObject({ id: 'i59', n: 59 });
    expect(results[61]!.resourceBody).toMatchObject({ id: 'there' });
    expect(await ids(container)).toHaveLength(61);
  });

  test('stops at the first error if the client asks for that', async () => {
    const container = await world.container({ defaultTtl: -1 });
    const results = await container.items.bulk(
      [
        { operationType: Create, partitionKey: 'ann', resourceBody: doc('a') },
        { operationType: Create, partitionKey: 'ann', resourceBody: doc('a') },
        { operationType: Create, partitionKey: 'ann', resourceBody: doc('b') },
        { operationType: Create, partitionKey: 'bob', resourceBody: doc('c') },
      ],
      { continueOnError: false },
    );
    expect(codes(results)).toEqual([201, 409, 424, 424]);
    expect(await ids(container)).toEqual(['a']);
    // It stops at any error: at one that the store reports, and at one that is found before the store is called.
    for (const wrong of [doc('b', 1, { ttl: 0 }), doc('b', 1, { customer: 'bob' })]) {
      const operations = [wrong, doc('c')].map(
        (resourceBody) => ({ operationType: Create, partitionKey: 'ann', resourceBody }) as const,
      );
      expect(codes(await container.items.bulk(operations, { continueOnError: false }))).toEqual([400, 424]);
    }
    expect(await ids(container)).toEqual(['a']);
  });

  test('through executeBulkOperations reports each operation’s own error', async () => {
    const container = await world.container();
    const results = await container.items.executeBulkOperations([
      { operationType: Create, partitionKey: 'ann', resourceBody: doc('a') },
      { operationType: Read, partitionKey: 'ann', id: 'missing' },
      { operationType: Create, partitionKey: 'bob', resourceBody: doc('c') },
    ]);
    expect(results.map(({ response, error }) => response?.statusCode ?? error?.code)).toEqual([201, 404, 400]);
  });

  test('omits the documents from its answer if the client wants a minimal one', async () => {
    const container = await world.container();
    const reply = await sendBulk(
      container,
      [
        { operationType: 'Upsert', partitionKey: '["ann"]', resourceBody: doc('a') },
        { operationType: 'Read', id: 'a' },
        { operationType: 'Read', partitionKey: '["ann"]', id: 'a' },
      ],
      MINIMAL,
    );
    expect(reply.status).toBe(207);
    const [written, keyless, read] = reply.json as unknown as readonly OperationResponse[];
    expect(written).toMatchObject({ statusCode: 201, eTag: expect.any(String) });
    expect(written).not.toHaveProperty('resourceBody');
    expect(read).toMatchObject({ statusCode: 200, resourceBody: { id: 'a' } });
    expect(keyless).toMatchObject({ statusCode: 400 });
  });

  test('omits only the documents of operations that ask for a minimal answer, as the Java client’s do', async () => {
    const container = await world.container();
    const reply = await sendBulk(container, [
      { operationType: 'Create', partitionKey: '["ann"]', resourceBody: doc('a'), minimalReturnPreference: true },
      { operationType: 'Create', partitionKey: '["ann"]', resourceBody: doc('b'), minimalReturnPreference: false },
      { operationType: 'Create', partitionKey: '["ann"]', resourceBody: doc('c') },
    ]);
    const results = reply.json as unknown as readonly OperationResponse[];
    expect(codes(results)).toEqual([201, 201, 201]);
    expect(results.map(({ resourceBody }) => resourceBody?.['id'])).toEqual([undefined, 'b', 'c']);
  });
});

describe('a batch as the .NET client sends it', () => {
  const header = (schema: number) => Buffer.concat([Buffer.of(0x81), int(schema)]);
  const int = (value: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    return bytes;
  };
  const text = (value: string) => Buffer.concat([Buffer.of(Buffer.byteLength(value)), Buffer.from(value)]);
  /** The fields of variable size, in the order of the schema. Then the optional fields, with their numbers. */
  const VARIABLE = ['partitionKey', 'effectivePartitionKey', 'id', 'binaryId', 'resourceBody'] as const;
  const SPARSE = { ifMatch: 9, ifNoneMatch: 10, timeToLiveInSeconds: 11, minimalReturnPreference: 12 } as const;
  type Fields = Partial<Record<(typeof VARIABLE)[number] | keyof typeof SPARSE, string | number | true>>;

  /** A HybridRow stream of operations, each of a numbered type. */
  const stream = (...operations: readonly (readonly [type: number, fields: Fields])[]): Buffer => {
    const rows = operations.map(([type, fields]) => {
      const present = VARIABLE.reduce((bits, name, index) => (name in fields ? bits | (4 << index) : bits), 0b11);
      const sparse = Object.entries(SPARSE).flatMap(([name, number]) => {
        const value = fields[name as keyof Fields];
        if (value === undefined) return [];
        if (value === true) return [Buffer.of(3, number)];
        return typeof value === 'string' ? [Buffer.of(20, number), text(value)] : [Buffer.of(7, number), int(value)];
      });
      const variable = VARIABLE.flatMap((name) => (name in fields ? [text(String(fields[name]))] : []));
      return Buffer.concat([header(2_145_473_648), Buffer.of(present), int(type), int(2), ...variable, ...sparse]);
    });
    const records = rows.flatMap((row) => [header(2_147_473_649), int(row.length), int(crc32(row)), row]);
    return Buffer.concat([header(2_147_473_648), Buffer.of(1), int(10), ...records]);
  };
  const send = (container: Container, body: Buffer, headers = {}) =>
    raw(world.endpoint, 'POST', `/dbs/shop/colls/${container.id}/docs`, {
      headers: {
        ...keyHeader('ann'),
        'x-ms-cosmos-is-batch-request': 'true',
        'x-ms-cosmos-batch-atomic': 'true',
        ...headers,
      },
      body,
    });
  const body = (id: string, total = 1) => ({ resourceBody: JSON.stringify(doc(id, total)) });
  const patch = { resourceBody: '[{"op":"incr","path":"/total","value":10}]' };

  test('does each kind of operation under its conditions, and answers with the documents that are wanted', async () => {
    const container = await world.container();
    const done = await send(
      container,
      stream(
        [0, body('a')],
        [20, { ...body('b'), minimalReturnPreference: true }],
        [5, { ...body('a', 5), id: 'a', ifMatch: '*' }],
        [1, { ...patch, id: 'a' }],
        [2, { id: 'a' }],
        [4, { id: 'b' }],
      ),
    );
    expect(done.status).toBe(200);
    for (const shown of ['"total":1,', '"total":5,']) expect(done.text).toContain(shown);
    expect(done.text.match(/"total":15,/g)).toHaveLength(2);
    expect(done.text).not.toContain('"id":"b"');
    expect(await ids(container)).toEqual(['a']);
    for (const fields of [{ ifMatch: '"other"' }, { ifNoneMatch: '*' }]) {
      const refused = await send(container, stream([20, { ...body('a', 7), ...fields }]));
      expect([refused.status, refused.text.includes('"total"')]).toEqual([207, false]);
    }
    const { resource } = await container.item('a', 'ann').read<{ total: number }>();
    expect(resource?.total).toBe(15);
    const little = await send(container, stream([20, body('a')]), MINIMAL);
    expect([little.status, little.text.includes('"total"')]).toEqual([200, false]);
  });

  test('is refused if it has a field or a type that would have no effect: a ttl beside the document, a binary key or id, another type', async () => {
    const container = await world.container({ defaultTtl: -1 });
    for (const fields of [{ timeToLiveInSeconds: 5 }, { effectivePartitionKey: 'ff' }, { binaryId: 'a' }]) {
      expect((await send(container, stream([0, { ...body('a'), ...fields }]))).status).toBe(400);
    }
    for (const type of [3, 6, 19]) expect((await send(container, stream([type, body('a')]))).status).toBe(400);
    // An operation without a document or a patch fails, too.
    for (const type of [0, 1, 5, 20]) expect((await send(container, stream([type, { id: 'a' }]))).status).toBe(207);
    expect(await ids(container)).toEqual([]);
  });
});

test('a batch with the read-only key is refused', async () => {
  const container = await world.container();
  const client = world.connect({ key: Buffer.alloc(64, 7).toString('base64') });
  const items = client.database('shop').container(container.id).items;
  const refused = await refusalOf(items.batch([{ operationType: Read, id: 'a' }], 'ann'));
  expect(refused.message).toContain('read-only key');
  client.dispose();
});
