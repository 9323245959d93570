import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import {
  AUDITOR_KEY,
  eventsIn,
  item,
  openWorld,
  ORDERS,
  READ_ONLY_KEY,
  START_MS,
  WRITER,
  type World,
} from './world.ts';

type Answer = Readonly<Record<string, unknown>>;

let world: World;
beforeEach(async () => {
  world = await openWorld(60);
});
afterEach(() => world.close());

const orders = () => world.store.container('shop', 'orders');
const advance = (seconds: number) => world.store.advanceClock(seconds * 1000);
const purge = () => world.store.runPurge();
const call = async (method: 'PUT' | 'POST' | 'DELETE', url: string, body: unknown) => {
  const response = await world.ask(method, `${ORDERS}${url}`, { body });
  return { status: response.statusCode, body: response.json<Answer>() };
};
const place = (id: string, scope: object, reason = 'case 7') => call('PUT', `/holds/${id}`, { ...scope, reason });
const release = (id: string) => call('DELETE', `/holds/${id}`, { reason: 'closed' });
const ARTICLE_17 = { reason: 'article 17', requestedBy: 'desk 3' };
const erase = (id: string, more: object = {}) =>
  call('POST', '/erase', { id, partitionKey: ['ann'], ...ARTICLE_17, ...more });
const recover = (id: string, more: object = {}) =>
  call('POST', '/recover', { id, partitionKey: ['ann'], reason: 'a mistake', ...more });
const explain = (id: string) => world.get(`${ORDERS}/explain${item(id)}`);
const types = async (id?: string) => {
  const { events } = (await world.get(`${ORDERS}/history${id === undefined ? '' : item(id)}`)) as {
    events: { type: string; data: Answer; actor?: string }[];
  };
  return events.map(({ type }) => type);
};
const containerEvents = async (type: string) => {
  const { events } = (await world.get(`${ORDERS}/history`)) as {
    events: { type: string; data: Answer; actor?: string }[];
  };
  return events.filter((event) => event.type === type);
};
const fsck = async () => (await world.store.fsck()).problems;

