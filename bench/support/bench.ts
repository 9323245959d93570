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
  /** Null if nothing was measured, or if the sizes were not those of the target. */
  readonly reached: boolean | null;
  /** Why there is no figure, or a remark about it. */
  readonly note?: string;
  /** The figures of each round. */
  readonly rounds?: { readonly ours: readonly number[]; readonly peer: readonly number[] };
}

export interface Target {
  /** What is compared with the limit: our figure, or its ratio to the peer's. */
  readonly of: 'ours' | 'ratio';
  readonly is: 'at-least' | 'at-most';
  readonly limit: number;
}

export interface BenchContext {
  readonly rounds: number;
  /** Roughly how long each side is measured in a round. */
  readonly seconds: number;
  /** Use the sizes of the targets. By default the sizes are smaller, and take a minute. */
  readonly full: boolean;
  /** Only our side runs, under a CPU profiler. */
  readonly profiling: boolean;
  /** An empty folder on the project's disk. */
  scratch(name: string): string;
  /** Starts our side; with `--profile`, under a CPU profiler. */
  ours(module: string, factory: string, options?: ContenderOptions): Promise<RunningContender>;
  /** Starts the other side, or says why there is none: not available here, or left out while profiling. */
  peer(module: string, factory: string, options?: ContenderOptions): Promise<RunningContender | Unavailable>;
  /** Registers what to do when the run ends, even if it fails. */
  atEnd(cleanUp: () => void): void;
  /** Prints a message about the progress. */
  say(text: string): void;
}

/** The reason why a peer can't run here. Its rows show it instead of a figure. */
export class Unavailable {
  readonly reason: string;
  constructor(reason: string) {
    this.reason = reason;
  }
}

export interface Bench {
  readonly id: string;
  readonly title: string;
  /** The sizes of the seeded folders that the bench copies. They are written before, by another process. */
  seeds?(full: boolean): readonly number[];
  run(context: BenchContext): Promise<Row[]>;
}

/** One figure for each round, or why there is none. */
export type Rounds = readonly number[] | Unavailable;

/** One of the sides that take turns. */
export interface Side {
  readonly contender: RunningContender | Unavailable;
  readonly work: string;
  /** The number of operations in one slice. */
  readonly argument: number;
  /** If this peer fails in its first slice, it is left out, and its rows say why. */
  readonly mayFail?: boolean;
}

/**
 * Lets the sides take turns in short slices; in each round another side is first. Returns, for each side, the operations
 * per second of each round, or why it has none.
 *
 * @param warmUp the number of slices that each side executes before it is measured
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
  // The time that the slowest side takes for the last of these determines how many slices a round has.
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

/** Makes a row from the figures of each round. */
export function rowOf(
  row: Pick<Row, 'bench' | 'work' | 'unit' | 'target'> & {
    readonly ours: Rounds;
    readonly peer?: { readonly name: string; readonly rounds: Rounds };
    /** False if the sizes are smaller than those of the target. */
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
