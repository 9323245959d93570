import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Measurements } from '@epitaph/api/metrics/measurements.ts';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { Operations } from '@epitaph/api/store/operations/operations.ts';
import type { StoreParts } from '@epitaph/api/store/parts.ts';
import type { Rebuilds } from '@epitaph/api/store/operations/rebuilds.ts';
import type { Backups } from '@epitaph/api/store/operations/backups.ts';
import type { Scavenging } from '@epitaph/api/store/operations/scavenging.ts';
import { PurgeFault } from '@epitaph/projections/purge/faults.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { PartUnreadable } from '@epitaph/api/store/damage.ts';
import { LifeUnreadable } from '@epitaph/core/item/handle.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { SealBroken } from '@epitaph/core/vault/body-sealer.ts';
import { eventsIn, item, openWorld, ORDERS, START_MS, type World } from './world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

describe('health', () => {
  test('is always live, and ready while the store is', async () => {
    expect(await world.get('/health/live')).toEqual({ status: 'live' });
    expect(await world.get('/health/ready')).toEqual({ status: 'ready' });
    await world.store.close();
    expect(await world.get('/health/live')).toEqual({ status: 'live' });
    const response = await world.ask('GET', '/health/ready', { key: null });
    expect([response.statusCode, response.json()]).toEqual([
      503,
      { status: 'not-ready', reasons: ['the store is closing'] },
    ]);
  });

  test('is not ready when the read models are too far behind', () => {
    const readiness = (headPosition: number, readyLagEvents?: number, log = {}) => {
      const ports = { clockJump: () => {}, log };
      const parts = { headPosition: () => headPosition, projector: { position: 100 }, ports };
      return new Operations(
        parts as unknown as StoreParts,
        {} as PurgeRunner,
        {} as Rebuilds,
        {} as Scavenging,
        {} as Backups,
        new Measurements(),
        {
          readyLagEvents,
        },
      ).health();
    };
    expect(readiness(10_100)).toEqual({ ready: true, reasons: [] });
    expect(readiness(10_101)).toEqual({ ready: false, reasons: ['the projection is 10001 events behind'] });
    expect(readiness(105, 5).ready).toBe(true);
    expect(readiness(106, 5).ready).toBe(false);
    // Positions that are bytes, as in an event store's log.
    expect(readiness(5_100, 5, { positionsPerEvent: 1_000 }).ready).toBe(true);
    expect(readiness(5_101, 5, { positionsPerEvent: 1_000 }).ready).toBe(false);
  });

  test('is not ready after a fault of the projector, whose details are not public', () => {
    const error = 'PostgreSQL: password authentication failed for user "epitaph"';
    const parts = { headPosition: () => 0, projector: { position: 0, error }, ports: { clockJump: () => {}, log: {} } };
    const operations = new Operations(
      parts as unknown as StoreParts,
      {} as PurgeRunner,
      {} as Rebuilds,
      {} as Scavenging,
      {} as Backups,
      new Measurements(),
      {},
    );
    expect(operations.health()).toEqual({
      ready: false,
      reasons: ['the projection has failed: GET /_epitaph/projections says why'],
    });
  });

  test('shows the time of a held clock, and the expected one', () => {
    const jump = { reason: 'wall-clock-jumped', wallMs: START_MS + 3_600_000, expectedMs: START_MS + 0.5 };
    const parts = { headPosition: () => 0, projector: { position: 0 }, ports: { clockJump: () => jump, log: {} } };
    const operations = new Operations(
      parts as unknown as StoreParts,
      {} as PurgeRunner,
      {} as Rebuilds,
      {} as Scavenging,
      {} as Backups,
      new Measurements(),
      {},
    );
    expect(operations.health().reasons).toEqual([`the clock is held: ${operations.clockHeld()}`]);
    expect(operations.health().reasons).toEqual([
      'the clock is held: the system clock says 2026-11-21T11:00:00.000Z, expected was 2026-11-21T10:00:00.000Z (wall-clock-jumped); if the system clock is right, confirm it: epitaph clock confirm, or POST /_epitaph/clock/confirm',
    ]);
  });
});

