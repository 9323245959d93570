import { describe, expect, it } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { Destructions } from '../src/purge/destructions.ts';

const context: CommandContext = {
  nowMs: 1_000,
  actor: 'system:purge',
  correlationId: 'test',
  newId: () => crypto.randomUUID(),
};
const withLog = () => {
  const log = new MemoryEventLog();
  return { log, destructions: new Destructions(log, new ToyBodySealer()) };
};

describe('the count of a vault’s destructions', () => {
  it('is recorded once for each new maximum', async () => {
    const { log, destructions } = withLog();
    expect(await destructions.recorded()).toBe(0);
    for (const count of [3, 3, 2, 5]) await destructions.record(context, count);
    expect(await destructions.recorded()).toBe(5);
    expect(log.readAll(0, 10).map(({ data }) => data)).toEqual([{ count: 3 }, { count: 5 }]);
  });

  it('is missing in a vault that has counted fewer, which is then refused', async () => {
    const { destructions } = withLog();
    const counting = (count: number) => Object.assign(new MemoryKeyVault(), { destructions: async () => count });
    await destructions.record(context, 3);
    await expect(destructions.assertIn(counting(2))).rejects.toThrow(/older copy than the event log.*epitaph restore/);
    for (const vault of [counting(3), counting(4), new MemoryKeyVault()]) await destructions.assertIn(vault);
  });

  it('has a head that is found only in a log with the same record of it', async () => {
    const { destructions } = withLog();
    const none = await destructions.head();
    expect(none.lines).toBe(0);
    await destructions.record(context, 3);
    const three = await destructions.head();
    expect(three.lines).toBe(3);
    await destructions.record(context, 5);
    const five = await destructions.head();
    for (const head of [none, three, five]) expect(await destructions.reaches(head)).toBe(true);
    expect(await destructions.reaches({ ...three, lines: 4 })).toBe(false);
    expect(await destructions.reaches({ ...three, lines: 5 })).toBe(false);
    expect(await destructions.reaches({ ...five, lines: 6 })).toBe(false);
    const other = withLog().destructions;
    expect(await other.reaches(none)).toBe(true);
    expect(await other.reaches(three)).toBe(false);
    await other.record(context, 3);
    expect(await other.reaches(three)).toBe(false);
    expect(await other.reaches(await other.head())).toBe(true);
  });
});
