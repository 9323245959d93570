import { expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import type { CatalogContainer } from '../src/catalog/catalog.ts';
import { EndRecorder } from '../src/purge/end-recorder.ts';
import type { PurgePorts } from '../src/purge/ports.ts';
import type { ItemRow } from '../src/read-model-store.ts';

const CONTAINER = 1;
const MINUTE_MS = 60_000;

it('ends that can’t be recorded, and deletes by partition key that can’t be worked off, are tried again after a minute, or when they are asked for', async () => {
  const rows = [1, 2, 3].map((birth) => ({ birth, position: birth }) as ItemRow);
  const state = { rid: 'c', partitionKeyDeletes: [{ position: 4 }], timeline: [] };
  const container = { number: CONTAINER, state } as unknown as CatalogContainer;
  const recorder = new EndRecorder({
    // It has nothing of the container.
    log: new MemoryEventLog(),
    naming: { itemStreamPrefix: () => Promise.reject(new UnreadableSecret('it is lost')) },
    store: () => ({ overdueItems: (_container: number, _marks: unknown, limit: number) => rows.slice(0, limit) }),
    catalog: () => ({ goneAtMs: () => null }),
    newId: () => crypto.randomUUID(),
  } as unknown as PurgePorts);
  const candidates = { effectiveNowMs: MINUTE_MS, upToPosition: 10 };
  const overdueAt = async (nowMs: number) =>
    (await recorder.overdue(container, candidates, 1, nowMs)).map(({ birth }) => birth);
  const isUnfinishedAt = (nowMs: number) => recorder.hasUnfinishedDeletes(container, nowMs);
  const failAll = async () => {
    for (const [index, row] of rows.slice(0, 2).entries()) {
      const { atFault, fault } = await recorder.recordExpiries(container, [row], () => index);
      expect([atFault, fault?.message]).toEqual([1, 'it is lost']);
    }
    const fault = await recorder.completePartitionKeyDeletes(container, 10, () => 0);
    expect(fault?.message).toContain('has nothing of');
  };
  for (const forgotten of [[], [CONTAINER]] as const) {
    await failAll();
    expect([await overdueAt(MINUTE_MS - 1), isUnfinishedAt(MINUTE_MS - 1)]).toEqual([[3], false]);
    recorder.forgetFaults(...forgotten);
    expect([await overdueAt(2), isUnfinishedAt(2)]).toEqual([[1], true]);
  }
  await failAll();
  recorder.forgetFaults(CONTAINER + 1);
  expect([await overdueAt(2), isUnfinishedAt(2)]).toEqual([[3], false]);
  expect([await overdueAt(MINUTE_MS), isUnfinishedAt(MINUTE_MS)]).toEqual([[1], true]);
});