describe('a legal hold', () => {
  test('on items keeps all their lives, hides none, and lets the purge erase them as soon as it is released', async () => {
    await world.write('a');
    await world.write('b');
    expect(await place('case-7', { items: [{ id: 'a', partitionKey: ['ann'] }] })).toMatchObject({
      status: 201,
      body: { id: 'case-7', state: 'standing', scope: 'items', count: 1, tooLateFor: 0, placedBy: 'key:primary' },
    });
    await advance(60);
    expect(await purge()).toMatchObject({ expired: 2, purged: 1, heldBack: 1 });
    expect((await world.ask('GET', `${ORDERS}/content${item('a')}`)).statusCode).toBe(404);
    // A later life of the same item is held as well.
    await world.write('a');
    await advance(60);
    expect(await purge()).toMatchObject({ purged: 0, heldBack: 2 });
    expect(await explain('a')).toMatchObject({
      state: 'expired',
      holds: ['case-7'],
      sentence: expect.stringContaining('It is kept by the legal hold "case-7".') as string,
    });
    expect(await release('case-7')).toMatchObject({
      status: 200,
      body: { state: 'released', released: { by: 'key:primary', reason: 'closed' } },
    });
    expect(await purge()).toMatchObject({ purged: 2, heldBack: 0 });
    expect(await fsck()).toEqual([]);
  });

  test('on items can name a hundred items with the longest ids and keys, and a longer request is refused', async () => {
    const items = Array.from({ length: 100 }, (_, n) => ({
      id: `${n}`.padEnd(1023, 'x'),
      partitionKey: ['k'.repeat(2048)],
    }));
    expect(await place('long', { items })).toMatchObject({ status: 201, body: { count: 100 } });
    expect(await place('longer', { items: [{ id: 'a', partitionKey: ['k'.repeat(1_100_000)] }] })).toMatchObject({
      status: 413,
      body: { code: 'too-large', detail: 'The body of the request has more than 1048576 bytes.' },
    });
  });

  test('on a partition key keeps items that are written later, and none of other partition keys', async () => {
    await place('p', { partitionKey: ['ann'] });
    await world.write('a');
    const document = { id: 'a', customer: 'bob' };
    await world.store.writeItem(WRITER, orders(), 'create', {
      id: 'a',
      partitionKey: '["bob"]',
      document,
      json: JSON.stringify(document),
    });
    await advance(60);
    expect(await purge()).toMatchObject({ purged: 1, heldBack: 1 });
  });

  test('on a query covers the lives that the query finds when the hold is placed', async () => {
    await world.write('a', { total: 5 });
    await world.write('b', { total: 50 });
    const query = { query: 'SELECT * FROM c WHERE c.total > @least', parameters: [{ name: '@least', value: 10 }] };
    expect(await place('q', { query })).toMatchObject({ status: 201, body: { scope: 'query', count: 1 } });
    await world.write('c', { total: 70 });
    await advance(60);
    expect(await purge()).toMatchObject({ purged: 2, heldBack: 1 });
    expect((await explain('b'))['holds']).toEqual(['q']);
    const { covers } = (await world.get(`${ORDERS}/holds/q`)) as { covers: string[] };
    expect(covers).toEqual([expect.stringMatching(/^[\w-]{28}\.0$/) as string]);
    // The query is not run again: placing another hold by the same id is refused.
    expect(await place('q', { query })).toMatchObject({ status: 409, body: { code: 'already-exists' } });
  });

  test('on a query compares numbers by all their digits, as other queries do', async () => {
    await world.writeText('a', '{"id":"a","customer":"ann","n":12345678901234567}');
    await world.writeText('b', '{"id":"b","customer":"ann","n":12345678901234568}');
    const placed = (id: string, sql: string, value: string) =>
      call(
        'PUT',
        `/holds/${id}`,
        `{"reason":"r","query":{"query":"SELECT * FROM c WHERE ${sql}","parameters":[{"name":"@n","value":${value}}]}}`,
      );
    expect(await placed('one', 'c.n = @n', '12345678901234567')).toMatchObject({ status: 201, body: { count: 1 } });
    expect(await placed('list', 'ARRAY_CONTAINS(@n, c.n)', '[12345678901234567]')).toMatchObject({ status: 201 });
    expect((await explain('a'))['holds']).toEqual(['list', 'one']);
    expect((await explain('b'))['holds']).toEqual([]);
    // Keys are doubles, so any other value with so many digits is refused.
    const body = '{"reason":"r","partitionKey":[12345678901234567]}';
    expect(await call('PUT', '/holds/key', body)).toMatchObject({ status: 201, body: { scope: 'partition-key' } });
    expect(await call('PUT', '/retention-floor', '{"reason":"r","seconds":12345678901234567}')).toMatchObject({
      status: 400,
      body: { detail: 'seconds in the body is out of range.' },
    });
  });

  test('on a query accepts only queries that return documents', async () => {
    for (const query of ['SELECT VALUE COUNT(1) FROM c', 'SELECT TOP 1 * FROM c', 'SELECT * FROM c ORDER BY c.id']) {
      expect(await place('q', { query: { query } })).toMatchObject({ status: 400, body: { code: 'bad-request' } });
    }
    expect(await place('q', { query: { query: 'SELEKT' } })).toMatchObject({ status: 400 });
    // If the parameter were undefined, as in clients’ queries, the hold would silently cover nothing, or everything.
    const lacking = { query: 'SELECT * FROM c WHERE c.total > @least' };
    expect(await place('q', { query: lacking })).toMatchObject({
      status: 400,
      body: { detail: expect.stringContaining("The parameter '@least' is used but not given.") },
    });
    expect((await world.get(`${ORDERS}/holds`))['holds']).toEqual([]);
    expect(await world.store.hold(orders(), 'q').catch((error: unknown) => error)).toMatchObject({
      code: 'hold-not-found',
    });
  });

  test('on a container outlives the container, and can then be released by its rid', async () => {
    await world.write('a');
    await place('all', { container: true });
    const { rid } = orders();
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    expect(await purge()).toMatchObject({ purged: 0, heldBack: 1 });
    expect(await call('DELETE', `/holds/all?rid=${encodeURIComponent(rid)}`, { reason: 'closed' })).toMatchObject({
      status: 200,
    });
    expect(await purge()).toMatchObject({ purged: 1, heldBack: 0 });
  });

  test('tells how many lives had been erased before it was placed', async () => {
    await world.write('a');
    await world.write('b');
    await advance(60);
    await purge();
    await world.write('a');
    const items = [
      { id: 'a', partitionKey: ['ann'] },
      { id: 'never', partitionKey: ['ann'] },
    ];
    expect((await place('items', { items })).body).toMatchObject({ tooLateFor: 1 });
    expect((await place('partition', { partitionKey: ['ann'] })).body).toMatchObject({ tooLateFor: 2 });
    expect((await place('other', { partitionKey: ['bob'] })).body).toMatchObject({ tooLateFor: 0 });
    expect((await place('all', { container: true })).body).toMatchObject({ tooLateFor: 2 });
  });

  test('can be placed again unchanged, cannot be changed, and its id cannot be used again', async () => {
    expect((await place('x', { container: true })).status).toBe(201);
    expect((await place('x', { container: true })).status).toBe(200);
    expect(await place('x', { container: true }, 'another case')).toMatchObject({ body: { code: 'already-exists' } });
    expect(await place('x', { partitionKey: ['ann'] })).toMatchObject({ body: { code: 'already-exists' } });
    await release('x');
    expect(await release('x')).toMatchObject({ status: 200 });
    expect(await place('x', { container: true })).toMatchObject({ status: 409 });
    expect(await release('never')).toMatchObject({ status: 404, body: { code: 'hold-not-found' } });
    expect(await types()).toEqual(['ContainerCreated', 'HoldPlaced', 'HoldReleased']);
  });

  test('is listed in pages if a limit is given', async () => {
    for (const id of ['one', 'two', 'three', 'four', 'five']) await place(id, { container: true });
    await release('two');
    const idsOf = ({ holds }: Answer) => (holds as { id: string }[]).map(({ id }) => id);
    const pages: string[][] = [];
    for (let more = ''; pages.length < 9;) {
      const page = (await world.get(`${ORDERS}/holds?limit=2${more}`)) as Answer;
      pages.push(idsOf(page));
      if (page['continuation'] === undefined) break;
      more = `&continuation=${String(page['continuation'])}`;
    }
    expect(pages).toEqual([['one', 'two'], ['three', 'four'], ['five']]);
    const all = (await world.get(`${ORDERS}/holds`)) as Answer;
    expect(idsOf(all)).toEqual(pages.flat());
    expect(all).not.toHaveProperty('continuation');
    expect((await world.ask('GET', `${ORDERS}/holds?limit=0`)).statusCode).toBe(400);
  });

  test('is listed for auditors, also when released, with who, when and why', async () => {
    await place('one', { container: true });
    await advance(5);
    await place('two', { partitionKey: ['ann'] });
    await release('one');
    const { holds } = (await world.ask('GET', `${ORDERS}/holds`, { key: AUDITOR_KEY })).json<{ holds: Answer[] }>();
    expect(holds).toMatchObject([
      { id: 'one', state: 'released', scope: 'container', reason: 'case 7', released: { reason: 'closed' } },
      { id: 'two', state: 'standing', scope: 'partition-key', placedAt: '2026-11-21T10:00:05.000Z' },
    ]);
    for (const key of [AUDITOR_KEY, READ_ONLY_KEY]) {
      const body = { container: true, reason: 'no' };
      expect((await world.ask('PUT', `${ORDERS}/holds/three`, { key, body })).statusCode).toBe(403);
    }
  });

  test.each([
    ['without a reason', { container: true }],
    ['that names nothing', { reason: 'case 7' }],
    ['that names two things', { reason: 'case 7', container: true, partitionKey: ['ann'] }],
    [
      'with too many items',
      { reason: 'x', items: Array.from({ length: 101 }, () => ({ id: 'a', partitionKey: ['a'] })) },
    ],
    ['with no items', { reason: 'x', items: [] }],
    ['with a partition key of the wrong length', { reason: 'case 7', partitionKey: ['ann', 'x'] }],
    [
      'on an item with a partition key of the wrong length',
      { reason: 'x', items: [{ id: 'a', partitionKey: [1, 2] }] },
    ],
  ])('%s is refused', async (_, body) => {
    expect(await call('PUT', '/holds/bad', body)).toMatchObject({ status: 400, body: { code: 'bad-request' } });
    expect(await call('PUT', '/holds/bad%20id', { container: true, reason: 'x' })).toMatchObject({ status: 400 });
    expect((await world.get(`${ORDERS}/holds`))['holds']).toEqual([]);
  });

  test('in an encoding other than UTF-8 is refused, because it would be on a key that nobody means', async () => {
    for (const [id, scope] of [
      ['h1', { partitionKey: ['Müller'] }],
      ['h2', { items: [{ id: 'Müller', partitionKey: ['ann'] }] }],
      ['h3', { query: { query: 'SELECT * FROM c WHERE c.name = "Müller"' } }],
    ] as const) {
      const text = JSON.stringify({ ...scope, reason: 'case 7' });
      const put = async (payload: Buffer) =>
        world.app.inject({
          method: 'PUT',
          url: `/_epitaph${ORDERS}/holds/${id}`,
          headers: { authorization: `Bearer ${EMULATOR_KEY}` },
          payload,
        });
      const refused = await put(Buffer.from(text, 'latin1'));
      expect([refused.statusCode, refused.json()]).toMatchObject([400, { detail: expect.stringContaining('UTF-8') }]);
      // Some programs write a byte order mark at the start of a file that they send.
      expect((await put(Buffer.from(`\uFEFF${text}`))).statusCode).toBe(201);
    }
  });

  test('on a malformed partition key is refused, with an example of a valid one', async () => {
    expect(await place('bad', { partitionKey: 'ann' })).toMatchObject({
      status: 400,
      body: { detail: 'A partition key is a JSON array with the values of /customer, such as ["ann"].' },
    });
    expect((await world.get(`${ORDERS}/holds`))['holds']).toEqual([]);
  });
});

