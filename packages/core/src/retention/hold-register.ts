import type { RecordedScope } from './events.ts';

/** A hold with all that the container's events say of it, also after its release. */
export interface RecordedHold {
  readonly holdId: string;
  /** For a query's result only the number of lives. Their names are in the event at `position`. */
  readonly scope: Exclude<RecordedScope, { kind: 'query' }> | { readonly kind: 'query'; readonly count: number };
  readonly reason: string;
  readonly tooLateFor: number;
  readonly placedBy: string;
  readonly placedAtMs: number;
  /** Position of the `HoldPlaced`. */
  readonly position: number;
  readonly released?: { readonly by: string; readonly atMs: number; readonly reason: string };
}

export type StandingHold = Omit<RecordedHold, 'released'>;

/** What is kept of a released hold, because there are more of these each year. The rest is in the log, at these positions. */
export interface ReleasedHold {
  readonly holdId: string;
  /** Position of the `HoldPlaced`. */
  readonly position: number;
  /** Position of the `HoldReleased`. */
  readonly releasePosition: number;
}

export type KnownHold = StandingHold | ReleasedHold;

export const isStanding = (hold: KnownHold): hold is StandingHold => !('releasePosition' in hold);

/** What all versions of a register share. Each version uses a number of first entries of `placed` and of `releases`. */
interface Shared {
  readonly placed: KnownHold[];
  readonly places: Map<string, number>;
  /** The releases of holds that were in force when they were added to `placed`. */
  readonly releases: { readonly place: number; readonly position: number }[];
  /** Index in `releases`, by the hold's index in `placed`. */
  readonly releaseOf: Map<number, number>;
}

/**
 * The lists are copied, without what released holds said, once there are more than this many releases, and more than
 * one release for every `HOLDS_PER_RELEASE` holds.
 */
const LEAST_RELEASES = 16;
const HOLDS_PER_RELEASE = 8;

/**
 * The holds of a container in the order in which they were placed, with the released ones. An immutable value. There
 * are more holds each year, so a new version shares the lists of the one before and does not copy them: placing or
 * releasing a hold takes the same time whatever their number.
 */
export class HoldRegister implements Iterable<KnownHold> {
  static readonly empty = new HoldRegister(nothing(), 0, 0, 0);

  readonly #shared: Shared;
  readonly #placed: number;
  readonly #releases: number;
  /** How many holds are in force. */
  readonly standing: number;

  private constructor(shared: Shared, placed: number, releases: number, standing: number) {
    this.#shared = shared;
    this.#placed = placed;
    this.#releases = releases;
    this.standing = standing;
  }

  static of(holds: Iterable<KnownHold>): HoldRegister {
    return HoldRegister.empty.with(holds);
  }

  get length(): number {
    return this.#placed;
  }

  find(holdId: string): KnownHold | undefined {
    const place = this.#shared.places.get(holdId);
    return place === undefined || place >= this.#placed ? undefined : this.#at(place);
  }

  withPlaced(hold: KnownHold): HoldRegister {
    const latest = this.#latest();
    const { placed, places } = latest.#shared;
    places.set(hold.holdId, latest.#placed);
    placed.push(hold);
    const standing = latest.standing + (isStanding(hold) ? 1 : 0);
    return new HoldRegister(latest.#shared, latest.#placed + 1, latest.#releases, standing);
  }

  /**
   * Returns this register if it has no such hold, or the hold is released already.
   *
   * @param position position of the `HoldReleased`
   */
  withReleased(holdId: string, position: number): HoldRegister {
    const known = this.find(holdId);
    if (known === undefined || !isStanding(known)) return this;
    const latest = this.#latest();
    const { places, releases, releaseOf } = latest.#shared;
    const place = places.get(holdId)!;
    releaseOf.set(place, releases.length);
    releases.push({ place, position });
    const register = new HoldRegister(latest.#shared, latest.#placed, latest.#releases + 1, latest.standing - 1);
    // Copies are so rare that each release pays for copying only a few holds.
    const isMuch = releases.length > Math.max(LEAST_RELEASES, latest.#placed / HOLDS_PER_RELEASE);
    return isMuch ? register.#copy() : register;
  }

  /** Adds these holds, or updates those that are there already. */
  with(holds: Iterable<KnownHold>): HoldRegister {
    let register = this.#latest();
    for (const hold of holds) {
      if (register.find(hold.holdId) === undefined) register = register.withPlaced(hold);
      else if (!isStanding(hold)) register = register.withReleased(hold.holdId, hold.releasePosition);
    }
    return register;
  }

  /** The holds that were placed after a position of the log. */
  *after(position: number): Generator<KnownHold> {
    let from = 0;
    for (let to = this.#placed; from < to;) {
      const middle = Math.floor((from + to) / 2);
      if (this.#shared.placed[middle]!.position > position) to = middle;
      else from = middle + 1;
    }
    for (let place = from; place < this.#placed; place += 1) yield this.#at(place);
  }

  [Symbol.iterator](): Generator<KnownHold> {
    return this.after(Number.NEGATIVE_INFINITY);
  }

  #at(place: number): KnownHold {
    const hold = this.#shared.placed[place]!;
    const release = this.#shared.releaseOf.get(place);
    if (release === undefined || release >= this.#releases) return hold;
    const { holdId, position } = hold;
    return { holdId, position, releasePosition: this.#shared.releases[release]!.position };
  }

  /** A register with the same holds that can be appended to. Of all versions that share their lists only the newest can be. */
  #latest(): HoldRegister {
    const { placed, releases } = this.#shared;
    const isLatest = placed.length === this.#placed && releases.length === this.#releases;
    return isLatest && this.#placed > 0 ? this : this.#copy();
  }

  /** What released holds said is not copied. It is freed when no version before this one is in use any more. */
  #copy(): HoldRegister {
    const placed = [...this];
    const places = new Map(placed.map(({ holdId }, place) => [holdId, place]));
    return new HoldRegister({ ...nothing(), placed, places }, this.#placed, 0, this.standing);
  }
}

function nothing(): Shared {
  return { placed: [], places: new Map(), releases: [], releaseOf: new Map() };
}
