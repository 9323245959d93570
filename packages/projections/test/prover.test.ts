import { afterEach, expect, it, onTestFinished, vi } from 'vitest';
import { newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { base64 } from '@epitaph/core/proof/checkpoint.ts';
import { CompactTree } from '@epitaph/core/proof/merkle-tree.ts';
import { factHash, sha256 } from '../src/proof/proof-tree.ts';
import { Prover } from '../src/proof/prover.ts';
import type { ProofStore, Tile } from '../src/proof/proof-store.ts';

const log = new MemoryEventLog();
afterEach(() => log.close());

/** A caller that waited for ever would prevent the store from closing. */
it('tells callers that wait for a fact that the tree can’t be written, or that the prover has stopped', async () => {
  const context = { nowMs: 0, actor: 'test', correlationId: crypto.randomUUID(), newId: () => crypto.randomUUID() };
  const events = [newEvent(context, { type: 'PurgePaused', data: {} }, 1)];
  const faults: unknown[] = [];
  const store: ProofStore = {
    state: () => ({ size: 0, position: 0 }),
    write: () => {
      throw new Error('the disk is full');
    },
    tile: () => undefined,
    tileAt: () => undefined,
    clear: () => {},
    close: () => {},
  };
  const prover = new Prover(log, store, (error) => faults.push(error));
  prover.start();
  const waiting = prover.reached(1);
  await log.append([{ stream: 'purge-control', expectedRevision: 'no-stream', events }]);
  await expect(waiting).rejects.toThrow('the disk is full');
  const waitsOn = prover.reached(2);
  waitsOn.catch(() => {});
  await prover.stop();
  await expect(waitsOn).rejects.toThrow('stopped');
  expect(faults.length).toBeGreaterThan(0);
}, 4_000);

it('writes each fact once, in order, after a fault of the log, including facts received and not yet written', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const facts = new MemoryEventLog();
  const context = { nowMs: 0, actor: 'test', correlationId: crypto.randomUUID(), newId: () => crypto.randomUUID() };
  const append = (revision: number) => {
    const events = [newEvent(context, { type: 'PurgePaused', data: {} }, 1)];
    const expectedRevision = revision === 0 ? 'no-stream' : revision - 1;
    return facts.append([{ stream: 'purge-control', expectedRevision, events }]);
  };
  for (let revision = 0; revision < 3; revision += 1) await append(revision);
  const away = Promise.withResolvers<void>();
  const subscribe = vi
    .fn<EventLog['subscribe']>((after, listener) => facts.subscribe(after, listener))
    .mockImplementationOnce((after, listener) =>
      facts.subscribe(after, {
        ...listener,
        onEvents: async (events) => {
          await listener.onEvents(events);
          listener.onError?.(new Error('the log is away'));
          away.resolve();
        },
      }),
    );
  const tiles = new Map<string, Tile>();
  let state = { size: 0, position: 0 };
  const store: ProofStore = {
    state: () => state,
    write: (written, reached) => {
      for (const tile of written) tiles.set(`${tile.level}/${tile.number}`, tile);
      state = reached;
    },
    tile: (level, number) => tiles.get(`${level}/${number}`),
    tileAt: () => undefined,
    clear: () => {},
    close: () => {},
  };
  const prover = new Prover({ subscribe } as unknown as EventLog, store, () => {});
  prover.start();
  await away.promise;
  await append(3);
  const reached = prover.reached(4);
  await vi.advanceTimersByTimeAsync(1_000);
  await reached;
  const tree = new CompactTree(sha256);
  for (const event of facts.readStream('purge-control')) tree.append(factHash(event));
  expect([prover.tree.size, base64(prover.tree.root())]).toEqual([4, base64(tree.root())]);
  let isThere = false;
  const next = prover.reached(6).then(() => (isThere = true));
  const before = prover.reached(5);
  await append(4);
  await before;
  expect([prover.tree.size, isThere]).toEqual([5, false]);
  await append(5);
  await next;
  await prover.stop();
  await facts.close();
});
