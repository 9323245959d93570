import type { ContainerNumber } from '../read-model-store.ts';

/** How many lives a stretch has at most. All of them must be asked about again when one of them may be erased. */
const STRETCH_LIVES = 100;
/** How many lives become due to be asked about at a time, at most. */
const DUE_LIVES = 1_000;

/** A place in the order in which a container's lives are erased. */
export interface Place {
  readonly endedAtMs: number;
  readonly position: number;
}

/** The place before all others. */
export const BEGINNING: Place = { endedAtMs: 0, position: 0 };

/** Each kind has an order of its own: ended lives by what ended them, and the items of a deleted container. */
export type HeldKind = 'ended' | 'ended-by-policy-start' | 'items';

/** A life that the vault was asked about. */
export interface AskedLife extends Place {
  /** The life before this one, or the place where the look began. There is no other life in between. */
  readonly after: Place;
  /**
   * `erased`; or what keeps the life (or that it can't be erased) and when the vault is to be asked again, in
   * milliseconds; or `left` if the vault was not asked, for example because the log did not agree.
   */
  readonly outcome: 'erased' | 'left' | { readonly by: 'hold' | 'floor' | 'fault'; readonly untilMs: number };
}

/** The state of {@link HeldLives} when a look for lives to ask the vault about began. */
export interface Look {
  readonly changes: number;
  readonly forgotten: number;
}

/**
 * All lives between two places, as they were when the vault was asked about them. The vault keeps each of them, or it
 * can't be erased.
 */
export interface Stretch {
  readonly after: Place;
  readonly upTo: Place;
  readonly hold: number;
  readonly floor: number;
  readonly fault: number;
  /** When the first of these lives may be erased. */
  readonly untilMs: number;
  /** The sum of their positions. Together with their number it identifies the same lives. */
  readonly sum: number;
  /** False if other lives may have come in between since. */
  readonly isSure: boolean;
}

/** Where to look next, and how far. */
export interface Part {
  readonly after: Place;
  /** The end of the part to look at before asking again. Undefined for as far as there are lives. */
  readonly upTo: Place | undefined;
  /** What the part was the last time. Undefined if that is not known. */
  readonly stretch: Stretch | undefined;
}

/**
 * The lives that the vault keeps, and those that can't be erased, so that the purge doesn't ask about each of them
 * again and again, and gets to the lives after them. There may be a million, so it does not remember each one, but
 * stretches of the order in which they are looked through.
 */
export class HeldLives {
  readonly #stretches = new Map<ContainerNumber, Map<HeldKind, Stretch[]>>();
  #changes = 0;
  #forgotten = 0;

