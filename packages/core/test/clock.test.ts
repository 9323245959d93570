import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  GuardedClock,
  type GuardedClockOptions,
  isoTime,
  ManualClock,
  MAX_TIME_MS,
  systemClocks,
  type HighWaterMark,
} from '@epitaph/core/clock.ts';

const seed = Number(process.env['EPITAPH_SEED'] ?? 20_261_121);
const START_MS = 1_763_722_800_000;

/** Two clocks and a time mark on a disk, all moved by the test. */
class Machine {
  wall = START_MS;
  monotonic = 1_000;
  /** The mark in the file, and the mark that is synced to the disk. */
  writtenMs = 0;
  savedMs = 0;
  saves = 0;
  diskFull = false;
  /** How long the disk takes for a mark that the clock waits for. */
  diskMs = 0;
  /** Marks that are being synced in the background. */
  readonly syncs: PromiseWithResolvers<void>[] = [];

  readonly sources = { wallMs: () => this.wall, monotonicMs: () => this.monotonic };

  readonly savesSoon: boolean;

  constructor({ savesSoon = false } = {}) {
    this.savesSoon = savesSoon;
  }

  start(options: Pick<GuardedClockOptions, 'leaseMs' | 'maxDowntimeMs' | 'mayDifferMs'> = {}): GuardedClock {
    const mark: HighWaterMark = {
      initialMs: this.savedMs,
      save: (markMs) => {
        if (this.diskFull) throw new Error('disk full');
        this.pass(this.diskMs);
        this.savedMs = this.writtenMs = markMs;
        this.saves += 1;
      },
      ...(this.savesSoon ? { saveSoon: (markMs) => this.#saveSoon(markMs) } : {}),
    };
    return new GuardedClock({ sources: this.sources, mark, ...options });
  }

  #saveSoon(markMs: number): Promise<void> {
    if (this.diskFull) return Promise.reject(new Error('disk full'));
    this.writtenMs = markMs;
    const sync = Promise.withResolvers<void>();
    this.syncs.push(sync);
    return sync.promise;
  }

  /** Completes the oldest background sync. The disk then has what was written last. */
  async sync(): Promise<void> {
    const first = this.syncs.shift();
    if (first === undefined) return;
    if (this.diskFull) first.reject(new Error('disk full'));
    else {
      this.savedMs = this.writtenMs;
      first.resolve();
    }
    await Promise.resolve();
    await Promise.resolve();
  }

  /** Time passes on both clocks. The wall clock also drifts by the given milliseconds. */
  pass(ms: number, drift = 0): void {
    this.monotonic += ms;
    this.wall += ms + drift;
  }
}

describe('the guarded clock', () => {
  it('follows the wall clock while it agrees with the monotonic one', () => {
    const machine = new Machine();
    const clock = machine.start();
    for (let second = 0; second < 100; second++) {
      expect(clock.now()).toBe(machine.wall);
      expect(clock.jump()).toBe(undefined);
      machine.pass(1_000);
    }
  });

  it('never goes back: if the wall clock is set back within the tolerance, the time stands still', () => {
    const machine = new Machine();
    const clock = machine.start();
    const before = clock.now();
    machine.pass(0, -3_000);
    expect(clock.now()).toBe(before);
    expect(clock.jump()).toBe(undefined);
    machine.pass(2_999);
    expect(clock.now()).toBe(before);
    machine.pass(2);
    expect(clock.now()).toBe(before + 1);
  });

  it('follows a slow drift, however much it adds up to', () => {
    const machine = new Machine();
    const clock = machine.start();
    for (let minute = 0; minute < 1_000; minute++) {
      machine.pass(60_000, 30);
      expect(clock.now()).toBe(machine.wall);
    }
    expect(clock.jump()).toBe(undefined);
    expect(machine.wall).toBe(START_MS + 1_000 * 60_030);
  });

  it('allows a difference of exactly the tolerance', () => {
    for (const drift of [5_000, -5_000]) {
      const machine = new Machine();
      const clock = machine.start();
      machine.pass(60_000, drift);
      expect(clock.jump()).toBe(undefined);
    }
  });

  it('is held when the wall clock jumps, forward or back, and follows the monotonic clock', () => {
    for (const drift of [5_001, -5_001, 2_400_000_000_000, -START_MS]) {
      const machine = new Machine();
      const clock = machine.start();
      clock.now();
      machine.pass(1_000, drift);
      const jump = { reason: 'wall-clock-jumped', wallMs: machine.wall, expectedMs: START_MS + 1_000 };
      expect(clock.now()).toBe(START_MS + 1_000);
      expect(clock.jump()).toEqual(jump);
      machine.pass(1_000.7);
      expect(clock.now()).toBe(START_MS + 2_000);
      expect(clock.jump(), 'the jump is told as it was first seen').toEqual(jump);
    }
  });

  it('goes on by itself when the wall and monotonic clocks agree again', () => {
    const machine = new Machine();
    const clock = machine.start();
    machine.pass(1_000, 3_600_000);
    expect(clock.jump()).not.toBe(undefined);
    machine.pass(1_000, -3_600_000);
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBe(machine.wall);
  });

  it('accepts the wall clock when an operator confirms it, and still never goes back', () => {
    const machine = new Machine();
    const clock = machine.start();
    machine.pass(1_000, 3_600_000);
    expect(clock.jump()).not.toBe(undefined);
    clock.confirm();
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBe(machine.wall);
    const before = clock.now();
    machine.pass(1_000, -7_200_000);
    expect(clock.now()).toBe(before + 1_000);
    clock.confirm();
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBe(before + 1_000);
  });

  it('tells for how long it stands still, until the wall clock has reached the latest used time', () => {
    const machine = new Machine();
    const clock = machine.start();
    machine.pass(1_000, 3_600_000);
    clock.confirm();
    expect(clock.now()).toBe(machine.wall);
    expect(clock.standsStillMs()).toBe(0);
    machine.pass(1_000, -3_600_000);
    // While held, it follows the monotonic clock.
    expect(clock.standsStillMs()).toBe(0);
    clock.confirm();
    expect(clock.standsStillMs()).toBe(3_600_000);
    const before = clock.now();
    machine.pass(3_000_000);
    expect(clock.standsStillMs()).toBe(600_000);
    expect(clock.now()).toBe(before);
    machine.pass(700_000);
    expect(clock.standsStillMs()).toBe(0);
    expect(clock.now()).toBe(machine.wall);
  });

  it('restarted with an earlier wall clock never repeats a time that was used before', () => {
    const machine = new Machine();
    const used = machine.start().now();
    machine.wall = used - 4_000;
    const clock = machine.start();
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBeGreaterThanOrEqual(used);
  });

  it('restarted with a much earlier wall clock is held until the clock is right or confirmed', () => {
    const machine = new Machine();
    const used = machine.start().now();
    machine.wall = used - 86_400_000;
    const clock = machine.start();
    expect(clock.jump()).toEqual({ reason: 'recorded-time-ahead', wallMs: machine.wall, expectedMs: machine.savedMs });
    expect(clock.now()).toBeGreaterThanOrEqual(used);
    machine.pass(60_000);
    expect(clock.jump()).not.toBe(undefined);
    clock.confirm();
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBeGreaterThanOrEqual(used);
    const waiting = machine.start();
    machine.pass(86_400_000);
    expect(waiting.jump()).toBe(undefined);
    expect(waiting.now()).toBe(machine.wall);
  });

  describe('started after a longer stop than is allowed', () => {
    const DAY_MS = 86_400_000;
    const started = (stoppedMs: number) => {
      const machine = new Machine();
      const before = machine.start();
      before.now();
      before.close();
      machine.pass(1_000, stoppedMs);
      return { machine, clock: machine.start({ maxDowntimeMs: 30 * DAY_MS }) };
    };

    it('is held where it was, and follows the monotonic clock', () => {
      const { machine, clock } = started(31 * DAY_MS);
      const usedMs = machine.savedMs;
      expect(clock.jump()).toEqual({ reason: 'stopped-for-long', wallMs: machine.wall, expectedMs: usedMs });
      machine.pass(60_000);
      expect(clock.now()).toBe(usedMs + 60_000);
      expect(clock.jump()?.reason).toBe('stopped-for-long');
    });

    it('is held at a year from a wrong clock, and goes on when the clock is put right', () => {
      const { machine, clock } = started(Date.UTC(2099, 0) - START_MS);
      expect(clock.jump()?.reason).toBe('stopped-for-long');
      machine.wall = START_MS + 2 * DAY_MS;
      expect(clock.now()).toBe(machine.wall);
      expect(clock.jump()).toBe(undefined);
      machine.pass(1_000, 6_000);
      expect(clock.jump()?.reason, 'from then on the tolerance is the usual one').toBe('wall-clock-jumped');
    });

    it('goes on when an operator confirms', () => {
      const { machine, clock } = started(400 * DAY_MS);
      clock.confirm();
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(machine.wall);
    });

    it('goes on when the log shows that other nodes were at work', () => {
      const { machine, clock } = started(400 * DAY_MS);
      clock.observeRecorded(machine.wall - 31 * DAY_MS);
      expect(clock.jump()).toMatchObject({ expectedMs: machine.wall - 31 * DAY_MS });
      clock.observeRecorded(machine.wall - 29 * DAY_MS);
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(machine.wall);
    });

    it('is held again at the next start if nobody has confirmed', () => {
      const { machine, clock } = started(31 * DAY_MS);
      clock.now();
      clock.close();
      expect(machine.start({ maxDowntimeMs: 30 * DAY_MS }).jump()?.reason).toBe('stopped-for-long');
    });

    it('is not held after a shorter stop, nor in a new folder', () => {
      expect(started(29 * DAY_MS).clock.jump()).toBe(undefined);
      expect(new Machine().start({ maxDowntimeMs: 0 }).jump()).toBe(undefined);
    });
  });

  describe('of one of several nodes, which share the database server’s clock (the common clock),', () => {
    /** A node whose clock is ahead, and a look at the common clock. */
    const started = (aheadMs: number) => {
      const machine = new Machine();
      machine.wall = START_MS + aheadMs;
      const clock = machine.start({ mayDifferMs: 1_000 });
      const commonMs = () => START_MS + (machine.monotonic - 1_000);
      const look = (tookMs = 0) => clock.observeCommon({ earliestMs: commonMs() - tookMs, latestMs: commonMs() });
      return { machine, clock, commonMs, look };
    };

    it.each([90_000, -90_000, 1_500, -1_500])(
      'is held if it is %d ms ahead at a start, and follows the common clock',
      (aheadMs) => {
        const { machine, clock, commonMs, look } = started(aheadMs);
        look();
        expect(clock.jump()).toEqual({ reason: 'clocks-differ', wallMs: machine.wall, expectedMs: commonMs() });
        expect(clock.now()).toBe(commonMs());
        machine.pass(60_000);
        expect(clock.now()).toBe(commonMs());
        look();
        expect(clock.jump()?.reason).toBe('clocks-differ');
      },
    );

    it('goes on by itself when it is put right', () => {
      const { machine, clock, commonMs, look } = started(90_000);
      look();
      machine.pass(2_000, -90_000);
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(commonMs());
      machine.pass(1_000, 3_000);
      expect(clock.jump(), 'from then on the tolerance is the usual one').toBe(undefined);
    });

    it('goes on by itself when the common clock is put right', () => {
      const { machine, clock, look } = started(90_000);
      look();
      clock.observeCommon({ earliestMs: machine.wall - 200, latestMs: machine.wall });
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(machine.wall);
    });

    it('is held only for a difference that the time the answer took can’t explain', () => {
      const { clock, look } = started(1_500);
      look(600);
      expect(clock.jump()?.reason).toBe('clocks-differ');
      const slow = started(-1_500);
      slow.look(600);
      expect(slow.clock.jump()).toBe(undefined);
      const ahead = started(900);
      ahead.look(600);
      expect(ahead.clock.jump()).toBe(undefined);
    });

    it('is held when it drifts away, and never repeats a time that was used before', () => {
      const { machine, clock, commonMs, look } = started(0);
      for (let second = 0; second < 5; second++) {
        machine.pass(1_000, 200);
        look();
        expect(clock.jump()).toBe(undefined);
      }
      const usedMs = clock.now();
      machine.pass(1_000, 200);
      look();
      expect(clock.jump()?.reason).toBe('clocks-differ');
      expect(clock.now()).toBe(usedMs);
      machine.pass(1_000, 200);
      expect(clock.now()).toBe(commonMs());
    });

    it('is preferred to the common clock once an operator confirms, as long as the difference stays the same', () => {
      const { machine, clock, commonMs, look } = started(90_000);
      look();
      machine.pass(500);
      clock.confirm();
      expect(clock.now()).toBe(machine.wall);
      machine.pass(1_000, 500);
      look();
      expect(clock.jump()).toBe(undefined);
      clock.observeCommon({ earliestMs: commonMs() + 45_000, latestMs: commonMs() + 45_000 });
      expect(clock.jump()?.reason).toBe('clocks-differ');
      clock.observeCommon({ earliestMs: machine.wall, latestMs: machine.wall });
      expect(clock.jump(), 'the common one was put right').toBe(undefined);
    });

    it('does not follow a common clock that jumps ahead, and is as before once that is put right', () => {
      const { machine, clock, look } = started(200);
      look();
      const wrong = () => machine.wall + 86_400_000;
      for (let second = 0; second < 60; second++) {
        machine.pass(1_000);
        clock.observeCommon({ earliestMs: wrong(), latestMs: wrong() });
        expect(clock.jump()).toEqual({ reason: 'clocks-differ', wallMs: machine.wall, expectedMs: wrong() });
        expect(clock.now()).toBeLessThanOrEqual(machine.wall);
      }
      expect(clock.now(), 'time goes on').toBeGreaterThan(START_MS + 59_000);
      look();
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(machine.wall);
      machine.pass(1_000);
      clock.observeCommon({ earliestMs: wrong(), latestMs: wrong() });
      clock.now();
      clock.confirm();
      expect(clock.now(), 'by its own').toBe(machine.wall);
      machine.pass(1_000);
      clock.observeCommon({ earliestMs: wrong(), latestMs: wrong() });
      expect(clock.jump()).toBe(undefined);
      expect(clock.now()).toBe(machine.wall);
    });

    it('follows the common clock when held, even if both had been set to another time together before', () => {
      const { machine, clock, commonMs, look } = started(0);
      look();
      const laterMs = () => commonMs() + 3_600_000;
      machine.wall = laterMs();
      clock.confirm();
      clock.observeCommon({ earliestMs: laterMs(), latestMs: laterMs() });
      expect(clock.jump()).toBe(undefined);
      machine.pass(1_000, 90_000);
      clock.observeCommon({ earliestMs: laterMs(), latestMs: laterMs() });
      expect(clock.jump()?.reason).toBe('clocks-differ');
      expect(clock.now()).toBe(laterMs());
    });

    it('follows the common clock while it is held, even if the monotonic clock is slower', () => {
      const { machine, clock, commonMs, look } = started(90_000);
      look();
      for (let second = 0; second < 100; second++) {
        machine.pass(1_000);
        const atMs = commonMs() + second * 20;
        clock.observeCommon({ earliestMs: atMs, latestMs: atMs });
        expect(clock.now()).toBeGreaterThanOrEqual(atMs - 20);
      }
      clock.observeCommon({ earliestMs: commonMs() + 86_400_000, latestMs: commonMs() + 86_400_000 });
      expect(clock.now(), 'but not where it jumps').toBeLessThan(commonMs() + 2_100);
      expect(clock.jump()?.reason).toBe('clocks-differ');
    });

    it('is held if times well ahead of both clocks were used before', () => {
      const machine = new Machine();
      machine.savedMs = START_MS + 60_000;
      machine.wall = START_MS - 30_000;
      const clock = machine.start({ mayDifferMs: 1_000 });
      const look = () => clock.observeCommon({ earliestMs: START_MS, latestMs: START_MS });
      look();
      expect(clock.jump()?.reason).toBe('clocks-differ');
      machine.wall = START_MS;
      look();
      expect(clock.jump()).toEqual({ reason: 'recorded-time-ahead', wallMs: START_MS, expectedMs: START_MS + 60_000 });
      machine.pass(55_000);
      expect(clock.jump()).toBe(undefined);
    });

    it('leaves a long stop to the operator, whatever the common clock says, and is held for a wrong clock after that', () => {
      const machine = new Machine();
      const before = machine.start();
      before.now();
      before.close();
      machine.pass(1_000, 400 * 86_400_000);
      const clock = machine.start({ maxDowntimeMs: 86_400_000, mayDifferMs: 1_000 });
      const common = { earliestMs: machine.wall - 90_000, latestMs: machine.wall - 90_000 };
      clock.observeCommon(common);
      expect(clock.jump()?.reason).toBe('stopped-for-long');
      // An event shows that other nodes were at work, so the stop no longer counts. The clock is still wrong.
      clock.observeRecorded(machine.wall - 90_000);
      clock.observeCommon(common);
      expect(clock.jump()?.reason).toBe('clocks-differ');
      expect(clock.now()).toBe(machine.wall - 90_000);
    });
  });

  it('is held if the log has an event from beyond the tolerance, and accepts one from within', () => {
    const machine = new Machine();
    const clock = machine.start();
    clock.observeRecorded(START_MS + 5_500);
    expect(clock.jump()).toBe(undefined);
    expect(clock.now()).toBe(START_MS + 5_500);
    clock.observeRecorded(START_MS + 3_600_000);
    expect(clock.jump()).toEqual({ reason: 'recorded-time-ahead', wallMs: START_MS, expectedMs: START_MS + 3_600_000 });
    expect(clock.now()).toBe(START_MS + 3_600_000);
    expect(machine.savedMs).toBeGreaterThanOrEqual(START_MS + 3_600_000);
  });

  it('saves its mark once per lease, not at every reading, and saves the exact time at a clean stop', () => {
    const machine = new Machine();
    const clock = machine.start({ leaseMs: 1_000 });
    for (let tick = 0; tick < 10_000; tick++) {
      clock.now();
      machine.pass(1);
    }
    expect(machine.saves).toBeLessThanOrEqual(11);
    const last = clock.now();
    clock.close();
    expect(machine.savedMs).toBe(last);
    machine.pass(5);
    const afterwards = clock.now();
    expect(machine.savedMs).toBeGreaterThanOrEqual(afterwards);
  });

  it('saves its next mark in advance, and waits for the disk only if that is late', async () => {
    const machine = new Machine({ savesSoon: true });
    const clock = machine.start({ leaseMs: 1_000 });
    clock.now();
    expect(machine.saves).toBe(1);
    for (let second = 0; second < 20; second++) {
      machine.pass(700);
      clock.now();
      clock.now();
      expect(machine.syncs).toHaveLength(1);
      await machine.sync();
      expect(machine.savedMs).toBe(machine.wall + 1_000);
    }
    expect(machine.saves).toBe(1);
    // This time the background sync does not complete.
    machine.pass(700);
    clock.now();
    machine.pass(400);
    expect(clock.now()).toBe(machine.wall);
    expect(machine.saves).toBe(2);
    expect(machine.savedMs).toBe(machine.wall + 1_000);
    // A late completion of the earlier mark does not count for the current one.
    machine.pass(700);
    clock.now();
    await machine.sync();
    machine.pass(400);
    clock.now();
    expect(machine.saves).toBe(3);
  });

  it.each([600, 1_200, 2_000])('waits at most twice for a disk that has begun to take %d ms', async (diskMs) => {
    const machine = new Machine({ savesSoon: true });
    const clock = machine.start({ leaseMs: 1_000 });
    clock.now();
    expect(machine.saves).toBe(1);
    machine.diskMs = diskMs;
    const onTheirWay: number[] = [];
    for (let tick = 0; tick < 10_000; tick++) {
      machine.pass(10);
      const now = clock.now();
      expect(machine.savedMs).toBeGreaterThanOrEqual(now);
      while (onTheirWay.length < machine.syncs.length) onTheirWay.push(machine.monotonic);
      if (onTheirWay.length > 0 && machine.monotonic - onTheirWay[0]! >= diskMs) {
        onTheirWay.shift();
        await machine.sync();
      }
    }
    expect(machine.saves).toBeLessThanOrEqual(3);
    // After a crash now, the mark is so little ahead that the next start waits for it, and does not take it for a jump back.
    expect(machine.savedMs - machine.wall).toBeLessThanOrEqual(5_000);
    const restarted = machine.start({ leaseMs: 1_000 });
    expect(restarted.jump()).toBeUndefined();
    // Once the disk is fast, the marks are a second ahead again.
    machine.diskMs = 0;
    for (let tick = 0; tick < 10_000; tick++) {
      machine.pass(10);
      clock.now();
      await machine.sync();
    }
    expect(machine.savedMs - machine.wall).toBeLessThanOrEqual(1_000);
  });

  it('goes on without a mark in advance if that could not be saved', async () => {
    const machine = new Machine({ savesSoon: true });
    const clock = machine.start({ leaseMs: 1_000 });
    clock.now();
    machine.pass(700);
    clock.now();
    machine.diskFull = true;
    await machine.sync();
    machine.pass(100);
    expect(clock.now()).toBe(machine.wall);
    machine.pass(300);
    expect(() => clock.now()).toThrow('disk full');
    machine.diskFull = false;
    expect(clock.now()).toBe(machine.wall);
    expect(machine.savedMs).toBe(machine.wall + 1_000);
  });

  it('leaves its exact mark at the end, whatever was still being synced', async () => {
    const machine = new Machine({ savesSoon: true });
    const clock = machine.start({ leaseMs: 1_000 });
    clock.now();
    machine.pass(700);
    const last = clock.now();
    clock.close();
    await machine.sync();
    expect(machine.savedMs).toBe(last);
    machine.pass(1);
    clock.now();
    expect(machine.saves).toBe(3);
  });

  it('returns no time whose mark could not be saved, and tries again', () => {
    const machine = new Machine();
    const clock = machine.start();
    clock.now();
    machine.pass(2_000);
    machine.diskFull = true;
    expect(() => clock.now()).toThrow('disk full');
    expect(() => clock.now()).toThrow('disk full');
    machine.diskFull = false;
    expect(clock.now()).toBe(machine.wall);
    expect(machine.savedMs).toBeGreaterThanOrEqual(machine.wall);
  });

  it(`never gives a time that is smaller than one before or greater than the mark on the disk (seed ${seed})`, async () => {
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('pass' as const),
        ms: fc.integer({ min: 0, max: 20_000 }),
        drift: fc.integer({ min: -4_000, max: 4_000 }),
      }),
      fc.record({
        kind: fc.constant('pass' as const),
        ms: fc.integer({ min: 0, max: 10 }),
        drift: fc.integer({ min: -100_000_000, max: 100_000_000 }),
      }),
      fc.record({
        kind: fc.constantFrom(
          'restart' as const,
          'stop and start' as const,
          'stop' as const,
          'confirm' as const,
          'disk' as const,
          'sync' as const,
        ),
      }),
      fc.record({ kind: fc.constant('observe' as const), ahead: fc.integer({ min: -100_000, max: 100_000 }) }),
    );
    const run = fc.record({ steps: fc.array(step, { maxLength: 40 }), savesSoon: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(run, async ({ steps, savesSoon }) => {
        const machine = new Machine({ savesSoon });
        let clock = machine.start({ maxDowntimeMs: 50_000 });
        let highest = 0;
        for (const one of steps) {
          try {
            if (one.kind === 'pass') machine.pass(one.ms, one.drift);
            else if (one.kind === 'observe') clock.observeRecorded(machine.wall + one.ahead);
            else if (one.kind === 'confirm') clock.confirm();
            else if (one.kind === 'disk') machine.diskFull = !machine.diskFull;
            else if (one.kind === 'sync') await machine.sync();
            else {
              if (one.kind !== 'restart') clock.close();
              if (one.kind !== 'stop') clock = machine.start({ maxDowntimeMs: 50_000 });
            }
            const now = clock.now();
            expect(now).toBeGreaterThanOrEqual(highest);
            expect(machine.savedMs).toBeGreaterThanOrEqual(now);
            expect(Number.isSafeInteger(now)).toBe(true);
            highest = now;
          } catch (error) {
            if (!(error instanceof Error) || error.message !== 'disk full') throw error;
          }
        }
      }),
      { seed, numRuns: 3_000 },
    );
  });