describe('an ended item', () => {
  test('is reported as kept for as long as it can be recovered', async () => {
    await call('PUT', '/recovery-window', { seconds: 600, reason: 'mistakes' });
    await world.write('a');
    await world.write('b');
    await world.store.deleteItem(WRITER, orders(), 'a', '["ann"]');
    expect(await explain('a')).toMatchObject({
      state: 'deleted',
      contentKeptUntil: '2026-11-21T10:10:00.000Z',
      sentence: expect.stringContaining('It is kept by the recovery window until 2026-11-21T10:10:00.000Z.') as string,
    });
    await advance(30);
    await call('PUT', '/policy-grace', { seconds: 3_600, reason: 'time to look' });
    // Half a minute after the write, so the item expires at the start of the policy.
    await world.store.replaceContainer(WRITER, 'shop', 'orders', orders().definition, 10);
    expect(await explain('b')).toMatchObject({
      state: 'expired',
      contentKeptUntil: '2026-11-21T11:00:30.000Z',
      sentence: expect.stringContaining('It is kept by the policy grace until 2026-11-21T11:00:30.000Z.') as string,
    });
    await advance(600);
    expect(await explain('a')).not.toHaveProperty('contentKeptUntil');
    expect(await explain('b')).toMatchObject({ contentKeptUntil: '2026-11-21T11:00:30.000Z' });
    await advance(3_000);
    expect(await explain('b')).not.toHaveProperty('contentKeptUntil');
  });
});

describe('an explanation of an instant in the past', () => {
  const explainAt = (id: string, at: string) => world.get(`${ORDERS}/explain${item(id)}&at=${at}`);
  const allThereAre = { query: { query: 'SELECT * FROM c' } };

  test('names the holds on the life of that time, and not those on a later one', async () => {
    await world.write('a');
    await call('PUT', '/holds/first', { reason: 'case 1', ...allThereAre });
    await advance(60);
    await world.write('a');
    await call('PUT', '/holds/second', { reason: 'case 2', ...allThereAre });
    expect(await explainAt('a', '2026-11-21T10:00:59Z')).toMatchObject({ state: 'live', life: 0, holds: ['first'] });
    expect(await explain('a')).toMatchObject({ state: 'live', life: 1, holds: ['second'] });
    await advance(60);
    expect(await explain('a')).toMatchObject({
      state: 'expired',
      life: 1,
      sentence: expect.stringContaining('It is kept by the legal hold "second".') as string,
    });
    await world.write('a');
    expect(await explainAt('a', '2026-11-21T10:02:00Z')).toMatchObject({ state: 'live', life: 2, holds: [] });
    await advance(60);
    await world.write('b');
    expect(await explainAt('a', '2026-11-21T10:01:59Z')).toMatchObject({ state: 'live', life: 1, holds: ['second'] });
  });

  test('tells until when the content of that time is kept, and by what, even if another life has begun', async () => {
    await call('PUT', '/recovery-window', { seconds: 600, reason: 'mistakes' });
    await call('PUT', '/retention-floor', { seconds: 120, reason: 'tax law' });
    await world.write('a');
    await advance(60);
    await call('PUT', '/holds/items', { reason: 'case 3', items: [{ id: 'a', partitionKey: ['ann'] }] });
    await advance(10);
    await world.write('a');
    expect(await explainAt('a', '2026-11-21T10:01:05Z')).toMatchObject({
      state: 'expired',
      life: 0,
      holds: ['items'],
      contentKeptUntil: '2026-11-21T10:11:00.000Z',
      sentence: expect.stringContaining(
        'It is kept by the legal hold "items" and by the retention floor until 2026-11-21T10:02:00.000Z and by the recovery window until 2026-11-21T10:11:00.000Z.',
      ) as string,
    });
  });

  test('names no hold that was placed after the erasure', async () => {
    await world.write('a');
    await advance(70);
    expect(await purge()).toMatchObject({ purged: 1 });
    expect(await call('PUT', '/holds/late', { reason: 'case 4', container: true })).toMatchObject({
      body: { tooLateFor: 1 },
    });
    const before = await explainAt('a', '2026-11-21T10:01:05Z');
    expect(before).toMatchObject({ state: 'expired', holds: [] });
    expect(before['sentence']).toMatch(/Its content has not been erased yet\.$/);
    expect(await explain('a')).toMatchObject({ state: 'purged', holds: [] });
  });
});