  get look(): Look {
    return { changes: this.#changes, forgotten: this.#forgotten };
  }

  get count(): number {
    let count = 0;
    for (const container of this.#stretches.keys()) {
      const { hold, floor } = this.countIn(container);
      count += hold + floor;
    }
    return count;
  }

  get containers(): readonly ContainerNumber[] {
    return [...this.#stretches.keys()];
  }

  countIn(container: ContainerNumber): Readonly<Record<'hold' | 'floor' | 'fault', number>> {
    const count = { hold: 0, floor: 0, fault: 0 };
    for (const { hold, floor, fault } of this.#of(container)) {
      count.hold += hold;
      count.floor += floor;
      count.fault += fault;
    }
    return count;
  }

  /** When the first kept life of a container may be erased, in milliseconds. Undefined if none is kept. */
  untilMs(container: ContainerNumber): number | undefined {
    let first: number | undefined;
    for (const { untilMs } of this.#of(container)) first = Math.min(first ?? untilMs, untilMs);
    return first;
  }

  forget(container?: ContainerNumber): void {
    this.#forgotten += 1;
    if (container === undefined) this.#stretches.clear();
    else this.#stretches.delete(container);
  }

  /** A new life is at a place; or, without a place, a new life may be anywhere. */
  changed(container: ContainerNumber, kind?: HeldKind, place?: Place): void {
    this.#changes += 1;
    for (const [of, stretches] of this.#stretches.get(container) ?? []) {
      if (kind !== undefined && of !== kind) continue;
      const from = place === undefined ? 0 : indexAt(stretches, place);
      const to = place === undefined ? stretches.length : from + 1;
      for (let index = from; index < to && index < stretches.length; index += 1) {
        stretches[index] = { ...stretches[index]!, isSure: false };
      }
    }
  }

  /** The first part after a place that must be looked at. The vault need not be asked about the stretches before it. */
  next(container: ContainerNumber, kind: HeldKind, place: Place, nowMs: number): Part {
    const stretches = this.#stretches.get(container)?.get(kind) ?? [];
    let after = place;
    for (let index = indexAfter(stretches, place); index < stretches.length; index += 1) {
      const stretch = stretches[index]!;
      if (isBefore(after, stretch.after)) return { after, upTo: stretch.after, stretch: undefined };
      if (stretch.untilMs <= nowMs) return { after, upTo: takeDue(stretches, index, nowMs), stretch: undefined };
      if (!stretch.isSure) return { after: stretch.after, upTo: stretch.upTo, stretch };
      after = stretch.upTo;
    }
    return { after, upTo: undefined, stretch: undefined };
  }

  /** True if the lives in a stretch are still those that the vault keeps. Otherwise the vault must be asked about them. */
  isAsBefore(container: ContainerNumber, kind: HeldKind, stretch: Stretch, lives: readonly Place[]): boolean {
    const isSame = lives.length === livesOf(stretch) && sumOf(lives) === stretch.sum;
    const stretches = this.#stretches.get(container)?.get(kind) ?? [];
    const index = stretches.indexOf(stretch);
    // A life may have come while these were looked up. Then they are looked up again the next time.
    if (index >= 0 && isSame) stretches[index] = { ...stretch, isSure: true };
    else if (index >= 0) stretches.splice(index, 1);
    return isSame;
  }

  /**
   * Takes the vault's answers about some lives, in order.
   *
   * @param look taken before the lives were looked up
   */
  asked(container: ContainerNumber, kind: HeldKind, lives: readonly AskedLife[], look: Look): void {
    // The reason for which they were kept may have been removed since.
    if (look.forgotten !== this.#forgotten) return;
    const isSure = look.changes === this.#changes;
    let stretch: Stretch | undefined;
    const keep = (): void => {
      if (stretch !== undefined && livesOf(stretch) > 0) this.#keep(container, kind, stretch);
      stretch = undefined;
    };
    for (const { after, outcome, endedAtMs, position } of lives) {
      // After this gap the next life does not continue the stretch before it.
      if (outcome === 'left') continue;
      const { by, untilMs } = outcome === 'erased' ? { by: undefined, untilMs: Number.POSITIVE_INFINITY } : outcome;
      const life: Stretch = {
        after,
        upTo: { endedAtMs, position },
        hold: by === 'hold' ? 1 : 0,
        floor: by === 'floor' ? 1 : 0,
        fault: by === 'fault' ? 1 : 0,
        untilMs,
        sum: by === undefined ? 0 : position,
        isSure,
      };
      const both: Stretch | undefined = stretch === undefined ? life : joined(stretch, life);
      if (both === undefined) keep();
      stretch = both ?? life;
    }
    keep();
  }

  #keep(container: ContainerNumber, kind: HeldKind, stretch: Stretch): void {
    let kinds = this.#stretches.get(container);
    if (kinds === undefined) this.#stretches.set(container, (kinds = new Map()));
    let stretches = kinds.get(kind);
    if (stretches === undefined) kinds.set(kind, (stretches = []));
    const index = indexAfter(stretches, stretch.after);
    const before = stretches[index - 1];
    const both = before === undefined ? undefined : joined(before, stretch);
    if (both === undefined) stretches.splice(index, 0, stretch);
    else stretches[index - 1] = both;
  }

  *#of(container: ContainerNumber): Generator<Stretch> {
    for (const stretches of this.#stretches.get(container)?.values() ?? []) yield* stretches;
  }
}

const isBefore = (left: Place, right: Place): boolean =>
  left.endedAtMs < right.endedAtMs || (left.endedAtMs === right.endedAtMs && left.position < right.position);

export const isBehind = (left: Place, right: Place): boolean => isBefore(right, left);

export const livesOf = ({ hold, floor, fault }: Stretch): number => hold + floor + fault;

const sumOf = (lives: readonly Place[]): number => lives.reduce((sum, { position }) => plus(sum, position), 0);

const plus = (left: number, right: number): number => (left + right) % Number.MAX_SAFE_INTEGER;

/** Removes a stretch that the vault is to be asked about again, and some that follow it. Returns the place where they end. */
function takeDue(stretches: Stretch[], index: number, nowMs: number): Place {
  let { upTo } = stretches[index]!;
  let end = index + 1;
  for (let lives = livesOf(stretches[index]!); lives < DUE_LIVES && end < stretches.length; end += 1) {
    const next = stretches[end]!;
    if (next.untilMs > nowMs || isBefore(upTo, next.after)) break;
    lives += livesOf(next);
    upTo = next.upTo;
  }
  stretches.splice(index, end - index);
  return upTo;
}

/** Two stretches as one, if they follow each other and don't have too many lives together. */
function joined(left: Stretch, right: Stretch): Stretch | undefined {
  if (isBefore(left.upTo, right.after) || livesOf(left) + livesOf(right) > STRETCH_LIVES) return undefined;
  return {
    after: left.after,
    upTo: right.upTo,
    hold: left.hold + right.hold,
    floor: left.floor + right.floor,
    fault: left.fault + right.fault,
    untilMs: Math.min(left.untilMs, right.untilMs),
    sum: plus(left.sum, right.sum),
    isSure: left.isSure && right.isSure,
  };
}

/** The index of the first stretch that ends after a place. */
function indexAfter(stretches: readonly Stretch[], place: Place): number {
  let from = 0;
  let to = stretches.length;
  while (from < to) {
    const middle = Math.floor((from + to) / 2);
    if (isBefore(place, stretches[middle]!.upTo)) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** The index of the first stretch that ends at a place or after it. */
function indexAt(stretches: readonly Stretch[], place: Place): number {
  return indexAfter(stretches, { endedAtMs: place.endedAtMs, position: place.position - 1 });
}
