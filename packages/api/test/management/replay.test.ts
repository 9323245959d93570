import { connect } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import type { Document } from '@epitaph/api/store/api/items-api.ts';
import { AUDITOR_KEY, eventsIn, item, openWorld, ORDERS, READ_ONLY_KEY, WRITER, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld(60);
  await world.write('short');
  await world.write('kept', { ttl: -1 });
  await world.write('renewed');
  await world.store.advanceClock(30_000);
  await world.write('renewed', { step: 2 });
  await world.write('deleted');
  await world.store.advanceClock(30_000);
  // 10:01:00: "short" has expired.
  await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'deleted', '["ann"]');
  await world.ask('POST', '/purge/run');
  await world.store.advanceClock(3_600_000);
});
afterEach(() => world.close());

const START = '2026-11-21T10:00:00Z';
const replay = (timeline: unknown, accept?: string) =>
  world.ask('POST', `${ORDERS}/ttl/replay`, { body: { timeline }, key: AUDITOR_KEY, ...(accept && { accept }) });

describe('a replay under other policies', () => {
  test('compares every life with what happened, purged ones by their ledgers', async () => {
    await world.ask('POST', '/purge/run');
    const answer = (await replay([{ from: START, defaultTtl: 45 }])).json<Record<string, unknown>>();
    expect(answer).toMatchObject({
      replayedUpTo: '2026-11-21T11:01:00.000Z',
      lives: 4,
      counts: { same: 2, earlier: 2, later: 0, never: 0, also: 0 },
    });
    expect(answer['sample']).toEqual([
      {
        id: 'short',
        partitionKey: ['ann'],
        life: 0,
        verdict: 'earlier',
        leftAt: '2026-11-21T10:01:00.000Z',
        leftAtMs: Date.UTC(2026, 10, 21, 10, 1),
        wouldLeaveAt: '2026-11-21T10:00:45.000Z',
        wouldLeaveAtMs: Date.UTC(2026, 10, 21, 10, 0, 45),
      },
      expect.objectContaining({ id: 'renewed', wouldLeaveAt: '2026-11-21T10:01:15.000Z' }),
    ]);
  });

  test('under the actual policies says that all is the same', async () => {
    expect((await replay([{ from: START, defaultTtl: 60 }])).json()).toMatchObject({
      lives: 4,
      counts: { same: 4, earlier: 0, later: 0, never: 0, also: 0 },
    });
    expect((await replay([{ from: START, defaultTtl: null }])).json()).toMatchObject({
      counts: { same: 2, never: 2 },
    });
  });

  test('streams every difference as a line, or progress as events', async () => {
    const lines = (await replay([{ from: START, defaultTtl: 5 }], 'application/x-ndjson')).payload.trim().split('\n');
    const rows = lines.map((line) => JSON.parse(line) as { id?: string; summary?: unknown });
    expect(rows.slice(0, -1).map(({ id }) => id)).toEqual(['renewed', 'deleted', 'short']);
    expect(rows.at(-1)!.summary).toMatchObject({ counts: { earlier: 3, same: 1 } });
    const events = eventsIn((await replay([{ from: START, defaultTtl: 5 }], 'text/event-stream')).payload);
    expect(events.map(({ event }) => event)).toEqual(['progress', 'done']);
    expect(events[0]!.data).toEqual({ position: expect.any(Number), headPosition: world.store.headPosition() });
    expect(events[1]!.data).toMatchObject({ lives: 4 });
  });

  test.each(['before the first line', 'in the middle of them'])('ends if its client leaves %s', async (when) => {
    const errors = vi.spyOn(world.app.log, 'error');
    const begun = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<unknown>();
    vi.spyOn(world.store, 'replay').mockImplementation(async (_container, _policies, { signal, onRow } = {}) => {
      begun.resolve();
      const waiting = () =>
        new Promise<never>((_, reject) => signal!.addEventListener('abort', () => reject(signal!.reason as Error)));
      const writing = async (): Promise<never> => {
        // More than the connection's buffers take.
        const row = { id: 'x'.repeat(100_000), partitionKey: '["ann"]', life: 0, verdict: 'same' } as const;
        for (;;) await onRow!({ ...row, leftAtMs: null, wouldLeaveAtMs: null });
      };
      return (when === 'before the first line' ? waiting() : writing()).catch((error: unknown) => {
        ended.resolve(error);
        throw error;
      });
    });
    const { port } = new URL(await world.app.listen({ port: 0, host: '127.0.0.1' }));
    const client = connect(Number(port), '127.0.0.1').pause();
    const body = JSON.stringify({ timeline: [{ from: START, defaultTtl: 5 }] });
    client.write(
      [
        `POST /_epitaph${ORDERS}/ttl/replay HTTP/1.1`,
        'host: 127.0.0.1',
        `authorization: Bearer ${EMULATOR_KEY}`,
        'accept: application/x-ndjson',
        `content-length: ${body.length}`,
        '',
        body,
      ].join('\r\n'),
    );
    await begun.promise;
    await setTimeout(50);
    client.destroy();
    expect(await ended.promise).toMatchObject({ name: 'AbortError' });
    await setTimeout(50);
    expect(errors).not.toHaveBeenCalled();
  });

  test('applies the last of several policies that begin at the same instant', async () => {
    const counts = async (...policies: (readonly [from: string, defaultTtl: number])[]) => {
      const answer = await replay(policies.map(([from, defaultTtl]) => ({ from, defaultTtl })));
      return answer.json<Record<string, unknown>>()['counts'];
    };
    const later = ['2026-11-21T10:30:00Z', 60] as const;
    const expected = await counts([START, 45], later);
    expect(expected).toMatchObject({ earlier: expect.any(Number) });
    expect(await counts([START, 7], [START, 45], later)).toEqual(expected);
  });

  test('refuses an invalid timeline', async () => {
    for (const timeline of [
      undefined,
      [],
      [{ from: START, defaultTtl: 0 }],
      [
        { from: '2026-11-21T11:00:00Z', defaultTtl: 5 },
        { from: START, defaultTtl: 6 },
      ],
    ]) {
      expect((await replay(timeline)).json()).toMatchObject({ status: 400, code: 'bad-request' });
    }
  });
});

