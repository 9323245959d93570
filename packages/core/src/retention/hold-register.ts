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

type Release = NonNullable<RecordedHold['released']>;

/** What versions of a register share: each has so many of the first of both lists. */
interface Shared {
  readonly placed: RecordedHold[];
  readonly places: Map<string, number>;
  readonly releases: { readonly place: number; readonly released: Release }[];
  /** By the place of the hold. */
  readonly releaseOf: Map<number, number>;
}

/**
 * The holds of a container in the order in which they were placed, released ones too. There are more of them each year, so
 * a version has what the one before it has and does not copy it: to place or release one takes as long whatever there is.
 */
export class HoldRegister implements Iterable<RecordedHold> {
  static readonly empty = new HoldRegister(nothing(), 0, 0);

  readonly #shared: Shared;
  readonly #placed: number;
  readonly #released: number;

  private constructor(shared: Shared, placed: number, released: number) {
    this.#shared = shared;
    this.#placed = placed;
    this.#released = released;
  }

  static of(holds: Iterable<RecordedHold>): HoldRegister {
    let register = HoldRegister.empty;
    for (const { released, ...hold } of holds) {
      register = register.withPlaced(hold);
      if (released !== undefined) register = register.withReleased(hold.holdId, released);
    }
    return register;
  }

  get length(): number {
    return this.#placed;
  }

  /** How many are not released. */
  get standing(): number {
    return this.#placed - this.#released;
  }

  find(holdId: string): RecordedHold | undefined {
    const place = this.#shared.places.get(holdId);
    return place === undefined || place >= this.#placed ? undefined : this.#at(place);
  }

  withPlaced(hold: Omit<RecordedHold, 'released'>): HoldRegister {
    const shared = this.#toAppendTo();
    shared.places.set(hold.holdId, this.#placed);
    shared.placed.push(hold);
    return new HoldRegister(shared, this.#placed + 1, this.#released);
  }

  /** The same where there is no such hold, or it is released already. */
  withReleased(holdId: string, released: Release): HoldRegister {
    const known = this.find(holdId);
    if (known === undefined || known.released !== undefined) return this;
    const shared = this.#toAppendTo();
    const place = shared.places.get(holdId)!;
    shared.releaseOf.set(place, shared.releases.length);
    shared.releases.push({ place, released });
    return new HoldRegister(shared, this.#placed, this.#released + 1);
  }

  /** Those that an earlier version does not have, or not as they are now, with their places; all where it is of other origin. */
  *since(before: HoldRegister | undefined): Generator<readonly [place: number, hold: RecordedHold]> {
    const isEarlier =
      before !== undefined &&
      before.#shared === this.#shared &&
      before.#placed <= this.#placed &&
      before.#released <= this.#released;
    const placed = isEarlier ? before.#placed : 0;
    for (let index = isEarlier ? before.#released : this.#released; index < this.#released; index += 1) {
      const { place } = this.#shared.releases[index]!;
      if (place < placed) yield [place, this.#at(place)];
    }
    for (let place = placed; place < this.#placed; place += 1) yield [place, this.#at(place)];
  }

  *[Symbol.iterator](): Generator<RecordedHold> {
    for (let place = 0; place < this.#placed; place += 1) yield this.#at(place);
  }

  #at(place: number): RecordedHold {
    const hold = this.#shared.placed[place]!;
    const release = this.#shared.releaseOf.get(place);
    if (release === undefined || release >= this.#released) return hold;
    return { ...hold, released: this.#shared.releases[release]!.released };
  }

  /** What is shared, where this is the latest version of it; otherwise, as seldom comes, a copy. */
  #toAppendTo(): Shared {
    if (this.#placed === 0) return nothing();
    const { placed, releases } = this.#shared;
    if (placed.length === this.#placed && releases.length === this.#released) return this.#shared;
    const copy: Shared = {
      ...nothing(),
      placed: placed.slice(0, this.#placed),
      releases: releases.slice(0, this.#released),
    };
    for (const [place, { holdId }] of copy.placed.entries()) copy.places.set(holdId, place);
    for (const [index, { place }] of copy.releases.entries()) copy.releaseOf.set(place, index);
    return copy;
  }
}

function nothing(): Shared {
  return { placed: [], places: new Map(), releases: [], releaseOf: new Map() };
}