describe('a retention floor', () => {
  test('keeps content for that long after the last write, and is shown in preview, explanation and certificate', async () => {
    await world.write('a');
    expect(await call('PUT', '/retention-floor', { seconds: 3_600, reason: 'tax law' })).toMatchObject({
      status: 200,
      body: { floorSeconds: 3_600, recoveryWindowSeconds: 0 },
    });
    const preview = (await world.ask('POST', `${ORDERS}/ttl/preview`, { body: { defaultTtl: 1 } })).json<Answer>();
    await advance(60);
    expect(preview).toMatchObject({ kept: { floorSeconds: 3_600 } });
    expect(await purge()).toMatchObject({ expired: 1, purged: 0, heldBack: 1 });
    expect(await explain('a')).toMatchObject({
      contentKeptUntil: '2026-11-21T11:00:00.000Z',
      sentence: expect.stringContaining('It is kept by the retention floor until 2026-11-21T11:00:00.000Z.') as string,
    });
    await advance(3_540);
    expect(await purge()).toMatchObject({ purged: 1 });
    expect(await explain('a')).not.toHaveProperty('contentKeptUntil');
    expect(await world.get(`${ORDERS}/certificate${item('a')}`)).toMatchObject({
      statement: { checks: { holds: 0, floorSeconds: 3_600, graceSeconds: 0 } },
    });
  });

  test('is named beside the change feed in the explanation of an ended item, if both keep it', async () => {
    const withFeed = { ...orders().definition, changeFeedPolicy: { retentionDuration: 60 } };
    await world.store.replaceContainer(WRITER, 'shop', 'orders', withFeed, 60);
    await call('PUT', '/retention-floor', { seconds: 3_600, reason: 'tax law' });
    await world.write('a');
    expect(await explain('a')).toMatchObject({ state: 'live', contentKeptUntil: '2026-11-21T11:00:00.000Z' });
    await advance(60);
    expect(await purge()).toMatchObject({ expired: 1, purged: 0 });
    expect(await explain('a')).toMatchObject({
      state: 'expired',
      contentKeptUntil: '2026-11-21T11:02:00.000Z',
      sentence: expect.stringContaining(
        'It is kept by the retention floor until 2026-11-21T11:00:00.000Z and for the change feed until 2026-11-21T11:02:00.000Z.',
      ) as string,
    });
    await advance(3_660);
    expect(await purge()).toMatchObject({ purged: 1 });
    expect(await explain('a')).not.toHaveProperty('contentKeptUntil');
  });

  test('does not hide that the change feed keeps content, counted from the record of the end, which a paused purge delays', async () => {
    const withFeed = { ...orders().definition, changeFeedPolicy: { retentionDuration: 1 } };
    await world.store.replaceContainer(WRITER, 'shop', 'orders', withFeed, 60);
    await world.write('a');
    await world.store.pausePurge(WRITER);
    await advance(600);
    const untilMs = world.store.nowMs() + 120_000;
    expect(await explain('a')).toMatchObject({
      state: 'expired',
      contentKeptUntilMs: untilMs,
      sentence: expect.stringContaining('at the earliest (its end is not on record yet).') as string,
    });
    await world.store.resumePurge(WRITER);
    expect(await purge()).toMatchObject({ expired: 1, purged: 0 });
    expect(await explain('a')).toMatchObject({ contentKeptUntilMs: untilMs });
    await advance(120);
    expect(await purge()).toMatchObject({ purged: 1 });
  });

  test('that is lowered lets the purge erase content at once; the change is recorded with its reason', async () => {
    await call('PUT', '/retention-floor', { seconds: 3_600, reason: 'tax law' });
    await world.write('a');
    await advance(60);
    await purge();
    await call('PUT', '/retention-floor', { seconds: 0, reason: 'law repealed' });
    expect(await purge()).toMatchObject({ purged: 1 });
    expect((await containerEvents('RetentionFloorChanged')).map(({ data }) => data)).toEqual([
      { fromSeconds: 0, toSeconds: 3_600, reason: 'tax law' },
      { fromSeconds: 3_600, toSeconds: 0, reason: 'law repealed' },
    ]);
  });

  test('needs a reason and a number of seconds', async () => {
    for (const body of [{ seconds: 5 }, { seconds: -1, reason: 'x' }, { seconds: 1.5, reason: 'x' }, { reason: 'x' }]) {
      expect(await call('PUT', '/retention-floor', body)).toMatchObject({ status: 400, body: { code: 'bad-request' } });
    }
  });
});

