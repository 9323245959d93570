/** The one source of time. Deciding and projecting never read it: they get the time in their command. */
export interface Clock {
  /** Milliseconds since the Unix epoch. Never goes backwards within a process. */
  now(): number;
}

/** Reads the system's clocks; the only place in the project that does. */
export const systemClocks = {
  /** Wall clock, milliseconds since the Unix epoch. May jump either way. */
  wallMs: (): number => Date.now(),
  /** Monotonic clock, milliseconds from an arbitrary start. Never jumps. */
  monotonicMs: (): number => performance.now(),
  /** What this thread has worked, in milliseconds: stands still while others have the processor. Takes some 2 µs to ask. */
  workedMs: (): number => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  },
};

/** The two clocks that a {@link GuardedClock} compares; tests give their own. */
export interface ClockSources {
  wallMs(): number;
  monotonicMs(): number;
}

/** Keeps the highest time ever used, so that a restart on an earlier clock takes nothing back. */
export interface HighWaterMark {
  /** The mark of the last run, in milliseconds; 0 for a new folder. */
  readonly initialMs: number;
  /** Makes a mark durable before it returns. */
  save(markMs: number): void;
  /**
   * Puts a mark down before it returns, and resolves when that is durable. What is saved after it stands, whichever is
   * durable first.
   */
  saveSoon?(markMs: number): Promise<void>;
}

/** Why a guarded clock holds: what it saw, in milliseconds. */
export interface ClockJump {
  readonly reason: 'wall-clock-jumped' | 'recorded-time-ahead' | 'stopped-for-long' | 'clocks-differ';
  readonly wallMs: number;
  readonly expectedMs: number;
}

/** Drift between wall and monotonic clock from which on time is held, in milliseconds. */
const TOLERANCE_MS = 5_000;

/** Leases last so many times as long as the disk takes for a mark: they are renewed when half of one is over. */
const DISK_TIMES_A_LEASE = 4;
/** The longest lease: after a crash time stands still for what is left of it, and isn't held. */
const MAX_LEASE_MS = TOLERANCE_MS;
/** What is left of the longest time that the disk took, with each mark that takes less. */
const FORGOTTEN_TO = 0.9;

export interface GuardedClockOptions {
  readonly sources: ClockSources;
  readonly mark: HighWaterMark;
  /** How far ahead of the time used the mark is persisted, while the disk is quick; 1,000 ms by default. */
  readonly leaseMs?: number;
  /** How far a start may be from the time last used, in milliseconds; any time by default. */
  readonly maxDowntimeMs?: number;
  /** How far the wall clock may be from the one that several nodes have in common, in milliseconds; 5,000 at most. */
  readonly mayDifferMs?: number;
}

/** What a clock on another machine was found to say: it took a moment to come here. */
export interface CommonTime {
  readonly earliestMs: number;
  readonly latestMs: number;
}

/**
 * Time that was once used never comes back, and a jump stops the irreversible.
 *
 * `now()` answers max(system clock, highest time used before). When the wall clock leaves the monotonic one by
 * more than the tolerance, `now()` goes on along the monotonic clock and `jump()` tells it: the caller must
 * then neither stamp nor erase, until the clocks agree again or an operator confirms the new time. A start far from
 * the time last used is held likewise, for a wall clock that runs ahead looks the same as a long stop.
 */
export class GuardedClock implements Clock {
  readonly #sources: ClockSources;
  readonly #mark: HighWaterMark;
  readonly #leaseMs: number;
  readonly #maxDowntimeMs: number;
  readonly #mayDifferMs: number;
  #savedMs: number;
  /** How long the disk took for a mark lately. */
  #diskMs = 0;
  /** The mark that is on its way to the disk. */
  #renewing: Promise<void> | undefined;
  #usedMs: number;
  #anchorWallMs: number;
  #anchorMonotonicMs: number;
  #jump: ClockJump | undefined;
  /** By how much the wall clock is ahead of the common one and right for all that, as an operator says. */
  #acceptedAheadMs = 0;
  /** What the common clock said last that went with this node's, or with what it had said before that. */
  #commonKnown: { readonly atMs: number; readonly monotonicMs: number } | undefined;

  constructor(options: GuardedClockOptions) {
    this.#sources = options.sources;
    this.#mark = options.mark;
    this.#leaseMs = options.leaseMs ?? 1_000;
    this.#maxDowntimeMs = options.maxDowntimeMs ?? Number.POSITIVE_INFINITY;
    this.#mayDifferMs = Math.min(options.mayDifferMs ?? TOLERANCE_MS, TOLERANCE_MS);
    this.#savedMs = options.mark.initialMs;
    this.#usedMs = options.mark.initialMs;
    this.#anchorWallMs = this.#sources.wallMs();
    this.#anchorMonotonicMs = this.#sources.monotonicMs();
    // A mark beyond lease and tolerance means that the clock was set back while the store was down.
    if (this.#usedMs > this.#anchorWallMs + this.#leaseMs + TOLERANCE_MS) {
      this.#jump = { reason: 'recorded-time-ahead', wallMs: this.#anchorWallMs, expectedMs: this.#usedMs };
    } else if (this.#usedMs > 0 && this.#anchorWallMs - this.#usedMs > this.#maxDowntimeMs) {
      this.#goOnFrom(this.#usedMs, this.#anchorWallMs);
    }
  }

