import { expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import { type OpenRun, PurgeRuns } from '../src/purge/runs.ts';
import type { ReadModelStore } from '../src/read-model-store.ts';

/** Some processes that purge, over one log. */
class Processes {
  readonly log = new MemoryEventLog();
  monotonicMs = 0;
  projectedUpTo = 0;
  #ids = 0;

  runs(othersControl: boolean): PurgeRuns {
    const openPurgeRuns = () =>
      this.log.readAll(0, 100).flatMap(({ type, stream, occurredAtMs: startedAtMs, data }) => {
        const isOpen = type === 'PurgeRunStarted' && this.log.readLast(stream)?.type === type;
        return isOpen ? [{ stream, state: { status: 'started', startedAtMs, ...data } }] : [];
      });
    return new PurgeRuns({
      log: this.log,
      store: () => ({ openPurgeRuns }) as unknown as ReadModelStore,
      projected: async (position) => {
        this.projectedUpTo = position;
      },
      newId: () => `${++this.#ids}`,
      clock: new ManualClock(5_000),
      monotonicMs: () => this.monotonicMs,
      othersControl,
    });
  }
}

const counts = { purged: 0 } as unknown as Parameters<PurgeRuns['close']>[1];
const idOf = async (run: Promise<OpenRun | undefined>) => (await run)?.id;

it('a run that a crash left open is continued at once, as it was frozen, and no longer once it is completed', async () => {
  const processes = new Processes();
  const run = await processes.runs(false).open();
  expect(run).toMatchObject({ startedAtMs: 5_000, upToPosition: 0, effectiveNowMs: 5_000 });
  expect(processes.projectedUpTo).toBe(1);
  const after = processes.runs(false);
  expect(await after.leftToDo()).toMatchObject(run);
  expect(after.isOthers(run)).toBe(false);
  await after.close(run, counts);
  expect(processes.projectedUpTo).toBe(2);
  expect(await after.leftToDo()).toBe(undefined);
  expect(await after.wasCompleted(run)).toBe(false);
});

it('another node’s run is left to it until it has been known to be open for a minute', async () => {
  const processes = new Processes();
  const [own, other] = [processes.runs(true), processes.runs(true)];
  const run = await own.open();
  expect(await idOf(own.leftToDo())).toBe(run.id);
  expect([own.isOthers(run), other.isOthers(run)]).toEqual([false, true]);
  for (const [atMs, found] of [
    [0, undefined],
    [59_999, undefined],
    [60_000, run.id],
  ] as const) {
    processes.monotonicMs = atMs;
    expect(await idOf(other.leftToDo())).toBe(found);
  }
  expect(await own.wasCompleted(run)).toBe(false);
  await other.close(run, counts);
  expect(await own.wasCompleted(run)).toBe(true);
  // Its end is on record, although this node has not heard of it.
  expect(own.current).toBe(run);
  expect(await own.leftToDo()).toBe(undefined);
  await own.close(run, counts);
  expect(own.current).toBe(undefined);
  expect(processes.log.head()).toBe(2);
});

it('that only lives at fault keep a run open is told once', async () => {
  const runs = new Processes().runs(false);
  const [one, two] = [await runs.open(), await runs.open()];
  expect(runs.takeKeptOpen(one)).toBe(false);
  runs.keepOpen(one);
  expect(runs.takeKeptOpen(one)).toBe(true);
  expect(runs.takeKeptOpen(one)).toBe(false);
  runs.keepOpen(one);
  expect(runs.takeKeptOpen(two)).toBe(false);
});