describe('an erasure on request', () => {
  test('erases every life with content, ends the current one, and is recorded', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await world.write('a', { secret: 'x' });
    await advance(60);
    await purge();
    await world.write('a', { secret: 'y' });
    expect(await erase('a')).toMatchObject({ status: 200, body: { erasedLives: 2, alreadyErasedLives: 0 } });
    expect(await types('a')).toEqual(['ItemUpserted', 'ItemExpired', 'ItemPurged', 'ItemUpserted', 'ItemPurged']);
    await expect(world.store.readItem(orders(), 'a', '["ann"]')).rejects.toMatchObject({ code: 'item-not-found' });
    expect(await explain('a')).toMatchObject({
      state: 'purged',
      sentence:
        '"a" was erased on request at 2026-11-21T10:01:00.000Z by key:primary. It was requested by "desk 3", for the reason "article 17".',
      erasure: { requestedBy: 'desk 3', reason: 'article 17', requestedAt: '2026-11-21T10:01:00.000Z' },
    });
    expect((await world.get(`${ORDERS}/disappearances`))['disappearances']).toMatchObject([
      { life: 0, cause: 'expired', purgedAt: '2026-11-21T10:01:00.000Z' },
      { life: 1, cause: 'erasure', purgedAt: '2026-11-21T10:01:00.000Z' },
    ]);
    const [request] = await containerEvents('ErasureRequested');
    expect(request).toMatchObject({ actor: 'key:primary', data: { reason: 'article 17', requestedBy: 'desk 3' } });
    expect(JSON.stringify(request)).not.toContain('ann');
    expect(await containerEvents('ErasureCompleted')).toMatchObject([{ data: { erasedLives: 2 } }]);
    expect(await world.get(`${ORDERS}/certificate${item('a')}`)).toMatchObject({
      statement: { cause: 'erasure', life: 1 },
    });
    // A second request is told that nothing was left, and is not shown as the one that had the item erased.
    expect(await erase('a', { requestedBy: 'desk 4' })).toMatchObject({
      status: 200,
      body: { erasedLives: 0, alreadyErasedLives: 2 },
    });
    expect(await explain('a')).toMatchObject({ erasure: { requestedBy: 'desk 3' } });
    await world.write('a');
    expect(await explain('a')).toMatchObject({ state: 'live', life: 2 });
    expect(await fsck()).toEqual([]);
  });

  test('is refused as a whole by a hold, which the answer names; the refusal is recorded', async () => {
    // The earlier life still has its content, and the hold covers only the later one.
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await world.write('a');
    await advance(60);
    await purge();
    await world.write('a', { ttl: 600 });
    await place('case-7', { query: { query: 'SELECT * FROM c' } });
    expect(await erase('a')).toMatchObject({
      status: 409,
      body: {
        code: 'held',
        holds: [{ id: 'case-7', reason: 'case 7', placedBy: 'key:primary', placedAt: '2026-11-21T10:01:00.000Z' }],
        floorUntil: null,
        possibleFrom: null,
        erasedLives: 0,
      },
    });
    expect(await explain('a')).toMatchObject({ state: 'live' });
    expect(await containerEvents('ErasureRefused')).toMatchObject([
      { data: { holds: ['case-7'], floorUntilMs: null } },
    ]);
    await release('case-7');
    expect(await erase('a')).toMatchObject({ status: 200, body: { erasedLives: 2, alreadyErasedLives: 0 } });
  });

  test('that more holds forbid than an answer can list is refused with the first of them and their number', async () => {
    await world.write('a');
    const hold = { reason: 'x'.repeat(1_000), scope: { kind: 'container' } } as const;
    for (let number = 0; number < 150; number += 1) {
      await world.store.placeHold(WRITER, orders(), `case-${number}`, hold);
    }
    const { status, body } = await erase('a');
    expect([status, body]).toEqual([409, expect.objectContaining({ code: 'held', holdCount: 150 })]);
    const { holds, detail } = body as { holds: readonly { id: string }[]; detail: string };
    expect(holds.map(({ id }) => id)).toEqual(Array.from({ length: 100 }, (_, number) => `case-${number}`));
    expect(detail).toMatch(
      /^The content is held by "case-0", .* and 140 more\. The erasure is possible when the holds are released/,
    );
    expect(detail.length).toBeLessThan(300);
    // The recorded refusal has all of them.
    const [refused] = await containerEvents('ErasureRefused');
    expect((refused as unknown as { data: { holds: unknown[] } }).data.holds).toHaveLength(150);
  });

  test('is shown in the explanation of the item, however many other events the container has', async () => {
    await world.write('a');
    const someHolds = async (from: number) => {
      for (let number = from; number < from + 40; number += 1) {
        await place(`case-${number}`, { partitionKey: ['bob'] });
      }
    };
    await someHolds(0);
    expect(await erase('a')).toMatchObject({ status: 200 });
    await someHolds(40);
    expect(await explain('a')).toMatchObject({ erasure: { reason: expect.any(String) as string } });
  });

  test('is refused by a retention floor, with the date from which it can run, and is not refused by a change feed', async () => {
    await world.write('a');
    await call('PUT', '/retention-floor', { seconds: 3_600, reason: 'tax law' });
    expect(await erase('a')).toMatchObject({
      status: 409,
      body: { code: 'held', holds: [], possibleFrom: '2026-11-21T11:00:00.000Z' },
    });
    // With a hold as well there is no such date, because nobody knows when the hold will be released.
    await place('case-7', { container: true });
    expect(await erase('a')).toMatchObject({
      status: 409,
      body: {
        holds: [{ id: 'case-7' }],
        floorUntil: '2026-11-21T11:00:00.000Z',
        possibleFrom: null,
        detail:
          'The content is held by "case-7" and kept by the retention floor until 2026-11-21T11:00:00.000Z. The erasure is possible when the holds are released; the request is on record.',
      },
    });
    await release('case-7');
    await call('PUT', '/retention-floor', { seconds: 0, reason: 'repealed' });
    const { definition } = orders();
    const withFeed = { ...definition, changeFeedPolicy: { retentionDuration: 60 } };
    await world.store.replaceContainer(WRITER, 'shop', 'orders', withFeed, 60);
    expect(await erase('a')).toMatchObject({ status: 200, body: { erasedLives: 1 } });
  });

  test('is refused as a whole by a floor, even if the floor of an earlier life is over', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await call('PUT', '/retention-floor', { seconds: 30, reason: 'tax law' });
    await world.write('a');
    await advance(60);
    await purge();
    await world.write('a');
    expect(await erase('a')).toMatchObject({
      status: 409,
      body: { code: 'held', possibleFrom: '2026-11-21T10:01:30.000Z', erasedLives: 0 },
    });
    expect(await types('a')).toEqual(['ItemUpserted', 'ItemExpired', 'ItemUpserted']);
    await advance(30);
    expect(await erase('a')).toMatchObject({ status: 200, body: { erasedLives: 2, alreadyErasedLives: 0 } });
  });

  test('is a delete in the all-versions feed, but not for a life whose end the feed has already shown', async () => {
    const withFeed = { ...orders().definition, changeFeedPolicy: { retentionDuration: 60 } };
    await world.store.replaceContainer(WRITER, 'shop', 'orders', withFeed, 60);
    const { position } = await world.store.readChangeFeed(orders(), {
      mode: 'all-versions',
      start: { kind: 'now' },
      scope: {},
      maxItemCount: 10,
    });
    await world.write('a');
    await world.store.deleteItem(WRITER, orders(), 'a', '["ann"]');
    await world.write('a');
    await erase('a');
    const { changes } = await world.store.readChangeFeed(orders(), {
      mode: 'all-versions',
      start: { kind: 'after', position },
      scope: {},
      maxItemCount: 10,
    });
    // The delete of the first life, and the erasure of the second. Their contents can't be shown any more.
    expect(changes.map(({ kind }) => kind)).toEqual(['deleted', 'deleted']);
    expect(changes).toMatchObject([{ expired: false }, { expired: false, id: 'a', partitionKey: '["ann"]' }]);
    expect(changes.some((change) => 'previous' in change)).toBe(false);
  });

  test('does not take an id with half a surrogate pair for one with U+FFFD; the same goes for holds and recoveries', async () => {
    await world.write('a\uFFFD');
    for (const id of ['a\uD83D', 'a\uDE00']) {
      const refused = { status: 400, body: { detail: expect.stringContaining('unpaired surrogate') } };
      expect(await erase(id)).toMatchObject(refused);
      expect(await recover(id)).toMatchObject({ status: 400 });
      expect(await place('case-7', { items: [{ id, partitionKey: ['ann'] }] })).toMatchObject(refused);
    }
    expect(await explain('a\uFFFD')).toMatchObject({ state: 'live' });
    expect(await types('a\uFFFD')).toEqual(['ItemUpserted']);
  });

  test('in a deleted container tells of each life what ended it', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await world.write('a');
    await advance(60);
    await purge();
    await world.write('a');
    const { rid } = orders();
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    const of = `rid=${encodeURIComponent(rid)}`;
    expect(await call('POST', `/erase?${of}`, { id: 'a', partitionKey: ['ann'], ...ARTICLE_17 })).toMatchObject({
      body: { erasedLives: 2 },
    });
    const { events } = (await world.get(`${ORDERS}/history${item('a')}&${of}`)) as { events: { data: Answer }[] };
    const causes = events.flatMap(({ data }) => data['cause'] ?? []);
    expect(causes).toEqual(['erasure', 'container-deleted']);
    const told = await world.get(`${ORDERS}/explain${item('a')}&${of}`);
    expect(told).toMatchObject({ containerDeletedAtMs: expect.any(Number), erasure: ARTICLE_17 });
    expect(told['sentence']).toMatch(
      /was deleted at .* Its content was erased on request at .* by key:primary\. It was/,
    );
    expect(await fsck()).toEqual([]);
  });

  test('of an item that expired in this very millisecond keeps the expiry as its end, even if the container is deleted in the same', async () => {
    await world.write('a');
    await advance(60);
    expect(await erase('a')).toMatchObject({ status: 200 });
    const container = orders();
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    const { rows } = await world.store.disappearances(container, { limit: 10 });
    expect(rows).toMatchObject([{ id: 'a', cause: 'expired', atMs: START_MS + 60_000 }]);
    expect(await world.store.explain(container, 'a', '["ann"]')).toMatchObject({
      state: 'purged',
      expiredAtMs: START_MS + 60_000,
    });
  });

  test('of an item whose expiry is not recorded yet records the expiry first', async () => {
    await world.write('a');
    await advance(61);
    expect(await erase('a')).toMatchObject({ status: 200 });
    expect(await types('a')).toEqual(['ItemUpserted', 'ItemExpired', 'ItemPurged']);
  });

  test('can be requested for many items of a container at the same time', async () => {
    const ids = Array.from({ length: 60 }, (_, index) => `i${index}`);
    await Promise.all(ids.map((id) => world.write(id)));
    const answers = await Promise.all(ids.map((id) => erase(id)));
    expect(answers.map(({ status, body }) => [status, body['erasedLives']])).toEqual(ids.map(() => [200, 1]));
    expect(await containerEvents('ErasureCompleted')).toHaveLength(ids.length);
  });

  test('is refused for an item that never existed, without a requester and a reason, and without the write key', async () => {
    expect(await erase('never')).toMatchObject({ status: 404, body: { code: 'item-not-found' } });
    expect(await call('POST', '/erase', { id: 'a', partitionKey: ['ann'], reason: 'x' })).toMatchObject({
      status: 400,
    });
    const body = { id: 'a', partitionKey: ['ann'], reason: 'x', requestedBy: 'y' };
    for (const key of [AUDITOR_KEY, READ_ONLY_KEY]) {
      expect((await world.ask('POST', `${ORDERS}/erase`, { key, body })).statusCode).toBe(403);
    }
  });
});