  /** Time is held where it was used last, as the wall clock may be wrong. */
  #goOnFrom(usedMs: number, wallMs: number): void {
    this.#jump = { reason: 'stopped-for-long', wallMs, expectedMs: usedMs };
    this.#anchor(usedMs);
  }

  #expectedMs(): number {
    return this.#anchorWallMs + (this.#sources.monotonicMs() - this.#anchorMonotonicMs);
  }

  /** What the common clock says by now unless it has jumped; undefined before it was asked. */
  #commonExpectedMs(): number | undefined {
    const known = this.#commonKnown;
    return known && known.atMs + (this.#sources.monotonicMs() - known.monotonicMs);
  }

  /** From here on the wall clock is expected to go on from that time. */
  #anchor(atMs: number): void {
    this.#anchorWallMs = atMs;
    this.#anchorMonotonicMs = this.#sources.monotonicMs();
  }

  now(): number {
    const wallMs = this.#sources.wallMs();
    const expectedMs = this.#expectedMs();
    const aheadMs = wallMs - expectedMs;
    const toleranceMs = this.#jump?.reason === 'clocks-differ' ? this.#mayDifferMs : TOLERANCE_MS;
    const mayBeAheadMs = this.#jump?.reason === 'stopped-for-long' ? this.#maxDowntimeMs : toleranceMs;
    if (aheadMs > mayBeAheadMs || -aheadMs > toleranceMs) {
      this.#jump ??= { reason: 'wall-clock-jumped', wallMs, expectedMs: Math.floor(expectedMs) };
      // It may be the common clock that has jumped, and what is used once never comes back.
      const commonMs = this.#jump.reason === 'clocks-differ' ? this.#commonExpectedMs() : undefined;
      this.#use(Math.floor(Math.min(expectedMs, commonMs ?? expectedMs)));
      return this.#usedMs;
    }
    if (this.#jump !== undefined) {
      const { reason } = this.#jump;
      const mayHaveUsedMore = reason === 'recorded-time-ahead' || reason === 'clocks-differ';
      if (!mayHaveUsedMore || this.#usedMs <= wallMs + this.#leaseMs + TOLERANCE_MS) this.#jump = undefined;
      else if (reason === 'clocks-differ') {
        this.#jump = { reason: 'recorded-time-ahead', wallMs, expectedMs: this.#usedMs };
      }
    }
    // Slow drift (NTP slewing) is followed: the anchor moves with every reading that was within tolerance.
    this.#anchor(wallMs);
    this.#use(wallMs);
    return this.#usedMs;
  }

  /** What holds time at present, or undefined while all is well. Reads the clocks. */
  jump(): ClockJump | undefined {
    this.now();
    return this.#jump;
  }

  /**
   * For how long time stands still if nothing is changed, in milliseconds: until the wall clock has come to what was used
   * before. 0 while time goes on, held or not.
   */
  standsStillMs(): number {
    this.now();
    return this.#jump === undefined ? Math.max(0, Math.ceil(this.#usedMs - this.#sources.wallMs())) : 0;
  }

  /**
   * Tells the clock of a time found in the log. Recorded time beyond the tolerance ahead of the wall clock holds
   * the clock as a jump does; anything else only raises the high-water mark.
   */
  observeRecorded(atMs: number): void {
    const wallMs = this.#sources.wallMs();
    if (atMs > wallMs + this.#leaseMs + TOLERANCE_MS) {
      this.#jump ??= { reason: 'recorded-time-ahead', wallMs, expectedMs: atMs };
    } else if (this.#jump?.reason === 'stopped-for-long' && atMs > this.#usedMs) {
      // Other nodes were at work meanwhile.
      this.#goOnFrom(atMs, wallMs);
    }
    this.#use(atMs);
  }

  /**
   * Tells the clock what the one says that all nodes ask. Where the wall clock is too far from that, time is held and goes
   * on along the common one, as far as that itself has not jumped since it was right: what this node records and erases is
   * recorded and erased for all of them. A long stop is another question, which only an operator can answer.
   */
  observeCommon({ earliestMs, latestMs }: CommonTime): void {
    // Nobody is given the wall clock's time before it is known to be near the common one.
    const wallMs = this.#sources.wallMs();
    const isLongStop = this.#jump?.reason === 'stopped-for-long';
    if (isLongStop && wallMs - this.#expectedMs() > this.#maxDowntimeMs) return;
    const apartMs = (ownMs: number) => Math.max(ownMs - latestMs, earliestMs - ownMs);
    const differs = [wallMs, wallMs - this.#acceptedAheadMs].every((ownMs) => apartMs(ownMs) > this.#mayDifferMs);
    const hasJumped = apartMs(this.#commonExpectedMs() ?? latestMs) > this.#mayDifferMs;
    if (!differs || !hasJumped) {
      this.#commonKnown = { atMs: latestMs, monotonicMs: this.#sources.monotonicMs() };
    }
    if (differs) {
      this.#jump = { reason: 'clocks-differ', wallMs, expectedMs: earliestMs };
      this.#anchor(earliestMs);
    } else if (this.#jump?.reason === 'clocks-differ') this.#anchor(wallMs);
  }

  /** Time is at least this from now on; see {@link ManualClock.raise}. */
  raise(atMs: number): void {
    this.#use(atMs);
  }

  /** An operator says that the wall clock is right as it is now. What was used before is still never taken back. */
  confirm(): void {
    const wallMs = this.#sources.wallMs();
    // It is the common clock that is wrong, and may be so by as much from now on.
    if (this.#jump?.reason === 'clocks-differ') this.#acceptedAheadMs = wallMs - this.#expectedMs();
    this.#anchor(wallMs);
    this.#jump = undefined;
  }

  /** At a clean stop: persists the exact mark, without the lease. */
  close(): void {
    this.#save(this.#usedMs);
  }

  #use(atMs: number): void {
    if (atMs <= this.#usedMs) return;
    // Durable first: when saving fails, this time was not given to anybody, and the next reading saves again.
    const leaseMs = this.#presentLeaseMs();
    if (atMs > this.#savedMs) this.#save(atMs + leaseMs);
    else if (atMs > this.#savedMs - leaseMs / 2) this.#renew(atMs + leaseMs);
    this.#usedMs = atMs;
  }

  /**
   * Longer where the disk is slow. A mark that is over when the disk has it would make every reading wait for another, and
   * with it all that this thread does, down to saying that it is alive.
   */
  #presentLeaseMs(): number {
    const needed = Math.ceil(Math.min(this.#diskMs * DISK_TIMES_A_LEASE, MAX_LEASE_MS));
    return Math.max(this.#leaseMs, needed);
  }

  #tookSince(monotonicMs: number): void {
    this.#diskMs = Math.max(this.#sources.monotonicMs() - monotonicMs, this.#diskMs * FORGOTTEN_TO);
  }

  #save(markMs: number): void {
    const begunMs = this.#sources.monotonicMs();
    this.#mark.save(markMs);
    this.#tookSince(begunMs);
    this.#savedMs = markMs;
    this.#renewing = undefined;
  }

  /** Ahead of need, so that nobody has to wait for the disk. */
  #renew(markMs: number): void {
    if (this.#renewing !== undefined) return;
    const begunMs = this.#sources.monotonicMs();
    const renewing: Promise<void> | undefined = this.#mark.saveSoon?.(markMs).then(
      () => {
        this.#tookSince(begunMs);
        // What was saved since is what counts.
        if (this.#renewing !== renewing) return;
        this.#savedMs = markMs;
        this.#renewing = undefined;
      },
      () => {
        // Whoever comes after the lease saves a mark himself, and is told.
        if (this.#renewing === renewing) this.#renewing = undefined;
      },
    );
    this.#renewing = renewing;
  }
}

/** A clock that stands still until it is told to move, for tests of retention rules. Its time is persisted at every step. */
export class ManualClock implements Clock {
  #nowMs: number;
  readonly #mark: HighWaterMark | undefined;

  constructor(startMs: number, mark?: HighWaterMark) {
    this.#mark = mark;
    this.#nowMs = Math.max(startMs, mark?.initialMs ?? 0);
    this.#mark?.save(this.#nowMs);
  }

  now(): number {
    return this.#nowMs;
  }

  /** Time is at least this from now on. For a command that must come after an instant which was already answered for. */
  raise(atMs: number): void {
    if (atMs > this.#nowMs) this.advance(atMs - this.#nowMs);
  }

  /** Turns time forward by whole milliseconds; never back. */
  advance(milliseconds: number): number {
    if (!Number.isSafeInteger(milliseconds) || milliseconds < 0) {
      throw new RangeError('a manual clock is turned forward by a whole number of milliseconds, 0 or more');
    }
    const next = this.#nowMs + milliseconds;
    if (next > MAX_TIME_MS) throw new RangeError('a manual clock ends with the year 9999');
    this.#mark?.save(next);
    this.#nowMs = next;
    return next;
  }
}

/** The last millisecond of the year 9999, the end of what ISO dates of four digits can say. */
export const MAX_TIME_MS = 253_402_300_799_999;

/** `2026-11-21T10:00:00.000Z` for milliseconds since the epoch. */
export function isoTime(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** A time as headers of HTTP have it. */
export function httpTime(atMs: number): string {
  return new Date(atMs).toUTCString();
}
