import { describe, expect, it } from 'vitest';
import { handleCommand, TooMuchContention, type CommandRun } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { NewEvent } from '@epitaph/core/log/recorded-event.ts';

const event = (number = 0): NewEvent => ({
  id: crypto.randomUUID(),
  type: 'Counted',
  version: 1,
  data: { number },
  occurredAtMs: 0,
  actor: 'key:primary',
  correlationId: 'request',
  causationId: 'request',
});

const count = (seen: number): number => seen + 1;

const steps: Pick<CommandRun<number, number>, 'stream' | 'decide' | 'record'> = {
  stream: 'counter',
  decide: (state) => state,
  record: (decision) => ({ events: [event(decision)] }),
};

/** Appends the number of events in the stream. */
const counting = (over: Partial<typeof steps> = {}): CommandRun<number, number> => ({
  ...steps,
  load: 'all',
  initial: 0,
  evolve: count,
  ...over,
});

type RunOnLast = Extract<CommandRun<number, number>, { load: 'last' }>;

/** Appends the number of events that it saw at the end. */
const countingLast = (over: Partial<RunOnLast> = {}): RunOnLast => ({
  ...steps,
  load: 'last',
  fold: (loaded) => loaded.length,
  ...over,
});

describe('handling a command', () => {
  it('decides on the whole stream or on its last event, as requested', async () => {
    const log = new MemoryEventLog();
    for (let count = 0; count < 3; count++) await handleCommand(log, counting());
    expect((await handleCommand(log, counting())).decision).toBe(3);
    expect((await handleCommand(log, countingLast())).decision).toBe(1);
    expect((await handleCommand(log, countingLast({ stream: 'other' }))).decision).toBe(0);
  });

  it('reads only the new events of a stream that was folded before', async () => {
    const log = new MemoryEventLog();
    const read: number[] = [];
    const readStream = log.readStream.bind(log);
    log.readStream = (stream, options) => {
      const events = readStream(stream, options);
      read.push(events.length);
      return events;
    };
    for (let count = 0; count < 4; count++) await handleCommand(log, counting());
    // Another writer appends to it as well.
    await handleCommand(log, countingLast());
    await handleCommand(log, countingLast());
    expect((await handleCommand(log, counting())).decision).toBe(6);
    expect(read).toEqual([0, 1, 1, 1, 3]);
    // The state of one evolve function is not used for another.
    const byTwos: CommandRun<number, number> = { ...steps, load: 'all', initial: 0, evolve: (seen) => seen + 2 };
    expect((await handleCommand(log, byTwos)).decision).toBe(14);
    expect((await handleCommand(new MemoryEventLog(), counting())).decision).toBe(0);
  });

  it('gives other work turns while it folds a long stream', async () => {
    const log = new MemoryEventLog();
    await log.append([
      { stream: 'counter', expectedRevision: 'no-stream', events: Array.from({ length: 5_000 }, () => event()) },
    ]);
    let turns = 0;
    const tick = () => {
      turns += 1;
      ticking = setImmediate(tick);
    };
    let ticking = setImmediate(tick);
    const { decision } = await handleCommand(log, counting());
    clearImmediate(ticking);
    expect(decision).toBe(5_000);
    expect(turns).toBeGreaterThan(10);
  });

  it('returns what it recorded and where, and the resulting state', async () => {
    const log = new MemoryEventLog();
    await handleCommand(log, counting());
    const events = [event(), event()];
    expect(await handleCommand(log, counting({ record: () => ({ events }) }))).toEqual({
      decision: 1,
      state: 3,
      position: 3,
      firstPosition: 2,
      firstRevision: 1,
      recorded: events,
    });
  });

  it('appends nothing if there is nothing to record', async () => {
    const log = new MemoryEventLog();
    for (const nothing of [undefined, { events: [] }]) {
      expect(await handleCommand(log, counting({ record: () => nothing }))).toEqual({
        decision: 0,
        state: 0,
        recorded: [],
        firstRevision: 0,
      });
    }
    expect(log.head()).toBe(0);
  });

  it('decides again on the winner’s events when it loses a race', async () => {
    const log = new MemoryEventLog();
    let races = 5;
    const handled = await handleCommand(
      log,
      counting({
        decide: async (state) => {
          if (races-- > 0) await handleCommand(log, counting());
          return state;
        },
      }),
    );
    expect(handled.decision).toBe(5);
    expect(log.readStream('counter').map((one) => one.data['number'])).toEqual([0, 1, 2, 3, 4, 5]);
  });

  it('decides without a read on what is known of a stream, and on the actual events if that turns out wrong', async () => {
    const log = new MemoryEventLog();
    const looks: string[] = [];
    const readLast = log.readLast.bind(log);
    log.readLast = (stream) => {
      looks.push(stream);
      return readLast(stream);
    };
    const onNone = countingLast({ known: 'none' });
    expect(await handleCommand(log, onNone)).toMatchObject({ decision: 0, firstRevision: 0 });
    expect(looks).toEqual([]);
    expect(await handleCommand(log, onNone)).toMatchObject({ decision: 1, firstRevision: 1 });
    expect(looks).toEqual(['counter']);
    const known = readLast('counter')!;
    for (const firstRevision of [2, 3]) {
      expect(await handleCommand(log, countingLast({ known }))).toMatchObject({ decision: 1, firstRevision });
    }
    expect(looks).toEqual(['counter', 'counter']);
  });

  it('reads before it records nothing, because no append would show that its knowledge was wrong', async () => {
    const log = new MemoryEventLog();
    await handleCommand(log, counting());
    const atMostOne = countingLast({ record: (seen) => (seen === 1 ? { events: [event()] } : undefined) });
    expect(await handleCommand(log, { ...atMostOne, known: 'none' })).toMatchObject({ decision: 1, firstRevision: 1 });
    expect(await handleCommand(log, { ...atMostOne, stream: 'other', known: 'none' })).toMatchObject({ recorded: [] });
  });

  it('gives up after twenty lost races, and says so', async () => {
    const log = new MemoryEventLog();
    let attempts = 0;
    const losing = counting({
      decide: async (state) => {
        attempts += 1;
        await handleCommand(log, counting());
        return state;
      },
    });
    await expect(handleCommand(log, losing)).rejects.toThrow(TooMuchContention);
    expect(attempts).toBe(20);
    expect(log.head()).toBe(20);
  });

  it('passes errors of the log or the decision on', async () => {
    const log = new MemoryEventLog();
    const fault = new Error('out of order');
    await expect(handleCommand(log, counting({ decide: () => Promise.reject(fault) }))).rejects.toBe(fault);
    const stored = Promise.reject(fault);
    stored.catch(() => {});
    const record = () => ({ events: [event()], after: [stored] });
    await expect(handleCommand(log, counting({ record }))).rejects.toBe(fault);
    expect(log.head()).toBe(0);
  });
});