describe('the clock', () => {
  test('is advanced by hand if it is manual', async () => {
    expect(await world.get('/clock')).toEqual({ now: '2026-11-21T10:00:00.000Z', nowMs: START_MS, kind: 'manual' });
    const response = await world.ask('POST', '/clock/advance', { body: { milliseconds: 7 * 365 * 86_400_000 } });
    expect(response.json()).toMatchObject({ now: '2033-11-19T10:00:00.000Z' });
    expect((await world.ask('POST', '/clock/confirm')).json()).toMatchObject({ now: '2033-11-19T10:00:00.000Z' });
  });

  test('can be accepted with the purge paused', async () => {
    await world.ask('POST', '/clock/confirm', { body: { pausePurge: false } });
    expect(await world.get('/purge')).toMatchObject({ state: 'idle' });
    await world.ask('POST', '/clock/confirm', { body: { pausePurge: true } });
    expect(await world.get('/purge')).toMatchObject({ state: 'paused' });
    expect((await world.ask('POST', '/clock/confirm', { body: { pausePurge: 1 } })).statusCode).toBe(400);
    await world.ask('POST', '/purge/resume');
  });

  test('tells why it is held with every answer of the time', async () => {
    const held = vi.spyOn(world.store, 'clockHeld').mockReturnValue('the system clock says …');
    expect(await world.get('/clock')).toMatchObject({ held: 'the system clock says …' });
    held.mockRestore();
  });

  test('tells for how long it stands still after it was ahead, also in the metrics', async () => {
    const stands = vi.spyOn(world.store, 'clockStandsStillMs').mockReturnValue(7_200_500);
    expect(await world.get('/clock')).toMatchObject({ standsStillFor: 'PT7200.5S', standsStillForMs: 7_200_500 });
    expect(await metricsText(world.store)).toContain('\nepitaph_clock_stands_still_seconds 7200.5\n');
    stands.mockRestore();
    expect(await metricsText(world.store)).toContain('\nepitaph_clock_stands_still_seconds 0\n');
  });

  test('has recorded who accepted it after a jump, and the expected time', async () => {
    const jump = { reason: 'wall-clock-jumped', wallMs: START_MS + 3_600_000, expectedMs: START_MS + 0.5 } as const;
    const confirms = vi.spyOn(world.store, 'confirmClock').mockResolvedValueOnce(jump);
    await world.ask('POST', '/clock/confirm');
    confirms.mockRestore();
    const data = { expectedMs: START_MS, wallMs: START_MS + 3_600_000 };
    const { events } = await world.get('/history');
    expect(events).toContainEqual(expect.objectContaining({ type: 'ClockConfirmed', actor: 'key:primary', data }));
  });
});