describe('a container at a past instant', () => {
  const asOf = async (at: string, accept?: string) =>
    world.ask('GET', `${ORDERS}/as-of?at=${at}`, { key: AUDITOR_KEY, ...(accept && { accept }) });

  test('is counted and listed as readers saw it then, before and after the purge', async () => {
    for (const purged of [false, true]) {
      if (purged) await world.ask('POST', '/purge/run');
      for (const [at, ids] of [
        ['2026-11-21T09:59:59Z', []],
        ['2026-11-21T10:00:00Z', ['kept', 'renewed', 'short']],
        ['2026-11-21T10:00:30Z', ['deleted', 'kept', 'renewed', 'short']],
        ['2026-11-21T10:00:59.999Z', ['deleted', 'kept', 'renewed', 'short']],
        ['2026-11-21T10:01:00Z', ['kept', 'renewed']],
        ['2026-11-21T10:01:30Z', ['kept']],
      ] as const) {
        expect((await asOf(at)).json()).toMatchObject({ items: ids.length });
        const lines = (await asOf(at, 'application/x-ndjson')).payload.trim().split('\n').slice(0, -1);
        expect(lines.map((line) => (JSON.parse(line) as { id: string }).id).toSorted()).toEqual(ids);
      }
    }
  });
});

test('is refused for a future instant', async () => {
  const at = '2027-01-01T00:00:00Z';
  expect((await world.ask('GET', `${ORDERS}/as-of?at=${at}`)).json()).toMatchObject({
    code: 'bad-request',
    detail: expect.stringMatching(/^at in the query is in the future: the store's time is 2026-/) as string,
  });
  const told = await world.ask('GET', `${ORDERS}/explain${item('kept', { at })}`);
  expect(told.json()).toMatchObject({ sentence: expect.stringMatching(/^If nothing changes from 2026-/) as string });
});

describe('lives deleted with their partition key, without a record of their own yet,', () => {
  test('are not shown at later instants, and ended at the same time under other policies', async () => {
    await world.ask('POST', '/purge/pause');
    await world.write('late');
    await world.store.advanceClock(2_000);
    await world.store.deletePartitionKey(WRITER, world.store.container('shop', 'orders'), '["ann"]');
    await world.store.advanceClock(10_000);
    for (const paused of [true, false]) {
      if (!paused) {
        await world.ask('POST', '/purge/resume');
        await world.ask('POST', '/purge/run');
      }
      for (const [at, items] of [
        ['2026-11-21T11:01:01.999Z', 2],
        ['2026-11-21T11:01:02Z', 0],
        ['2026-11-21T11:01:12Z', 0],
      ] as const) {
        expect((await world.ask('GET', `${ORDERS}/as-of?at=${at}`)).json()).toMatchObject({ items });
      }
      expect((await replay([{ from: START, defaultTtl: 5 }])).json()).toMatchObject({ counts: { same: 2, also: 0 } });
    }
  });
});

describe('the content of an item in its past', () => {
  const content = (id: string, more: Readonly<Record<string, string>>, key = READ_ONLY_KEY) =>
    world.ask('GET', `${ORDERS}/content${item(id, more)}`, { key });

  test('has its names in the order in which they were written, and its numbers with all digits', async () => {
    const json = '{"id":"new","customer":"ann","b":{"10":1,"9":12345678901234567},"2":[],"1":1.5}';
    await world.writeText('new', json);
    expect((await content('new', { revision: '0' })).body).toContain(`"document":${json}}`);
  });

  test('is shown by instant or revision while the item exists, and to no auditor', async () => {
    await world.write('renewed', { step: 3 });
    await world.store.advanceClock(1_000);
    await world.write('renewed', { step: 4 });
    const past = await content('renewed', { at: '2026-11-21T11:01:00.500Z' });
    expect(past.json()).toMatchObject({
      id: 'renewed',
      life: 1,
      revision: 0,
      writtenAt: '2026-11-21T11:01:00.000Z',
      document: { id: 'renewed', customer: 'ann', step: 3 },
    });
    expect((await content('renewed', { revision: '1' })).json()).toMatchObject({ document: { step: 4 } });
    expect((await content('renewed', { revision: '1' }, AUDITOR_KEY)).statusCode).toBe(403);
    // An earlier life has ended, so its content is out of reach.
    expect((await content('renewed', { at: '2026-11-21T10:00:10Z' })).json()).toMatchObject({ code: 'item-not-found' });
    expect((await content('short', {})).json()).toMatchObject({ status: 404, code: 'item-not-found' });
    // The future content, and whether the item will exist, is unknown.
    const toCome = new Date(world.store.nowMs() + 1).toISOString();
    for (const wrong of [{ at: toCome }, { at: '2026-11-21T11:01:00.500Z', revision: '0' }]) {
      expect((await content('renewed', wrong)).json()).toMatchObject({ status: 400, code: 'bad-request' });
    }
  });

  test('keeps the digits of integers that no double can hold', async () => {
    const json = '{"id":"long","customer":"ann","n":9007199254740993}';
    const document = JSON.parse(json) as Document;
    const container = world.store.container('shop', 'orders');
    await world.store.writeItem(WRITER, container, 'create', { id: 'long', partitionKey: '["ann"]', document, json });
    expect((await content('long', {})).payload).toContain('"n":9007199254740993');
  });
});