describe('a recovery', () => {
  test('begins a new life, written now, with the content of the ended one', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await world.write('a', { total: 5 });
    await advance(90);
    await purge();
    expect(await recover('a')).toMatchObject({
      status: 200,
      body: { id: 'a', fromLife: 0, life: 1, ts: START_MS / 1000 + 90, expiresAt: '2026-11-21T10:02:30.000Z' },
    });
    const { json, ts } = await world.store.readItem(orders(), 'a', '["ann"]');
    expect([JSON.parse(json), ts]).toEqual([{ id: 'a', customer: 'ann', total: 5 }, START_MS / 1000 + 90]);
    expect(await types('a')).toEqual(['ItemUpserted', 'ItemExpired', 'ItemRecovered']);
    expect(await containerEvents('RecoveryRequested')).toMatchObject([{ data: { reason: 'a mistake' } }]);
    const feed = await world.store.readChangeFeed(orders(), {
      mode: 'latest',
      start: { kind: 'beginning' },
      scope: {},
      maxItemCount: 10,
    });
    expect(feed.changes).toMatchObject([{ kind: 'written', item: { id: 'a', ts: START_MS / 1000 + 90 } }]);
    // The old life and the new one both end in time. The ledger keeps how the new one began.
    await advance(3_600);
    await purge();
    await advance(3_600);
    await purge();
    const { events } = (await world.get(`${ORDERS}/history${item('a')}`)) as {
      events: { life: number; data: Answer }[];
    };
    expect(events.find(({ life }) => life === 1)).toMatchObject({
      fromLedger: true,
      type: 'ItemRecovered',
      data: { operation: 'recover' },
    });
    expect(await fsck()).toEqual([]);
  });

  test('brings back a deleted item, and one whose expiry is not recorded yet', async () => {
    await call('PUT', '/recovery-window', { seconds: 60, reason: 'operators' });
    await world.write('a');
    await world.store.deleteItem(WRITER, orders(), 'a', '["ann"]');
    expect(await recover('a')).toMatchObject({ status: 200, body: { life: 1 } });
    await advance(61);
    expect(await recover('a')).toMatchObject({ status: 200, body: { fromLife: 1, life: 2 } });
    expect(await types('a')).toEqual(['ItemUpserted', 'ItemDeleted', 'ItemRecovered', 'ItemExpired', 'ItemRecovered']);
  });

  test('is refused while a newer life exists, after the content is erased, and for an item that never existed', async () => {
    await world.write('a');
    expect(await recover('a')).toMatchObject({ status: 404, body: { code: 'item-not-found' } });
    await place('h', { items: [{ id: 'a', partitionKey: ['ann'] }] });
    await advance(60);
    await world.write('a');
    expect(await recover('a')).toMatchObject({
      status: 409,
      body: { code: 'already-exists', detail: expect.stringMatching(/^The item is visible\./) as string },
    });
    await advance(60);
    await release('h');
    await purge();
    expect(await recover('a')).toMatchObject({ status: 409, body: { code: 'content-erased' } });
    expect(await recover('never')).toMatchObject({ status: 404 });
    expect(await types('a')).toEqual([
      'ItemUpserted',
      'ItemExpired',
      'ItemPurged',
      'ItemUpserted',
      'ItemExpired',
      'ItemPurged',
    ]);
  });

  test('can take an earlier life by its number', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    await world.write('a', { version: 'first' });
    await advance(60);
    await world.write('a', { version: 'second' });
    await advance(60);
    expect(await recover('a', { life: 0 })).toMatchObject({ body: { fromLife: 0, life: 2 } });
    expect(JSON.parse((await world.store.readItem(orders(), 'a', '["ann"]')).json)).toMatchObject({ version: 'first' });
  });

  test('that runs beside an erasure recovers the item if the erasure is then refused', async () => {
    await call('PUT', '/policy-grace', { seconds: 600, reason: 'a long one' });
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: -1, confirmed: false });
    for (const id of ['a', 'b']) await world.write(id);
    await place('h', { partitionKey: ['ann'] });
    await advance(30);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: 20, confirmed: false });
    const holdsOn = Reflect.get(SqliteKeyVault.prototype, 'holdsOn') as KeyVault['holdsOn'];
    const asked = vi.spyOn(SqliteKeyVault.prototype as KeyVault, 'holdsOn');
    onTestFinished(() => asked.mockRestore());
    const met = async (id: string, recovery: () => ReturnType<typeof call>) => {
      const { promise: isAsked, resolve: ask } = Promise.withResolvers<void>();
      const { promise: gate, resolve: goOn } = Promise.withResolvers<void>();
      asked.mockImplementationOnce(async function (this: KeyVault, streams) {
        ask();
        await gate;
        return holdsOn.call(this, streams);
      });
      const erased = erase(id);
      await isAsked;
      const recovered = recovery();
      setTimeout(goOn, 100);
      expect(await erased).toMatchObject({ status: 409 });
      return recovered;
    };
    expect(await met('a', () => recover('a'))).toMatchObject({ status: 200, body: { life: 1 } });
    expect(await met('b', () => call('POST', '/recover', { policyVersion: 3, reason: 'mistyped' }))).toMatchObject({
      body: { recovered: 1, writtenSince: 1, erased: 0 },
    });
    expect(await fsck()).toEqual([]);
  });

  test('by policy brings back everything that the policy expired and nothing else, once', async () => {
    for (let number = 0; number < 150; number++) await world.write(`n${number}`, { ttl: 600 });
    await world.write('by itself', { ttl: 5 });
    await advance(10);
    await purge();
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: -1, confirmed: false });
    for (let number = 0; number < 10; number++) await world.write(`d${number}`);
    await advance(30);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: 20, confirmed: false });
    await world.write('d0');
    const body = { policyVersion: 3, reason: 'mistyped' };
    const response = await world.ask('POST', `${ORDERS}/recover`, { body, accept: 'text/event-stream' });
    expect(eventsIn(response.body).at(-1)).toMatchObject({
      event: 'done',
      data: { policyVersion: 3, recovered: 9, writtenSince: 1, erased: 0 },
    });
    expect(eventsIn(response.body).some(({ event }) => event === 'progress')).toBe(true);
    expect(await explain('d1')).toMatchObject({ state: 'live', life: 1 });
    expect(await explain('d0')).toMatchObject({ state: 'live', life: 1 });
    expect(await explain('by itself')).toMatchObject({ state: 'purged' });
    expect(await call('POST', '/recover', body)).toMatchObject({ body: { recovered: 0, writtenSince: 10 } });
    expect(await call('POST', '/recover', { ...body, policyVersion: 9 })).toMatchObject({ status: 400 });
    expect(await fsck()).toEqual([]);
  });

  test('by policy tells how many items are erased, without those that were recovered or written again', async () => {
    await call('PUT', '/policy-grace', { seconds: 30, reason: 'a short one' });
    for (const id of ['lost', 'back', 'anew']) await world.write(id);
    // Expires at that very instant, but by its own ttl.
    await world.write('by itself', { ttl: 30 });
    await advance(30);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: 5, confirmed: false });
    await advance(1);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: -1, confirmed: false });
    expect(await recover('back')).toMatchObject({ status: 200 });
    await world.write('anew');
    await advance(60);
    await purge();
    for (const id of ['lost', 'by itself']) expect(await explain(id)).toMatchObject({ state: 'purged' });
    expect(await call('POST', '/recover', { policyVersion: 2, reason: 'mistyped' })).toMatchObject({
      body: { recovered: 0, writtenSince: 2, erased: 1 },
    });
  });

  test('by policy that is interrupted continues when it is requested again', async () => {
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: -1, confirmed: false });
    for (let number = 0; number < 200; number++) await world.write(`d${number}`);
    await advance(30);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: 20, confirmed: false });
    const cancel = new AbortController();
    const cut = world.store.recoverPolicy(WRITER, orders(), 3, {
      reason: 'mistyped',
      signal: cancel.signal,
      onProgress: () => cancel.abort(),
    });
    await expect(cut).rejects.toThrow();
    const { recovered, writtenSince } = await world.store.recoverPolicy(WRITER, orders(), 3, { reason: 'mistyped' });
    expect(writtenSince).toBeGreaterThan(0);
    expect(recovered + writtenSince).toBe(200);
    expect((await world.store.listItems(orders(), { maxItemCount: 1000 })).items).toHaveLength(200);
  });

  test('does not happen through a change of policy', async () => {
    await world.write('a');
    await advance(61);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: -1, confirmed: false });
    expect(await explain('a')).toMatchObject({ state: 'expired' });
  });
});