describe('the purge', () => {
  test('shows its backlog, and a run answers once all is done', async () => {
    for (let n = 0; n < 20; n += 1) await world.write(`n${n}`);
    await world.store.advanceClock(62_000);
    expect(await world.get('/purge')).toMatchObject({
      state: 'idle',
      overdueItems: 20,
      oldestOverdueMs: 2_000,
      oldestOverdue: 'PT2S',
      timeToDrain: null,
    });
    expect((await world.ask('POST', '/purge/run')).json()).toMatchObject({
      expired: 20,
      purged: 20,
      heldBack: 0,
      status: { overdueItems: 0, awaitingErasure: 0, purgedTotal: 20 },
    });
  });

  test('reports its progress while it runs', async () => {
    for (let n = 0; n < 20; n += 1) await world.write(`n${n}`);
    await world.store.advanceClock(62_000);
    const events = eventsIn((await world.ask('POST', '/purge/run', { accept: 'text/event-stream' })).payload);
    expect(events[0]).toMatchObject({ event: 'progress', data: { state: expect.any(String) as string } });
    expect(events.at(-1)).toMatchObject({ event: 'done', data: { purged: 20, status: { overdueItems: 0 } } });
  });

  test('reports a life that it can’t erase with the reason, and not as a defect of the server', async () => {
    const message = 'the vault does not know the key of item-rid.name.0';
    const failing = vi.spyOn(world.store, 'runPurge').mockRejectedValue(new PurgeFault(message));
    const response = await world.ask('POST', '/purge/run');
    failing.mockRestore();
    expect(response.statusCode).toBe(500);
    expect(response.json()).toMatchObject({ code: 'purge-fault', detail: message });
  });

  test.each([
    new UnreadableEvent('ItemUpserted at 7 is damaged'),
    new SealBroken('the body of item-rid.name.0 at revision 0 does not open'),
    new LifeUnreadable('item-rid.name.0', 'unknown'),
  ])(
    'reports damage of the log or the vault with what is damaged, and not as a defect of the server: %s',
    async (error) => {
      const failing = vi.spyOn(world.store, 'explain').mockRejectedValue(error);
      const response = await world.ask('GET', `${ORDERS}/explain${item('a')}`);
      failing.mockRestore();
      expect(response.statusCode).toBe(500);
      expect(response.json()).toMatchObject({ code: 'unreadable', detail: error.message });
    },
  );

  test('reports with an unreadable part also what is damaged', async () => {
    const cause = new UnreadableEvent('ItemUpserted at 7 is damaged.');
    const error = new PartUnreadable('The item "a" can not be read.', { cause });
    const failing = vi.spyOn(world.store, 'explain').mockRejectedValue(error);
    const response = await world.ask('GET', `${ORDERS}/explain${item('a')}`);
    failing.mockRestore();
    expect(response.json()).toMatchObject({ code: 'unreadable', detail: `${error.message} ${cause.message}` });
  });

  test('does nothing while it is paused, and continues afterwards', async () => {
    await world.write('a');
    await world.store.advanceClock(62_000);
    expect((await world.ask('POST', '/purge/pause')).json()).toMatchObject({ state: 'paused' });
    expect((await world.ask('POST', '/purge/run')).json()).toMatchObject({ expired: 0, status: { state: 'paused' } });
    expect((await world.ask('POST', '/purge/resume')).json()).toMatchObject({ state: 'idle', overdueItems: 1 });
    expect((await world.ask('POST', '/purge/run')).json()).toMatchObject({ purged: 1 });
  });
});

describe('policy grace', () => {
  test('is set for a container', async () => {
    const response = await world.ask('PUT', `${ORDERS}/policy-grace`, { body: { seconds: 3600 } });
    expect(response.json()).toMatchObject({ container: { name: 'orders' }, policyGraceSeconds: 3600 });
    expect(world.store.container('shop', 'orders').policyGraceSeconds).toBe(3600);
  });
});

describe('projections', () => {
  test('are rebuilt with progress reports', async () => {
    await world.write('a');
    const started = await world.ask('POST', '/projections/items/rebuild');
    expect(started.statusCode).toBe(202);
    expect(started.headers['location']).toBe('/_epitaph/projections/items/rebuild');
    expect(started.json()).toMatchObject({ state: 'running', version: 2, startedAt: '2026-11-21T10:00:00.000Z' });
    const again = await world.ask('POST', '/projections/items/rebuild');
    expect([again.statusCode, again.json()]).toMatchObject([409, { code: 'already-exists' }]);
    const followed = await world.ask('GET', '/projections/items/rebuild', { accept: 'text/event-stream' });
    expect(followed.headers['content-type']).toBe('text/event-stream');
    expect(eventsIn(followed.payload).at(-1)).toMatchObject({ event: 'done', data: { state: 'done', differences: 0 } });
    expect(await world.get('/projections/items/rebuild')).toMatchObject({ state: 'done' });
    expect(await world.get('/projections')).toMatchObject({
      projections: [
        { name: 'items', byThisNode: true, version: 2, state: 'live', lagEvents: 0, rebuild: { state: 'done' } },
      ],
    });
  });

  test('are unchanged after a rebuild that is cancelled', async () => {
    await world.ask('POST', '/projections/items/rebuild');
    expect((await world.ask('DELETE', '/projections/items/rebuild')).json()).toMatchObject({ state: 'cancelled' });
    expect(await world.get('/projections')).toMatchObject({ projections: [{ version: 1, state: 'live' }] });
  });
});

