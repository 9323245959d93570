import { expect, it } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { recorded } from '@epitaph/core/item/handle.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import type { CatalogContainer } from '../src/catalog/catalog.ts';
import { PurgeExecutor, type PurgePorts } from '../src/purge/executor.ts';
import type { ItemRow } from '../src/read-model-store.ts';

it('looks through a long log for what a crash has left with turns for others in between', async () => {
  const page = (after: number) =>
    Array.from(
      { length: 1_000 },
      (_, index) => ({ type: 'ItemUpserted', position: after + index + 1 }) as RecordedEvent,
    );
  const log = { readAll: (after: number) => (after < 2_000_000 ? page(after) : []) };
  const executor = new PurgeExecutor({ log } as unknown as PurgePorts);
  let turns = 0;
  const counting = setInterval(() => (turns += 1));
  await executor.finishTruncations(0, 0);
  clearInterval(counting);
  expect(turns).toBeGreaterThan(1);
});

it('reads no part of the log twice for what a crash has left, unless it is to begin before that or it failed', async () => {
  const read: number[] = [];
  let head = 2_500;
  let fails = true;
  const log = {
    readAll: (after: number) => {
      read.push(after);
      if (after === 2_000 && fails) throw new Error('away');
      const length = Math.min(1_000, head - after);
      return Array.from({ length }, (_, index) => ({ type: 'ItemUpserted', position: after + index + 1 }));
    },
  };
  const executor = new PurgeExecutor({ log } as unknown as PurgePorts);
  const readFrom = async (position: number) => {
    await executor.finishTruncations(position, 0);
    return read.splice(0);
  };
  await expect(readFrom(1_000)).rejects.toThrow('away');
  fails = false;
  expect(read.splice(0)).toEqual([1_000, 2_000]);
  expect(await readFrom(1_000)).toEqual([2_000, 2_500]);
  expect(await readFrom(1_500)).toEqual([2_500]);
  head = 2_600;
  expect(await readFrom(1_000)).toEqual([2_500, 2_600]);
  expect(await readFrom(900)).toEqual([900, 1_900, 2_600]);
  expect(await readFrom(2_700)).toEqual([2_700]);
});

it('removes a write, too, that another node records of a live item while its key is destroyed', async () => {
  const log = new MemoryEventLog();
  const vault = new MemoryKeyVault();
  const sealer = new ToyBodySealer();
  const stream = 'item-rid.hash.0';
  const { key } = vault.createKey(stream);
  const context: CommandContext = {
    nowMs: 1_000,
    actor: 'test',
    correlationId: 'test',
    newId: () => crypto.randomUUID(),
  };
  const write = (revision: number) => {
    const data = {
      id: 'i',
      partitionKey: '["p"]',
      ts: 1,
      ttl: null,
      policyVersion: 1,
      bytes: 2,
      key: key.keyId,
      operation: 'upsert',
    } as const;
    const body = sealer.seal(key, stream, revision, '{}');
    const event = { ...recorded(context, { type: 'ItemUpserted', data }), body };
    return log.append([{ stream, expectedRevision: revision === 0 ? 'no-stream' : revision - 1, events: [event] }]);
  };
  await write(0);
  const erasedPositions: number[] = [];
  const executor = new PurgeExecutor({
    log,
    vault: Object.assign(Object.create(vault), {
      destroyKeys: async (...requests: Parameters<typeof vault.destroyKeys>) => {
        await write(1);
        return vault.destroyKeys(...requests);
      },
    }) as MemoryKeyVault,
    sealer,
    naming: { itemStreamPrefix: () => 'item-rid.hash' },
    catalog: () => ({ goneAtMs: () => 1_000, containerByRid: () => undefined }),
    projected: async () => {},
    onErased: (positions: readonly number[]) => erasedPositions.push(...positions),
    copiesKeptUntilMs: () => null,
    newId: () => crypto.randomUUID(),
  } as unknown as PurgePorts);
  const container = { number: 1, state: { rid: 'rid' } } as CatalogContainer;
  const row = { partitionKey: '["p"]', id: 'i', life: 0 } as ItemRow;
  expect(await executor.eraseItems(container, [row], () => 2_000)).toMatchObject({ purged: 1 });
  await executor.truncated();
  const left = log.readStream(stream);
  expect(left.map(({ type, revision }) => [type, revision])).toEqual([['ItemPurged', 2]]);
  const bytes = 2 * sealer.seal(key, stream, 0, '{}').length;
  expect(left[0]!.data).toMatchObject({ remains: { sealedBytes: bytes, removedBy: 'truncation' } });
  expect(erasedPositions).toContain(2);
});