  it('reads the system’s clocks', () => {
    expect(systemClocks.wallMs()).toBeGreaterThan(START_MS / 2);
    const before = systemClocks.monotonicMs();
    expect(systemClocks.monotonicMs()).toBeGreaterThanOrEqual(before);
    const worked = systemClocks.workedMs();
    expect(systemClocks.workedMs() - worked).toBeLessThan(1_000);
    expect(worked).toBeGreaterThan(0);
  });
});

describe('the manual clock', () => {
  it('stands still until it is advanced, by whole milliseconds', () => {
    const clock = new ManualClock(START_MS);
    expect([clock.now(), clock.now(), clock.advance(0), clock.advance(1), clock.now()]).toEqual([
      START_MS,
      START_MS,
      START_MS,
      START_MS + 1,
      START_MS + 1,
    ]);
  });

  it('can’t be set back, nor advanced by parts of a millisecond or beyond the year 9999', () => {
    const clock = new ManualClock(START_MS);
    for (const by of [-1, 0.5, Number.NaN, Infinity, -Infinity, 2 ** 53, MAX_TIME_MS]) {
      expect(() => clock.advance(by)).toThrow(RangeError);
    }
    expect(clock.now()).toBe(START_MS);
    expect(clock.advance(MAX_TIME_MS - START_MS)).toBe(MAX_TIME_MS);
    expect(isoTime(clock.now())).toBe('9999-12-31T23:59:59.999Z');
    expect(() => clock.advance(1)).toThrow(RangeError);
  });

  it('keeps its time over a restart, even if the start names an earlier one', () => {
    let saved = 0;
    const mark = (): HighWaterMark => ({ initialMs: saved, save: (markMs) => void (saved = markMs) });
    const clock = new ManualClock(START_MS, mark());
    expect(saved).toBe(START_MS);
    clock.advance(5_000);
    expect(saved).toBe(START_MS + 5_000);
    expect(new ManualClock(START_MS, mark()).now()).toBe(START_MS + 5_000);
    expect(new ManualClock(START_MS + 9_000, mark()).now()).toBe(START_MS + 9_000);
  });

  it('is not advanced if its time can’t be saved', () => {
    let full = false;
    const clock = new ManualClock(START_MS, {
      initialMs: 0,
      save: () => {
        if (full) throw new Error('disk full');
      },
    });
    full = true;
    expect(() => clock.advance(1)).toThrow('disk full');
    expect(clock.now()).toBe(START_MS);
  });
});
