import { DatabaseSync, StatementSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { lastBy } from '@epitaph/core/log/last-by.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';
import { TestFolder } from './sqlite-folder.ts';

const framework = { describe, it, expect, spansStreams: true };

describeEventLog(
  'the memory event log',
  async () => {
    const log = new MemoryEventLog();
    return { log, dispose: () => log.close() };
  },
  framework,
);

for (const writers of ['inline', 'threads'] as const) {
  describeEventLog(
    `the SQLite event log, written ${writers === 'inline' ? 'inline' : 'by its thread'},`,
    async () => {
      const folder = new TestFolder();
      const { log } = await folder.open({ writers });
      return {
        log,
        reopen: async () => {
          await folder.close();
          return (await folder.open({ writers })).log;
        },
        dispose: () => folder.dispose(),
      };
    },
    framework,
  );
}

const newEvent = (body?: Uint8Array) => ({
  id: crypto.randomUUID(),
  type: 'LongStreamTested',
  version: 1,
  data: {},
  occurredAtMs: 1_763_722_800_000,
  actor: 'system:test',
  correlationId: crypto.randomUUID(),
  causationId: crypto.randomUUID(),
  ...(body === undefined ? {} : { body }),
});

it('streams that have lost their last event are found among thousands in SQLite, also those after a given position', async () => {
  const folder = new TestFolder();
  onTestFinished(() => folder.dispose());
  const written = await folder.open();
  const names = Array.from({ length: 6_000 }, (_, index) => `stream-${index}`);
  for (const expectedRevision of ['no-stream', 0] as const) {
    await written.log.append(names.map((stream) => ({ stream, expectedRevision, events: [newEvent()] })));
  }
  const lostAfter = async (log: EventLog, after: number) => {
    const lost: string[] = [];
    for await (const stream of log.lostEnds!(after)) lost.push(stream);
    return lost.toSorted();
  };
  expect(await lostAfter(written.log, 0)).toEqual([]);
  await written.log.truncateStream('stream-7', 1);
  await folder.close();
  const position = (index: number, revision: number) => revision * names.length + index + 1;
  const damaged = new DatabaseSync(folder.file('log.db'));
  const lose = damaged.prepare('DELETE FROM events WHERE position = ?');
  for (const index of [0, 3_000, 4_999, 5_999]) expect(lose.run(position(index, 1)).changes).toBe(1);
  for (const index of [1, 4_998]) expect(lose.run(position(index, 0)).changes).toBe(1);
  damaged.close();
  const { log } = await folder.open();
  expect(await lostAfter(log, 0)).toEqual(['stream-0', 'stream-3000', 'stream-4999', 'stream-5999']);
  expect(await lostAfter(log, position(3_000, 1) - 1)).toEqual(['stream-3000', 'stream-4999', 'stream-5999']);
  expect(await lostAfter(log, position(3_000, 1))).toEqual(['stream-4999', 'stream-5999']);
  // The log itself ends before that position.
  expect(await lostAfter(log, await log.head())).toEqual(['stream-5999']);
});

describe('a stream of thousands of events in SQLite', () => {
  const COUNT = 5_000;

  async function filled() {
    const folder = new TestFolder();
    onTestFinished(() => folder.dispose());
    const { log } = await folder.open({ writers: 'inline' });
    for (let from = 0; from < COUNT; from += 500) {
      const events = Array.from({ length: 500 }, () => newEvent(new Uint8Array(10)));
      await log.append([{ stream: 'long', expectedRevision: from === 0 ? 'no-stream' : from - 1, events }]);
    }
    return log;
  }

  it('is read whole, with turns for other work in between, and only one such stream at a time', async () => {
    const log = await filled();
    let turns = 0;
    let isReading = true;
    const count = (): void => {
      turns += 1;
      if (isReading) setImmediate(count);
    };
    setImmediate(count);
    const reads = await Promise.all([1, 2, 3].map(async () => log.readStream('long', { withBodies: false })));
    isReading = false;
    for (const events of reads) {
      expect(events.map(({ revision }) => revision)).toEqual(Array.from({ length: COUNT }, (_, revision) => revision));
    }
    expect(turns).toBeGreaterThanOrEqual(10);
    const late = await log.readStream('long', { fromRevision: COUNT - 2 });
    expect(late.map(({ revision, body }) => [revision, body?.length])).toEqual([
      [COUNT - 2, 10],
      [COUNT - 1, 10],
    ]);
  });

  it('is read in pages, oldest first, after one walk back through it', async () => {
    // The spy must be set before the log is opened, because the log takes the method then.
    const got = vi.spyOn(StatementSync.prototype, 'get');
    onTestFinished(() => got.mockRestore());
    const log = await filled();
    got.mockClear();
    const page = async (after: number): Promise<readonly number[]> => {
      const part = { fromRevision: after + 1, toRevision: after + 100, withBodies: false };
      return (await log.readStream('long', part)).map(({ revision }) => revision);
    };
    const walk = async (): Promise<number[]> => {
      const revisions: number[] = [];
      for (let last: readonly number[] = []; ; revisions.push(...last)) {
        last = await page(revisions.at(-1) ?? -1);
        if (last.length === 0) return revisions;
      }
    };
    const whole = Array.from({ length: COUNT }, (_, revision) => revision);
    expect(await walk()).toEqual(whole);
    // One row for each event on the walk to the first page. After that, for each page, the rows up to the next signpost and its own.
    expect(got.mock.calls.length).toBeGreaterThan(COUNT);
    expect(got.mock.calls.length).toBeLessThan(COUNT + (COUNT / 100) * (256 + 100));
    got.mockClear();
    await page(COUNT / 2);
    expect(got.mock.calls.length).toBeLessThan(256 + 110);
    const both = await Promise.all([walk(), walk()]);
    expect(both).toEqual([whole, whole]);
    await log.truncateStream('long', COUNT - 150);
    expect([await page(0), await page(COUNT - 301)]).toEqual([[], []]);
    expect(await page(COUNT - 201)).toEqual(whole.slice(COUNT - 150, COUNT - 100));
    expect(await page(COUNT - 101)).toEqual(whole.slice(COUNT - 100));
  });

  it('is searched by bisection after one walk back through it', async () => {
    // The spy must be set before the log is opened, because the log takes the method then.
    const got = vi.spyOn(StatementSync.prototype, 'get');
    onTestFinished(() => got.mockRestore());
    const log = await filled();
    const positionOf = new Map((await log.readStream('long')).map(({ revision, position }) => [revision, position]));
    for (const [wanted, most] of [
      // Each step begins at the signpost after it. There are as many steps as bisections of the stream.
      [3, COUNT + 15 * 257],
      [1_700, 15 * 257],
      [COUNT - 2, 15 * 257],
    ] as const) {
      got.mockClear();
      const found = await lastBy(log, 'long', COUNT - 1, ({ position }) => position <= positionOf.get(wanted)!);
      expect(found).toMatchObject({ revision: wanted });
      expect(got.mock.calls.length).toBeLessThan(most);
    }
    expect(await lastBy(log, 'long', COUNT - 1, () => false)).toBe(undefined);
    await log.truncateStream('long', COUNT - 1);
    expect(await lastBy(log, 'long', COUNT - 1, () => true)).toBe('truncated');
  });

  it.each([1, 2, 3, 4, 5])(
    'that is truncated %i turns after a read has begun is returned whole, or its end is',
    async (after) => {
      const log = await filled();
      const reading = log.readStream('long', { withBodies: false });
      for (let turns = 0; turns < after; turns += 1) await new Promise((resolve) => setImmediate(resolve));
      await log.append([{ stream: 'long', expectedRevision: COUNT - 1, events: [newEvent()] }]);
      await log.truncateStream('long', COUNT);
      const revisions = (await reading).map(({ revision }) => revision);
      const whole = Array.from({ length: COUNT }, (_, revision) => revision);
      expect([JSON.stringify(whole), JSON.stringify([COUNT])]).toContain(JSON.stringify(revisions));
    },
  );
});
