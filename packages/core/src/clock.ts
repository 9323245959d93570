/** The only source of time. Deciders and projections never read it: their commands and events carry the time. */
export interface Clock {
  /** Milliseconds since the Unix epoch. Never goes backwards within a process. */
  now(): number;
}

/** Reads the system's clocks. Nothing else in the project does. */
export const systemClocks = {
  /** Wall clock, milliseconds since the Unix epoch. May jump either way. */
  wallMs: (): number => Date.now(),
  /** Monotonic clock, milliseconds from an arbitrary start. Never jumps. */
  monotonicMs: (): number => performance.now(),
  /** CPU time of this thread in milliseconds: stands still while other threads have the processor. A call takes about 2 µs. */
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

/** Stores the highest time ever used, so that time never goes back when the process restarts with an earlier system clock. */
export interface HighWaterMark {
  /** The mark of the last run, in milliseconds; 0 for a new folder. */
  readonly initialMs: number;
  /** Makes a mark durable before it returns. */
  save(markMs: number): void;
  /**
   * Writes a mark before it returns, and resolves when the mark is durable. A mark that is saved later wins, whichever
   * of the two becomes durable first.
   */
  saveSoon?(markMs: number): Promise<void>;
}

/** Why a guarded clock holds time, and what it saw, in milliseconds. */
export interface ClockJump {
  readonly reason: 'wall-clock-jumped' | 'recorded-time-ahead' | 'stopped-for-long' | 'clocks-differ';
  readonly wallMs: number;
  readonly expectedMs: number;
}

/** Time is held if wall clock and monotonic clock drift apart by more than this, in milliseconds. */
const TOLERANCE_MS = 5_000;

/** A lease lasts this many times as long as the disk takes to save a mark: it is renewed when half of it is over. */
const DISK_TIMES_A_LEASE = 4;
/** The longest lease. After a crash, time stands still for the rest of a lease. Up to this length it is not held as a jump. */
const MAX_LEASE_MS = TOLERANCE_MS;
/** Each faster save lowers the remembered disk time to this share of it, so that it falls slowly after a slow save. */
const FORGOTTEN_TO = 0.9;

export interface GuardedClockOptions {
  readonly sources: ClockSources;
  readonly mark: HighWaterMark;
  /** How far the saved mark is ahead of the time used while the disk is fast; 1,000 ms by default. */
  readonly leaseMs?: number;
  /** How far a start may be from the last time used, in milliseconds; unlimited by default. */
  readonly maxDowntimeMs?: number;
  /** How far the wall clock may differ from the common clock of several nodes, in milliseconds; 5,000 at most. */
  readonly mayDifferMs?: number;
}

/** What a clock on another machine said: its time at present is between these two, as the answer took a moment to arrive. */
export interface CommonTime {
  readonly earliestMs: number;
  readonly latestMs: number;
}

/**
 * A clock that never gives out a time again that lies before one it gave out, and that detects jumps, so that nothing
 * irreversible is done at a wrong time.
 *
 * `now()` returns max(system clock, highest time used before). When the wall clock departs from the monotonic clock by
 * more than the tolerance, `now()` follows the monotonic clock and `jump()` reports the jump. The caller must then
 * neither stamp writes nor erase anything until the clocks agree again or an operator confirms the new time. A start
 * far from the last time used is held in the same way, because a wall clock that runs ahead looks the same as a long
 * stop.
 */
export class GuardedClock implements Clock {
  readonly #sources: ClockSources;
  readonly #mark: HighWaterMark;
  readonly #leaseMs: number;
  readonly #maxDowntimeMs: number;
  readonly #mayDifferMs: number;
  #savedMs: number;
  /** How long the disk took lately to save a mark. */
  #diskMs = 0;
  /** The save of a mark that is in progress. */
  #renewing: Promise<void> | undefined;
  #usedMs: number;
  #anchorWallMs: number;
  #anchorMonotonicMs: number;
  #jump: ClockJump | undefined;
  /** How far the wall clock is ahead of the common clock although it is right, as an operator has confirmed. */
  #acceptedAheadMs = 0;
  /**
   * The last time of the common clock that was trusted: it agreed with the wall clock, or with the common clock's time
   * before.
   */
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

  /** Holds time at the last time used, because the wall clock may be wrong. */
  #goOnFrom(usedMs: number, wallMs: number): void {
    this.#jump = { reason: 'stopped-for-long', wallMs, expectedMs: usedMs };
    this.#anchor(usedMs);
  }

  #expectedMs(): number {
    return this.#anchorWallMs + (this.#sources.monotonicMs() - this.#anchorMonotonicMs);
  }

  /** The common clock's present time unless it has jumped. Undefined if it was never asked. */
  #commonExpectedMs(): number | undefined {
    const known = this.#commonKnown;
    return known && known.atMs + (this.#sources.monotonicMs() - known.monotonicMs);
  }

  /** Sets the time from which the wall clock is expected to go on. */
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
      // The common clock itself may have jumped ahead, and a time once used can't be taken back, so the lower of the two is used.
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

  /** Why time is held at present, or undefined if it isn't. Reads the clocks. */
  jump(): ClockJump | undefined {
    this.now();
    return this.#jump;
  }

  /**
   * How long time will stand still if nothing changes, in milliseconds: until the wall clock reaches the highest time
   * used before. 0 while time moves, held or not.
   */
  standsStillMs(): number {
    this.now();
    return this.#jump === undefined ? Math.max(0, Math.ceil(this.#usedMs - this.#sources.wallMs())) : 0;
  }

  /**
   * Tells the clock a time found in the log. If it is ahead of the wall clock by more than the tolerance, the clock is
   * held as after a jump. Otherwise it only raises the high-water mark.
   */
  observeRecorded(atMs: number): void {
    const wallMs = this.#sources.wallMs();
    if (atMs > wallMs + this.#leaseMs + TOLERANCE_MS) {
      this.#jump ??= { reason: 'recorded-time-ahead', wallMs, expectedMs: atMs };
    } else if (this.#jump?.reason === 'stopped-for-long' && atMs > this.#usedMs) {
      // Other nodes were working during this node's long stop.
      this.#goOnFrom(atMs, wallMs);
    }
    this.#use(atMs);
  }

  /**
   * Tells the clock the time of the common clock, which all nodes ask. If the wall clock is too far from it, time is
   * held and follows the common clock, unless the common clock itself has jumped since it was last right: what this
   * node records and erases takes effect for all nodes. A long stop is different: only an operator can end it.
   */
  observeCommon({ earliestMs, latestMs }: CommonTime): void {
    // Reads the wall clock directly: `now()` must not give out its time before it is known to be near the common clock.
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

  /** From now on `now()` returns at least this time; see {@link ManualClock.raise}. */
  raise(atMs: number): void {
    this.#use(atMs);
  }

  /** An operator confirms that the wall clock is right as it is now. The highest time used before is still never taken back. */
  confirm(): void {
    const wallMs = this.#sources.wallMs();
    // The common clock is the wrong one, and may stay wrong by this much.
    if (this.#jump?.reason === 'clocks-differ') this.#acceptedAheadMs = wallMs - this.#expectedMs();
    this.#anchor(wallMs);
    this.#jump = undefined;
  }

  /** For a clean stop: saves the exact time used as the mark, without a lease. */
  close(): void {
    this.#save(this.#usedMs);
  }

  #use(atMs: number): void {
    if (atMs <= this.#usedMs) return;
    // The mark is made durable first: if saving fails, nobody was given this time, and the next reading saves again.
    const leaseMs = this.#presentLeaseMs();
    if (atMs > this.#savedMs) this.#save(atMs + leaseMs);
    else if (atMs > this.#savedMs - leaseMs / 2) this.#renew(atMs + leaseMs);
    this.#usedMs = atMs;
  }

  /**
   * The lease is longer while the disk is slow. If the lease ended before the disk had the next mark, every reading
   * would wait for the disk, and so would everything else on this thread, even saying that the process is alive.
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

  /** Saves the next mark before it is needed, so that no reading waits for the disk. */
  #renew(markMs: number): void {
    if (this.#renewing !== undefined) return;
    const begunMs = this.#sources.monotonicMs();
    const renewing: Promise<void> | undefined = this.#mark.saveSoon?.(markMs).then(
      () => {
        this.#tookSince(begunMs);
        // A mark saved since then replaces this one.
        if (this.#renewing !== renewing) return;
        this.#savedMs = markMs;
        this.#renewing = undefined;
      },
      () => {
        // The first reading after the lease saves a mark itself and gets the error.
        if (this.#renewing === renewing) this.#renewing = undefined;
      },
    );
    this.#renewing = renewing;
  }
}

/** A clock that stands still until it is told to move, for tests of retention rules. Saves its time at every step. */
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

  /**
   * From now on the time is at least this. For a command that must come after an instant for which an answer was
   * already given.
   */
  raise(atMs: number): void {
    if (atMs > this.#nowMs) this.advance(atMs - this.#nowMs);
  }

  /** Moves time forward by whole milliseconds, never back. */
  advance(milliseconds: number): number {
    if (!Number.isSafeInteger(milliseconds) || milliseconds < 0) {
      throw new RangeError('a manual clock is advanced by a whole number of milliseconds, 0 or more');
    }
    const next = this.#nowMs + milliseconds;
    if (next > MAX_TIME_MS) throw new RangeError('a manual clock ends with the year 9999');
    this.#mark?.save(next);
    this.#nowMs = next;
    return next;
  }
}

/** The last millisecond of the year 9999, which is the last that an ISO date with a four-digit year can express. */
export const MAX_TIME_MS = 253_402_300_799_999;

/** `2026-11-21T10:00:00.000Z` for milliseconds since the epoch. */
export function isoTime(atMs: number): string {
  return new Date(atMs).toISOString();
}

/** A time in the format of HTTP headers. */
export function httpTime(atMs: number): string {
  return new Date(atMs).toUTCString();
}
