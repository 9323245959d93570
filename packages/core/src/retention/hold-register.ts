import type { RecordedScope } from './events.ts';

/** A hold as the container's stream has it; one that was released stays. */
export interface RecordedHold {
  readonly holdId: string;
  /** Of a query's result only how many lives it named: the event at `position` has their names. */
  readonly scope: Exclude<RecordedScope, { kind: 'query' }> | { readonly kind: 'query'; readonly count: number };
  readonly reason: string;
  readonly tooLateFor: number;
  readonly placedBy: string;
  readonly placedAtMs: number;
  /** Of the `HoldPlaced` in the log. */
  readonly position: number;
  readonly released?: { readonly by: string; readonly atMs: number; readonly reason: string };
}

export type StandingHold = Omit<RecordedHold, 'released'>;

/** What is remembered of a hold that was released. The rest is in the log, at these positions: there are more each year. */
export interface ReleasedHold {
  readonly holdId: string;
  /** Of the `HoldPlaced`. */
  readonly position: number;
  /** Of the `HoldReleased`. */
  readonly releasePosition: number;
}

export type KnownHold = StandingHold | ReleasedHold;

export const isStanding = (hold: KnownHold): hold is StandingHold => !('releasePosition' in hold);

/** What versions of a register share: each has so many of the first of both lists. */
interface Shared {
  readonly placed: KnownHold[];
  readonly places: Map<string, number>;
  /** Of those that stood when they came into the first list. */
  readonly releases: { readonly place: number; readonly position: number }[];
  /** By the place of the hold. */
  readonly releaseOf: Map<number, number>;
}

/** What released holds said is kept of so many at least, and of one hold in so many, until it is forgotten. */
const LEAST_RELEASES = 16;
const HOLDS_PER_RELEASE = 8;

/**
 * The holds of a container in the order in which they were placed, released ones too. There are more of them each year, so
 * a version has what the one before it has and does not copy it: to place or release one takes as long whatever there is.
 */
export class HoldRegister implements Iterable<KnownHold> {
  static readonly empty = new HoldRegister(nothing(), 0, 0, 0);

  readonly #shared: Shared;
  readonly #placed: number;
  readonly #releases: number;
  /** How many are not released. */
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
   * The same where there is no such hold, or it is released already.
   *
   * @param position of the `HoldReleased` in the log
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
    // So seldom that each release pays for the copying of a few holds.
    const isMuch = releases.length > Math.max(LEAST_RELEASES, latest.#placed / HOLDS_PER_RELEASE);
    return isMuch ? register.#copy() : register;
  }

  /** With these as they are now, which may be there already. */
  with(holds: Iterable<KnownHold>): HoldRegister {
    let register = this.#latest();
    for (const hold of holds) {
      if (register.find(hold.holdId) === undefined) register = register.withPlaced(hold);
      else if (!isStanding(hold)) register = register.withReleased(hold.holdId, hold.releasePosition);
    }
    return register;
  }

  /** Those that were placed after a position of the log. */
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

  /** The same, to be appended to: of all that share their lists only the last may be. */
  #latest(): HoldRegister {
    const { placed, releases } = this.#shared;
    const isLatest = placed.length === this.#placed && releases.length === this.#releases;
    return isLatest && this.#placed > 0 ? this : this.#copy();
  }

  /** What released holds said is not copied: it is gone when no version before this is in use any more. */
  #copy(): HoldRegister {
    const placed = [...this];
    const places = new Map(placed.map(({ holdId }, place) => [holdId, place]));
    return new HoldRegister({ ...nothing(), placed, places }, this.#placed, 0, this.standing);
  }
}

function nothing(): Shared {
  return { placed: [], places: new Map(), releases: [], releaseOf: new Map() };
}