describe('in a container that keeps ids out of its events', () => {
  const people = () => world.store.container('shop', 'people');
  const ask = async (method: 'PUT' | 'POST' | 'GET', url: string, body?: unknown) => {
    const response = await world.ask(method, `/dbs/shop/colls/people${url}`, body === undefined ? {} : { body });
    return { status: response.statusCode, body: response.json<Answer>() };
  };

  test('holds, erasures and recoveries take clients’ names as well as pseudonyms', async () => {
    const definition = { ...orders().definition, epitaph: { pseudonymousIds: true } };
    await world.store.createContainer(WRITER, 'shop', 'people', definition, 60);
    await world.store.setRecoveryWindow(WRITER, people(), 600, 'operators');
    for (const id of ['a', 'b', 'c']) {
      const document = { id, customer: 'ann' };
      const whole = { id, partitionKey: '["ann"]', document, json: JSON.stringify(document) };
      await world.store.writeItem(WRITER, people(), 'create', whole);
    }
    const { events } = (await ask('GET', `/history${item('a')}`)).body as { events: { data: Answer }[] };
    const pseudonym = events[0]!.data as { id: string; partitionKey: string };
    expect(pseudonym.partitionKey).toMatch(/^~/);
    expect(await ask('PUT', '/holds/p', { partitionKey: pseudonym.partitionKey, reason: 'r' })).toMatchObject({
      status: 201,
    });
    expect(
      (await ask('PUT', '/holds/q', { query: { query: "SELECT * FROM c WHERE c.id = 'a'" }, reason: 'r' })).body,
    ).toMatchObject({ count: 1 });
    await advance(700);
    expect(await purge()).toMatchObject({ purged: 0, heldBack: 3 });
    expect((await ask('GET', `/explain${item('a')}`)).body).toMatchObject({ holds: ['p', 'q'] });
    const erasing = { id: 'a', partitionKey: ['ann'], reason: 'r', requestedBy: 'b' };
    expect(await ask('POST', '/erase', erasing)).toMatchObject({ status: 409 });
    expect(await ask('POST', '/recover', { id: 'b', partitionKey: ['ann'], reason: 'r' })).toMatchObject({
      status: 200,
      body: { id: 'b', life: 1 },
    });
    expect(JSON.parse((await world.store.readItem(people(), 'b', '["ann"]')).json)).toEqual({
      id: 'b',
      customer: 'ann',
    });
    expect(await ask('GET', `/held-content${item('c', { reason: 'r' })}`)).toMatchObject({
      body: { document: { id: 'c' } },
    });
    await world.store.releaseHold(WRITER, people(), 'p', 'closed');
    await world.store.releaseHold(WRITER, people(), 'q', 'closed');
    expect(
      await ask('POST', '/erase', { ...erasing, id: pseudonym.id, partitionKey: pseudonym.partitionKey }),
    ).toMatchObject({ status: 200 });
    expect(JSON.stringify(await world.store.containerHistory(people()))).not.toContain('ann');
    expect(await fsck()).toEqual([]);
  });
});

describe('a value of a unique key', () => {
  const definition = {
    partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/email'] }] },
  };
  const people = () => world.store.container('shop', 'people');
  const create = (id: string) => {
    const document = { id, customer: 'ann', email: 'a@b' };
    const whole = { id, partitionKey: '["ann"]', document, json: JSON.stringify(document) };
    return world.store.writeItem(WRITER, people(), 'create', whole);
  };
  beforeEach(async () => {
    await world.store.createContainer(WRITER, 'shop', 'people', definition, -1);
    await world.store.setRecoveryWindow(WRITER, people(), 3_600, 'operators');
  });

  test('is free after an erasure', async () => {
    await create('a');
    await expect(create('b')).rejects.toMatchObject({ code: 'unique-key-taken' });
    await world.store.eraseItem(WRITER, people(), 'a', '["ann"]', { reason: 'article 17', requestedBy: 'desk 3' });
    await create('b');
    expect(await fsck()).toEqual([]);
  });

  test('forbids a recovery while another item has it, and is taken by the recovered item', async () => {
    await create('a');
    await world.store.deleteItem(WRITER, people(), 'a', '["ann"]');
    await create('b');
    const recovery = () => world.store.recoverItem(WRITER, people(), 'a', '["ann"]', { reason: 'a mistake' });
    await expect(recovery()).rejects.toMatchObject({ code: 'unique-key-taken' });
    await world.store.deleteItem(WRITER, people(), 'b', '["ann"]');
    expect(await recovery()).toMatchObject({ life: 1 });
    await expect(create('c')).rejects.toMatchObject({ code: 'unique-key-taken' });
    expect(await fsck()).toEqual([]);
  });

  test('forbids the recovery by policy of an item, which is left out', async () => {
    await create('a');
    await advance(30);
    await world.store.changeTtl(WRITER, 'shop', 'people', { defaultTtl: 5, confirmed: false });
    await create('b');
    const recovery = await world.store.recoverPolicy(WRITER, people(), 2, { reason: 'mistyped' });
    expect(recovery).toEqual({ recovered: 0, writtenSince: 0, uniqueKeyTaken: 1, erased: 0, unreadable: 0 });
    expect(await fsck()).toEqual([]);
  });
});

