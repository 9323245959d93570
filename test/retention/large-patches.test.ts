import { expect, it } from 'vitest';
import { inThisHeap } from '@epitaph/api/store/heap.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { turn } from '@epitaph/core/turn.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
/** The number of patches of large documents that run at the same time. */
const AT_ONCE = inThisHeap(32);

it('large patches that are decided again keep no place from others for which a command on the container waits', async () => {
  const gate = Promise.withResolvers<void>();
  const met = new Set<string>();
  /** Once the gate is open, each patch but the last one first loses against another writer. */
  const losing = (log: EventLog): void => {
    const append = log.append.bind(log);
    log.append = async (...[appends, options]: Parameters<EventLog['append']>) => {
      const [{ stream, events }] = appends as [(typeof appends)[0]];
      const isFirst = events[0]!.data['operation'] === 'patch' && !met.has(stream);
      if (!isFirst) return append(appends, options);
      met.add(stream);
      await gate.promise;
      return { kind: 'conflict', stream, expectedRevision: 0, actualRevision: 1 };
    };
  };
  const { store } = await openInlineStore('large-patches', ({ log }) => losing(log));
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
  const write = async (id: string, ttl: number) => {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p', ttl, text: 'x'.repeat(70_000) }));
  };
  for (let index = 0; index < AT_ONCE; index++) await write(`i${index}`, 50);
  await write('last', -1);
  const patch = (id: string) =>
    store.patchItem(CALLER, container, id, '["p"]', { operations: [{ op: 'set', path: '/n', value: 1 }] });
  const patched = Array.from({ length: AT_ONCE }, (_, index) => patch(`i${index}`));
  const outcomes = Promise.allSettled(patched);
  await expect.poll(() => met.size).toBe(AT_ONCE);
  // The last patch is admitted, and waits for a place.
  const last = patch('last');
  for (let turns = 0; turns < 5; turns++) await turn();
  const deleted = store.deletePartitionKey(CALLER, container, '["other"]');
  for (let turns = 0; turns < 5; turns++) await turn();
  await store.advanceClock(60_000);
  gate.resolve();
  await Promise.all([last, deleted]);
  for (const outcome of await outcomes) expect(outcome).toMatchObject({ reason: { code: 'item-not-found' } });
});
