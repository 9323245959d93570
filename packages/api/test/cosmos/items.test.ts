import { describe, expect, test } from 'vitest';
import { call, DOCS, keyHeader, shop } from './support/client.ts';

describe('items', () => {
  test('a created item is answered with its system properties and read back the same', async () => {
    const app = await shop();
    const created = await call(app, 'POST', DOCS, {
      body: { id: 'o1', customer: 'ann', total: 12.5 },
      headers: keyHeader('ann'),
    });
    expect(created.status).toBe(201);
    expect(created.json).toMatchObject({ id: 'o1', customer: 'ann', total: 12.5, _attachments: 'attachments/' });
    expect(Buffer.from(String(created.json['_rid']), 'base64')).toHaveLength(16);
    expect(created.headers['etag']).toBe(created.json['_etag']);

    const read = await call(app, 'GET', `${DOCS}/o1`, { headers: keyHeader('ann') });
    expect(read.status).toBe(200);
    expect(read.json).toEqual(created.json);
  });

  test('ids are unique in a partition key, not in a container', async () => {
    const app = await shop();
    const create = (customer: string) =>
      call(app, 'POST', DOCS, { body: { id: 'o1', customer }, headers: keyHeader(customer) });
    expect((await create('ann')).status).toBe(201);
    expect((await create('bob')).status).toBe(201);
    expect((await create('ann')).status).toBe(409);
  });

  test('an upsert creates, then replaces', async () => {
    const app = await shop();
    const upsert = (total: number) =>
      call(app, 'POST', DOCS, {
        body: { id: 'o1', customer: 'ann', total },
        headers: { ...keyHeader('ann'), 'x-ms-documentdb-is-upsert': 'true' },
      });
    expect((await upsert(1)).status).toBe(201);
    expect((await upsert(2)).status).toBe(200);
    const read = await call(app, 'GET', `${DOCS}/o1`, { headers: keyHeader('ann') });
    expect(read.json['total']).toBe(2);
  });
});