describe('fsck', () => {
  test('answers with a report, or with progress reports on the way', async () => {
    await world.write('a');
    const report = { ok: true, items: 1, lives: 1, problems: [] };
    expect((await world.ask('POST', '/fsck')).json()).toMatchObject(report);
    const events = eventsIn((await world.ask('POST', '/fsck', { accept: 'text/event-stream' })).payload);
    expect(events[0]).toEqual({ event: 'progress', data: { done: expect.any(Number), total: expect.any(Number) } });
    expect(events.at(-1)).toMatchObject({ event: 'done', data: report });
  });
});

describe('many calls at the same time', () => {
  test('are begun one at a time, with other work in between; health waits for none of them', async () => {
    const order: string[] = [];
    let isRunning = true;
    const others = (): void => {
      order.push('others');
      if (isRunning) setImmediate(others);
    };
    vi.spyOn(world.store, 'clockHeld').mockImplementation(() => void order.push('call'));
    vi.spyOn(world.store, 'health').mockImplementation(() => {
      order.push('health');
      return { ready: true, reasons: [] };
    });
    setImmediate(others);
    await Promise.all([...Array.from({ length: 20 }, () => world.get('/clock')), world.get('/health/ready')]);
    isRunning = false;
    const calls = order.filter((what) => what === 'call');
    expect(calls).toHaveLength(20);
    expect(order.join(' ')).not.toContain('call call');
    expect(order.indexOf('health')).toBeLessThan(order.lastIndexOf('call'));
  });
});

describe('a server that stops', () => {
  test('is not kept from stopping by a client that follows a rebuild', async () => {
    const status = { ...world.store.startRebuild('items'), state: 'running' as const };
    world.store.rebuildStatus = () => status;
    const address = await world.app.listen({ port: 0, host: '127.0.0.1' });
    const response = await fetch(`${address}/_epitaph/projections/items/rebuild`, {
      headers: { authorization: `Bearer ${EMULATOR_KEY}`, accept: 'text/event-stream' },
    });
    const reader = response.body!.getReader();
    await reader.read();
    await world.app.close();
    expect(await reader.read()).toMatchObject({ done: true });
  });

  test.each(['application/json', 'text/event-stream'])(
    'no longer waits for request units, and tells that the purge is not complete (%s)',
    async (accept) => {
      const waits = vi.spyOn(world.store, 'runPurge').mockImplementation(
        ({ signal } = {}) =>
          new Promise((resolve) => {
            signal?.addEventListener('abort', () => resolve({ expired: 0, purged: 0, heldBack: 0 }));
          }),
      );
      const address = await world.app.listen({ port: 0, host: '127.0.0.1' });
      const asked = fetch(`${address}/_epitaph/purge/run?waitSeconds=3600`, {
        method: 'POST',
        headers: { authorization: `Bearer ${EMULATOR_KEY}`, accept },
      });
      await vi.waitFor(() => expect(waits).toHaveBeenCalled());
      const closing = world.app.close();
      const answer = await asked;
      const busy = { code: 'busy', status: 503 };
      if (accept === 'application/json') expect(await answer.json()).toMatchObject(busy);
      else expect(eventsIn(await answer.text()).at(-1)).toMatchObject({ event: 'failed', data: busy });
      world.app.server.closeIdleConnections();
      await closing;
    },
  );
});
