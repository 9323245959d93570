import { expect, it } from 'vitest';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import type { PurgePorts } from '../src/purge/ports.ts';
import { Truncations } from '../src/purge/truncations.ts';

it('searches a long log for what a crash has left, with turns for other work in between', async () => {
  const page = (after: number) =>
    Array.from(
      { length: 1_000 },
      (_, index) => ({ type: 'ItemUpserted', position: after + index + 1 }) as RecordedEvent,
    );
  const log = { head: () => 2_000_000, readAll: (after: number) => (after < 2_000_000 ? page(after) : []) };
  const truncations = new Truncations({ log, projected: () => Promise.resolve() } as unknown as PurgePorts);
  let turns = 0;
  const counting = setInterval(() => (turns += 1));
  await truncations.finish(0, 0);
  clearInterval(counting);
  expect(turns).toBeGreaterThan(1);
});

it('examines the lives that a crash has left with turns for other work in between, even if a page of the log has a thousand', async () => {
  const lives = 30;
  let turns = 0;
  const seen = new Set<number>();
  const log = {
    head: () => lives,
    readAll: (after: number) =>
      Array.from({ length: lives - after }, (_, index) => ({
        type: 'ItemPurged',
        stream: `item-r.${index}.0`,
        position: after + index + 1,
      })),
    readLast: () => {
      const untilMs = performance.now() + TURN_MS + 1;
      while (performance.now() < untilMs);
      seen.add(turns);
      return undefined;
    },
    readStream: () => [],
  };
  const truncations = new Truncations({ log, projected: () => Promise.resolve() } as unknown as PurgePorts);
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  await truncations.finish(0, 0);
  isOver = true;
  expect(seen.size).toBe(lives);
});

it('reads no part of the log twice in search of what a crash has left, except after a fault or from an earlier beginning', async () => {
  const read: number[] = [];
  let head = 2_500;
  let fails = true;
  const log = {
    head: () => head,
    readAll: (after: number) => {
      read.push(after);
      if (after === 2_000 && fails) throw new Error('away');
      const length = Math.min(1_000, head - after);
      return Array.from({ length }, (_, index) => ({ type: 'ItemUpserted', position: after + index + 1 }));
    },
  };
  const truncations = new Truncations({ log, projected: () => Promise.resolve() } as unknown as PurgePorts);
  const readFrom = async (position: number) => {
    await truncations.finish(position, 0);
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
  head = 2_700;
  expect(await readFrom(2_700)).toEqual([2_700]);
  // The store is closed meanwhile.
  await truncations.finish(1_000, 0, () => read.length === 1);
  expect(read.splice(0)).toEqual([1_000]);
  expect(await readFrom(1_000)).toEqual([2_000, 2_700]);
});

it('ends its search for what a crash has left, however fast the log grows meanwhile', async () => {
  let head = 1_500;
  const log = {
    head: () => head,
    readAll: (after: number) => {
      if (head > 100_000) throw new Error('it goes on for ever');
      const length = Math.min(1_000, head - after);
      head += 10;
      return Array.from({ length }, (_, index) => ({ type: 'ItemUpserted', position: after + index + 1 }));
    },
  };
  const truncations = new Truncations({ log, projected: () => Promise.resolve() } as unknown as PurgePorts);
  await truncations.finish(0, 0);
  expect(head).toBeLessThan(2_000);
});
