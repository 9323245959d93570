import { connect, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import Fastify, { type FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { KeyRing } from '@epitaph/api/http/keys.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import { AUDITOR_KEY, openWorld, ORDERS, SECONDARY_KEY, type World } from './world.ts';

type Facts = ReturnType<StoreApi['facts']>;

let world: World;
let app: FastifyInstance;
let port: number;
let sockets: Socket[];
let logged: string[];
beforeEach(async () => {
  sockets = [];
  logged = [];
  world = await openWorld();
  app = Fastify({ logger: { stream: { write: (line: string) => void logged.push(line) } } });
  const keys = new KeyRing({ primary: SECONDARY_KEY, auditor: AUDITOR_KEY });
  registerManagement(app, { store: world.store, keys, unsentTimeoutMs: 500 });
  port = Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port);
});
afterEach(async () => {
  vi.restoreAllMocks();
  for (const socket of sockets) socket.destroy();
  await app.close();
  await world.close();
});

/**
 * Endless facts, or as many as given.
 *
 * @returns counts of the reads that have begun and ended
 */
function manyFacts(count = Number.POSITIVE_INFINITY): { begun: number; ended: number } {
  const state = { begun: 0, ended: 0 };
  vi.spyOn(world.store, 'facts').mockImplementation(async function* (): AsyncGenerator {
    state.begun += 1;
    try {
      for (let page = 0; page < count; page += 1) {
        yield [{ text: 'x'.repeat(100_000) }];
        await wait(0);
      }
    } finally {
      state.ended += 1;
    }
  } as unknown as () => Facts);
  return state;
}

/** Sends a request, and reads nothing of the answer. */
function ask(target: string, method = 'GET'): Socket {
  const head = `${method} /_epitaph${target} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${AUDITOR_KEY}\r\n\r\n`;
  const socket = connect(port, '127.0.0.1', () => socket.write(head));
  socket.on('error', () => {});
  sockets.push(socket);
  return socket;
}

describe('a streamed answer', () => {
  test('is not computed for a HEAD request', async () => {
    await world.write('a');
    await world.store.advanceClock(100_000);
    await world.ask('POST', '/purge/run');
    const { runs } = (await world.get('/purge/runs')) as { runs: readonly { readonly id: string }[] };
    const facts = manyFacts(2);
    const asOf = vi.spyOn(world.store, 'asOf');
    const bundled = vi.spyOn(world.store, 'containerFacts');
    for (const [target, accept, type] of [
      ['/proof/facts', '*/*', 'application/x-ndjson; charset=utf-8'],
      [`${ORDERS}/as-of?at=2026-11-21T10:00:00Z`, 'application/x-ndjson', 'application/x-ndjson; charset=utf-8'],
      [`${ORDERS}/as-of?at=2026-11-21T10:00:00Z`, 'text/event-stream', 'text/event-stream'],
      [`${ORDERS}/bundle`, '*/*', 'application/gzip'],
      [`${ORDERS}/certificates`, '*/*', 'application/x-ndjson; charset=utf-8'],
      [`${ORDERS}/disappearances`, 'text/csv', 'text/csv; charset=utf-8'],
      [`/purge/runs/${runs[0]!.id}/certificates`, '*/*', 'application/x-ndjson; charset=utf-8'],
    ] as const) {
      const { statusCode, headers, body } = await app.inject({
        method: 'HEAD',
        url: `/_epitaph${target}`,
        headers: { authorization: `Bearer ${AUDITOR_KEY}`, accept },
      });
      expect([target, statusCode, headers['content-type'], headers['content-length'], body]).toEqual([
        target,
        200,
        type,
        undefined,
        '',
      ]);
    }
    await wait(100);
    expect(facts).toEqual({ begun: 0, ended: 0 });
    expect(asOf).not.toHaveBeenCalled();
    expect(bundled).not.toHaveBeenCalled();
  });

  test('ends for a client that reads nothing of it, and not for a slow one', { timeout: 30_000 }, async () => {
    const facts = manyFacts();
    const idle = ask('/proof/facts');
    const slow = ask('/proof/facts');
    let bytes = 0;
    await new Promise<void>((resolve, reject) => {
      slow.on('close', () => reject(new Error(`hung up on after ${bytes} bytes`)));
      slow.on('data', (chunk) => {
        bytes += chunk.length;
        if (facts.ended === 1 && bytes > 12_000_000) resolve();
        slow.pause();
        setTimeout(() => slow.resume(), 10);
      });
    });
    expect(facts).toEqual({ begun: 2, ended: 1 });
    idle.destroy();
  });

  test('can be abandoned by its client without an error of the server', async () => {
    const begun = vi.spyOn(world.store, 'containerFacts').mockImplementation(async function* (): AsyncGenerator {
      for (;;) {
        await wait(10);
        yield [];
      }
    } as unknown as () => ReturnType<StoreApi['containerFacts']>);
    const leaving = ask(`${ORDERS}/bundle`);
    leaving.resume();
    await vi.waitFor(() => expect(begun).toHaveBeenCalled());
    leaving.destroy();
    await vi.waitFor(() =>
      expect(logged.join('')).toContain('a bundle was not sent completely: the client disconnected'),
    );
    expect(logged.filter((line) => /"err"|"level":[456]0/.test(line))).toEqual([]);
  });

  test('waits for work that has nothing to send for a long time', { timeout: 30_000 }, async () => {
    vi.spyOn(world.store, 'facts').mockImplementation(async function* (): AsyncGenerator {
      await wait(1_700);
      yield [{ at: 'last' }];
    } as unknown as () => Facts);
    const answer = await fetch(`http://127.0.0.1:${port}/_epitaph/proof/facts`, {
      headers: { authorization: `Bearer ${AUDITOR_KEY}` },
    });
    expect(await answer.text()).toBe('{"at":"last"}\n');
  });

  test('does not prevent the server from stopping, whether or not its client reads it', async () => {
    const facts = manyFacts();
    const idle = ask('/proof/facts');
    ask('/proof/facts').resume();
    await vi.waitFor(() => expect(facts.begun).toBe(2));
    await wait(200);
    const startedMs = performance.now();
    await app.close();
    expect(performance.now() - startedMs).toBeLessThan(400);
    await vi.waitFor(() => expect(facts.ended).toBe(2));
    idle.destroy();
  });
});