describe('a recovery window', () => {
  test('ends with its container, and so does the grace after a policy’s start', async () => {
    await call('PUT', '/recovery-window', { seconds: 3_600, reason: 'operators' });
    for (const id of ['deleted', 'by policy']) await world.write(id);
    await world.store.deleteItem(WRITER, orders(), 'deleted', '["ann"]');
    await advance(10);
    await world.store.changeTtl(WRITER, 'shop', 'orders', { defaultTtl: 5, confirmed: false });
    expect(await purge()).toMatchObject({ expired: 1, purged: 0 });
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    expect(await purge()).toMatchObject({ purged: 2 });
  });

  test('counts each life once, also one that was under a hold when the window was set', async () => {
    for (const id of ['a', 'b']) {
      await world.write(id);
      await world.store.deleteItem(WRITER, orders(), id, '["ann"]');
    }
    await place('h', { container: true });
    expect(await purge()).toMatchObject({ purged: 0, heldBack: 2 });
    await call('PUT', '/recovery-window', { seconds: 600, reason: 'operators' });
    expect(await world.store.purgeStatus()).toMatchObject({ inGrace: 2, awaitingErasure: 0, heldBack: 0 });
    await advance(600);
    expect(await purge()).toMatchObject({ purged: 0, heldBack: 2 });
    expect(await world.store.purgeStatus()).toMatchObject({ inGrace: 0, awaitingErasure: 0, heldBack: 2 });
  });

  test('delays the erasure of an ended item, and is recorded', async () => {
    expect(await call('PUT', '/recovery-window', { seconds: 600, reason: 'operators' })).toMatchObject({
      body: { recoveryWindowSeconds: 600 },
    });
    await world.write('a');
    await world.store.deleteItem(WRITER, orders(), 'a', '["ann"]');
    await advance(599);
    expect(await purge()).toMatchObject({ purged: 0 });
    expect(await world.store.purgeStatus()).toMatchObject({ inGrace: 1, awaitingErasure: 0, heldBack: 0 });
    await advance(1);
    expect(await purge()).toMatchObject({ purged: 1 });
    expect(await world.get(`${ORDERS}/certificate${item('a')}`)).toMatchObject({
      statement: { checks: { graceSeconds: 600 } },
    });
    expect((await world.ask('GET', `${ORDERS}/retention`, { key: AUDITOR_KEY })).json()).toMatchObject({
      floorSeconds: 0,
      recoveryWindowSeconds: 600,
    });
  });
});

describe('reading held content', () => {
  const held = (id: string, more: Readonly<Record<string, string>> = { reason: 'case 7' }) =>
    `${ORDERS}/held-content${item(id, more)}`;

  test('shows an ended life whose key still exists, and records who read it and why', async () => {
    await world.write('a', { total: 5 });
    await place('h', { container: true });
    await advance(60);
    await purge();
    expect(await world.get(held('a'))).toMatchObject({
      life: 0,
      revision: 0,
      document: { id: 'a', customer: 'ann', total: 5 },
    });
    const [read] = await containerEvents('HeldContentRead');
    expect(read).toMatchObject({ actor: 'key:primary', data: { reason: 'case 7', revision: 0 } });
    expect(JSON.stringify(read)).not.toContain('ann');
  });

  test('shows the properties in the order in which they were written', async () => {
    const json = '{"id":"a","customer":"ann","b":{"10":1,"9":2},"2":[],"1":12345678901234567}';
    await world.writeText('a', json);
    await place('h', { container: true });
    await advance(60);
    expect((await world.ask('GET', held('a'))).body).toContain(`"document":${json}}`);
  });

  test('shows any write by its revision, and records which one', async () => {
    for (const total of [5, 6, 7]) await world.write('a', { total });
    await place('h', { container: true });
    await advance(60);
    await purge();
    const of = async (revision: string) => await world.get(held('a', { reason: 'case 7', revision }));
    expect(await world.get(held('a'))).toMatchObject({ revision: 2, document: { total: 7 } });
    expect(await of('0')).toMatchObject({ life: 0, revision: 0, document: { id: 'a', customer: 'ann', total: 5 } });
    expect(await of('1')).toMatchObject({ revision: 1, document: { total: 6 } });
    // Revision 3 is the end of the life, and revision 4 never existed.
    for (const revision of ['3', '4']) expect(await of(revision)).toMatchObject({ code: 'item-not-found' });
    expect(await of('-1')).toMatchObject({ status: 400 });
    const read = await containerEvents('HeldContentRead');
    expect(read.map(({ data }) => (data as { revision: number }).revision)).toEqual([2, 0, 1]);
    await world.store.releaseHold(WRITER, orders(), 'h', 'closed');
    await purge();
    for (const revision of ['0', '2', '4']) expect(await of(revision)).toMatchObject({ code: 'content-erased' });
  });

  test('shows the last life that has content, if later ones were not held', async () => {
    for (const total of [1, 2, 3]) {
      await world.write('a', { total });
      if (total === 2) await place('h', { query: { query: 'SELECT * FROM c' } });
      await advance(60);
      await purge();
    }
    const shown = { life: 1, document: { total: 2 } };
    expect(await world.get(held('a'))).toMatchObject(shown);
    expect(await world.get(held('a', { reason: 'case 7', life: '2' }))).toMatchObject({
      code: 'content-erased',
      detail: 'The content of life 2 of the item has been erased.',
    });
    // Also while the item exists again.
    await world.write('a');
    expect(await world.get(held('a'))).toMatchObject(shown);
    await release('h');
    await advance(60);
    await purge();
    expect(await world.get(held('a'))).toMatchObject({
      code: 'content-erased',
      detail: 'The content of life 3 of the item has been erased, and that of each before it.',
    });
    const read = await containerEvents('HeldContentRead');
    expect(read.map(({ data }) => (data as { life: string }).life)).toEqual([
      expect.stringMatching(/\.1$/),
      expect.stringMatching(/\.1$/),
    ]);
  });

  test('needs the write key and a reason, and shows neither live nor erased items', async () => {
    await world.write('a');
    for (const key of [AUDITOR_KEY, READ_ONLY_KEY]) {
      expect((await world.ask('GET', held('a'), { key })).statusCode).toBe(403);
    }
    expect(await world.get(held('a', {}))).toMatchObject({ status: 400 });
    expect(await world.get(held('a'))).toMatchObject({ status: 404, code: 'item-not-found' });
    await advance(60);
    expect(await world.get(held('a'))).toMatchObject({ life: 0 });
    await purge();
    expect(await world.get(held('a'))).toMatchObject({ status: 409, code: 'content-erased' });
    expect(await containerEvents('HeldContentRead')).toHaveLength(1);
  });
});
