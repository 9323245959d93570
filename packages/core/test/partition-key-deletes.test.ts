import { expect, it } from 'vitest';
import { lastBeforeItLeft, leftWithPartitionKey, takenAway } from '@epitaph/core/container/partition-key-deletes.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';

const log = new MemoryEventLog();
const context = { nowMs: 0, actor: 'test', correlationId: crypto.randomUUID(), newId: () => crypto.randomUUID() };
const event = () => newEvent(context, { type: 'ItemUpserted', data: {} }, 1);

it('a life deleted with its partition key ends at its last write before the delete, if it existed by then', async () => {
  const stream = 'item-Co1.a.0';
  const at: number[] = [];
  // The positions in between are those where a delete may be.
  for (const revision of [-1, 0, 1, 2]) {
    await log.append([
      { stream: 'container-Co1', expectedRevision: at.length === 0 ? 'no-stream' : revision, events: [event()] },
    ]);
    const written = await log.append([
      { stream, expectedRevision: revision < 0 ? 'no-stream' : revision, events: [event()] },
    ]);
    if (written.kind === 'appended') at.push(written.position);
  }
  const last = log.readLast(stream)!;
  const standsAt = async (...deletes: readonly (readonly [key: string, position: number])[]) => {
    const partitionKeyDeletes = deletes.map(([key, position]) => ({
      partitionKey: `["${key}"]`,
      position,
      atMs: 0,
      by: 'test',
    }));
    return at.indexOf((await lastBeforeItLeft(log, { partitionKeyDeletes }, '["a"]', last)).position);
  };
  const before = (write: number) => at[write]! - 1;
  expect(await standsAt()).toBe(3);
  for (const write of [1, 2, 3]) expect(await standsAt(['a', before(write)])).toBe(write - 1);
  expect(await standsAt(['a', before(0)])).toBe(3);
  expect(await standsAt(['a', last.position + 1])).toBe(3);
  expect(await standsAt(['b', before(2)])).toBe(3);
  expect(await standsAt(['b', before(1)], ['a', before(0)], ['a', before(3)], ['a', last.position + 1])).toBe(2);
});

it('a life leaves with its partition key unless its own end is recorded', async () => {
  const stream = 'item-Co1.b.0';
  await log.append([{ stream, expectedRevision: 'no-stream', events: [event()] }]);
  const write = log.readLast(stream)!;
  const pending = { partitionKey: '["b"]', position: write.position + 1, atMs: 0, by: 'test' };
  await log.append([{ stream: 'container-Co2', expectedRevision: 'no-stream', events: [event()] }]);
  const left = async () =>
    leftWithPartitionKey(log, { partitionKeyDeletes: [pending] }, '["b"]', log.readLast(stream)!);
  expect(await left()).toBe(pending);
  const deleted = newEvent(context, { type: 'ItemDeleted', data: {} }, 1);
  await log.append([{ stream, expectedRevision: 0, events: [deleted] }]);
  expect(await left()).toBe(undefined);
});

it('only deletes of partition keys and of the container take items away', async () => {
  const stream = 'container-Co3';
  const types = ['ContainerCreated', 'PartitionKeyDeleted', 'ContainerTtlChanged', 'ContainerDeleted'];
  const events = types.map((type) => newEvent(context, { type, data: {} }, 1));
  await log.append([{ stream, expectedRevision: 'no-stream', events }]);
  const between = { after: 0, before: log.head() };
  const taken: string[] = [];
  for await (const { type } of takenAway(log, 'Co3', between)) taken.push(type);
  expect(taken).toEqual(['ContainerDeleted', 'PartitionKeyDeleted']);
});
