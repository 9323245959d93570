import { expect, it } from 'vitest';
import type { PartitionKeyDelete } from '@epitaph/core/container/state.ts';
import { recorded } from '@epitaph/core/item/handle.ts';
import type { ExpectedRevision } from '@epitaph/core/log/event-log.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { turn } from '@epitaph/core/turn.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import type { CatalogContainer } from '../src/catalog/catalog.ts';
import { EndRecorder } from '../src/purge/end-recorder.ts';
import type { PurgePorts } from '../src/purge/ports.ts';
import type { ItemRow } from '../src/read-model-store.ts';

const CONTAINER = 1;
const MINUTE_MS = 60_000;

it('ends and deletes by partition key that can’t be recorded are tried again after a minute, or on request', async () => {
  const rows = [1, 2, 3].map((birth) => ({ birth, position: birth }) as ItemRow);
  const state = { rid: 'c', partitionKeyDeletes: [{ position: 4 }], timeline: [] };
  const container = { number: CONTAINER, state } as unknown as CatalogContainer;
  const recorder = new EndRecorder({
    // A log without events of the container.
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
      expect([atFault, fault?.message]).toEqual([[row.birth], 'it is lost']);
    }
    // Deletes that the read models have not reached are not worked off.
    expect(await recorder.completePartitionKeyDeletes(container, 3, () => 0)).toBe(undefined);
    const fault = await recorder.completePartitionKeyDeletes(container, 4, () => 0);
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
  // Items written after the run began are not among its candidates.
  const earlier = await recorder.overdue(container, { ...candidates, upToPosition: 2 }, 3, 2 * MINUTE_MS);
  expect(earlier.map(({ birth }) => birth)).toEqual([1, 2]);
});

/** An item in a container with a TTL of a minute, and a recorder for its end. */
function expiringItem() {
  const log = new MemoryEventLog();
  const stream = 'item-c.hash.0';
  const context = (nowMs: number) => ({ nowMs, actor: 'a', correlationId: 'b', newId: () => crypto.randomUUID() });
  const policy = { fromMs: 0, defaultTtl: 60, version: 1, setBy: 'a', recordedAtMs: 0 };
  const state = { rid: 'c', partitionKeyDeletes: [] as PartitionKeyDelete[], timeline: [policy] };
  const container = { number: CONTAINER, state } as unknown as CatalogContainer;
  const row = { birth: 1, container: CONTAINER, id: 'i', partitionKey: '["p"]', life: 0, ts: 1, ttl: null, key: 1 };
  const item = {
    /** When the container was deleted. */
    goneAtMs: null as number | null,
    /** Commands on the container that are in progress, one after the other. */
    underWay: [] as Promise<unknown>[],
    /** The charges of expiries. */
    spent: [] as number[],
    /** The time up to which it was asked that no policy take effect any more. */
    judgedUpToMs: 0,
    async write(ts: number, expectedRevision: ExpectedRevision): Promise<void> {
      const data = { id: 'i', partitionKey: '["p"]', ts, ttl: null, policyVersion: 1, bytes: 2, key: 1 };
      const event = recorded(context(ts * 1000), { type: 'ItemUpserted', data: { ...data, operation: 'upsert' } });
      await log.append([{ stream, expectedRevision, events: [event] }]);
    },
    async recordAt(position: number, nowMs: number) {
      const { recorded: count, atFault } = await recorder.recordExpiries(
        container,
        [{ ...row, position }],
        () => nowMs,
      );
      return { recorded: count, atFault: atFault.length };
    },
  };
  const recorder = new EndRecorder({
    log,
    naming: { itemStreamPrefix: () => 'item-c.hash' },
    catalog: () => ({ goneAtMs: () => item.goneAtMs, containerByNumber: () => container }),
    projected: async () => {},
    commandUnderWay: () => item.underWay.shift(),
    onExpiriesRecorded: (_container: number, atMs: number) => (item.judgedUpToMs = atMs),
    budget: { spend: (_state: unknown, bytes: number) => item.spent.push(bytes), affordable: () => 3 },
    newId: () => crypto.randomUUID(),
  } as unknown as PurgePorts);
  return { item, recorder, container, partitionKeyDeletes: state.partitionKeyDeletes };
}

it('a row whose deadline contradicts its write, or without a write in the log, is reported; a row of an earlier write is left for the next look', async () => {
  const { item } = expiringItem();
  expect(await item.recordAt(1, 2 * MINUTE_MS)).toEqual({ recorded: 0, atFault: 1 });
  await item.write(1, 'no-stream');
  await item.write(100, 0);
  expect(await item.recordAt(1, 2 * MINUTE_MS)).toEqual({ recorded: 0, atFault: 0 });
  expect(await item.recordAt(2, 2 * MINUTE_MS)).toEqual({ recorded: 0, atFault: 1 });
  expect(await item.recordAt(2, 160_000)).toEqual({ recorded: 1, atFault: 0 });
  expect(item.judgedUpToMs).toBe(160_000);
  // Another node has recorded it meanwhile.
  expect(await item.recordAt(2, 160_000)).toEqual({ recorded: 0, atFault: 0 });
  expect(item.spent).toEqual([2]);
});

it('an expiry in a container that is being deleted is not recorded before its time, and costs nothing', async () => {
  const { item, recorder, container, partitionKeyDeletes } = expiringItem();
  partitionKeyDeletes.push({ partitionKey: '["q"]', atMs: 0, position: 1, by: 'a' });
  expect([recorder.affordable(container), recorder.hasUnfinishedDeletes(container, 0)]).toEqual([3, true]);
  await item.write(1, 'no-stream');
  await item.write(100, 0);
  // By the clock of another node the container is deleted already.
  item.goneAtMs = 170_000;
  expect([recorder.affordable(container), recorder.hasUnfinishedDeletes(container, 0)]).toEqual([Infinity, false]);
  expect(await item.recordAt(1, 2 * MINUTE_MS)).toEqual({ recorded: 0, atFault: 0 });
  expect(await item.recordAt(2, 180_000)).toEqual({ recorded: 1, atFault: 0 });
  expect(item.spent).toEqual([]);
});

it('an expiry is recorded only once no command on its container is in progress, because that may change the deadline', async () => {
  const { item } = expiringItem();
  await item.write(1, 'no-stream');
  item.underWay = [turn(), turn()];
  expect(await item.recordAt(1, MINUTE_MS + 1_000)).toEqual({ recorded: 1, atFault: 0 });
  expect(item.underWay).toEqual([]);
});
