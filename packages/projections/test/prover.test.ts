import { afterEach, expect, it } from 'vitest';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { Prover } from '../src/proof/prover.ts';
import type { ProofStore } from '../src/proof/proof-store.ts';

const log = new MemoryEventLog();
afterEach(() => log.close());

/** Somebody who waits for ever would keep a store from closing. */
it('tells who waits for a fact that the tree can not be written, and that it goes on no more', async () => {
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
