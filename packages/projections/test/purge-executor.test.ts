import { expect, it } from 'vitest';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { PurgeExecutor, type PurgePorts } from '../src/purge/executor.ts';

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
