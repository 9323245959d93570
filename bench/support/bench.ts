import type { ContenderOptions, RunningContender } from './contender.ts';
import { median, ratioOf, type Spread } from './statistics.ts';

/** One line of the table. */
export interface Row {
  /** P1, P2, … as in the list of targets. */
  readonly bench: string;
  readonly work: string;
  readonly unit: string;
  /** Median over the rounds. */
  readonly ours: number | null;
  readonly peer: { readonly name: string; readonly value: number | null } | null;
  readonly ratio: Spread | null;
  readonly target: Target | null;
  /** Null when nothing was measured, or the sizes were not those the target speaks of. */
  readonly reached: boolean | null;
  /** Why there is no figure, or what to know about it. */
  readonly note?: string;
  /** The figures of each round. */
  readonly rounds?: { readonly ours: readonly number[]; readonly peer: readonly number[] };
}

export interface Target {
  /** What is compared with the limit: our figure itself, or its ratio to the peer's. */
  readonly of: 'ours' | 'ratio';
  readonly is: 'at-least' | 'at-most';
  readonly limit: number;
}

export interface BenchContext {
  readonly rounds: number;
  /** How long each side is measured in a round, roughly. */
  readonly seconds: number;
  /** The sizes that the targets speak of; without it smaller ones that take a minute. */
  readonly full: boolean;
  /** Our side alone, under a CPU profiler. */
  readonly profiling: boolean;
  /** An empty folder on the disk that the project is on. */
  scratch(name: string): string;
  /** Our side. Under `--profile` it runs with a CPU profiler. */
  ours(module: string, factory: string, options?: ContenderOptions): Promise<RunningContender>;
  /** The other side, or why there is none: not available here, or left out while profiling. */
  peer(module: string, factory: string, options?: ContenderOptions): Promise<RunningContender | Unavailable>;
  /** Called when the run ends, however it ends. */
  atEnd(cleanUp: () => void): void;
  /** Tells who waits what is going on. */
  say(text: string): void;
}

/** A peer that can't run here. Its rows say so: a figure is measured or it isn't there. */
export class Unavailable {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

export interface Bench {
  readonly id: string;
  readonly title: string;
  /** Sizes of the seeded folders that it copies. They are written beforehand, by a process of their own. */
  seeds?(full: boolean): readonly number[];
  run(context: BenchContext): Promise<Row[]>;
}

/** A figure for each round, or why there is none. */
export type Rounds = readonly number[] | Unavailable;

/** One of the sides that take turns. */
export interface Side {
  readonly contender: RunningContender | Unavailable;
  readonly work: string;
  /** Operations of one slice. */
  readonly argument: number;
  /** A peer that doesn't get through its first slice is left out, and its rows say why. */
  readonly mayFail?: boolean;
}

/**
 * Lets sides take turns in short slices, each round another one first, and answers the operations a second of each
 * side by round, or why a side has none.
 *
 * @param warmUp slices that each side does before it is measured
 */
export async function takeTurns(
  { rounds, seconds }: Pick<BenchContext, 'rounds' | 'seconds'>,
  sides: readonly Side[],
  warmUp = 1,
): Promise<(number[] | Unavailable)[]> {
  const slice = async ({ contender, work, argument }: Side) => {
    if (contender instanceof Unavailable) return { operations: 0, milliseconds: 0 };
    const { operations, milliseconds } = await contender.call(work, argument);
    return { operations: operations!, milliseconds: milliseconds! };
  };
  // How long the last of these takes, of the slowest side, says how many make a round.
  let longestMs = 0;
  const rates: (number[] | Unavailable)[] = [];
  for (const side of sides) {
    try {
      for (let done = 1; done < warmUp; done++) await slice(side);
      longestMs = Math.max(longestMs, (await slice(side)).milliseconds);
      rates.push(side.contender instanceof Unavailable ? side.contender : []);
    } catch (error) {
      if (side.mayFail !== true) throw error;
      rates.push(new Unavailable((error as Error).message));
    }
  }
  const slices = Math.max(1, Math.round((seconds * 1000) / Math.max(1, longestMs)));
  for (let round = 0; round < rounds; round++) {
    const totals = sides.map(() => ({ operations: 0, milliseconds: 0 }));
    for (let turn = 0; turn < slices; turn++) {
      for (let offset = 0; offset < sides.length; offset++) {
        const index = (round + turn + offset) % sides.length;
        if (rates[index] instanceof Unavailable) continue;
        const { operations, milliseconds } = await slice(sides[index]!);
        totals[index]!.operations += operations;
        totals[index]!.milliseconds += milliseconds;
      }
    }
    totals.forEach(({ operations, milliseconds }, index) => {
      const rate = rates[index]!;
      if (!(rate instanceof Unavailable)) rate.push((operations * 1000) / milliseconds);
    });
  }
  return rates;
}

/** A row from the figures of each round. */
export function rowOf(
  row: Pick<Row, 'bench' | 'work' | 'unit' | 'target'> & {
    readonly ours: Rounds;
    readonly peer?: { readonly name: string; readonly rounds: Rounds };
    /** False when the sizes are smaller than those of the target. */
    readonly judged?: boolean;
    readonly note?: string;
  },
): Row {
  const { bench, work, unit, target, peer, judged = true } = row;
  if (row.ours instanceof Unavailable)
    throw new Error(`${bench}, ${work}: our side was not measured: ${row.ours.reason}`);
  const ours: readonly number[] = row.ours;
  const peerRounds = peer === undefined || peer.rounds instanceof Unavailable ? undefined : peer.rounds;
  const ratio = peerRounds === undefined ? null : ratioOf(ours, peerRounds);
  const missing = peer?.rounds instanceof Unavailable ? `not available: ${peer.rounds.reason}` : undefined;
  const note = [missing, row.note].filter((part) => part !== undefined).join('; ');
  const value = target?.of === 'ratio' ? ratio?.median : median(ours);
  return {
    bench,
    work,
    unit,
    ours: median(ours),
    peer: peer === undefined ? null : { name: peer.name, value: peerRounds === undefined ? null : median(peerRounds) },
    ratio,
    target,
    reached:
      target === null || value === undefined || !judged
        ? null
        : target.is === 'at-least'
          ? value >= target.limit
          : value <= target.limit,
    ...(note === '' ? {} : { note }),
    rounds: { ours, peer: peerRounds ?? [] },
  };
}

export async function closeAll(contenders: readonly (RunningContender | Unavailable)[]): Promise<void> {
  for (const contender of contenders) if (!(contender instanceof Unavailable)) await contender.close();
}
