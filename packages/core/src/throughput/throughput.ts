import { z } from 'zod';

/**
 * What a container or database is provisioned with. `none`: nothing of its own (it shares its database's throughput,
 * has the account's default, or is serverless). `manual`: this many request units in every second. `autoscale`: up to
 * this many.
 *
 * Source of the bounds: Azure Cosmos DB, "Service quotas" and "Provision autoscale throughput".
 */
export const throughputSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('none') }),
  z.object({ kind: z.literal('manual'), requestUnitsPerSecond: z.int().min(1) }),
  z.object({
    kind: z.literal('autoscale'),
    maxRequestUnitsPerSecond: z.int().min(1),
    /** Part of the auto-upgrade policy. It is kept and shown, but this store never raises the maximum. */
    incrementPercent: z.int().min(0).optional(),
  }),
]);
export type Throughput = z.infer<typeof throughputSchema>;

export const NO_THROUGHPUT: Throughput = { kind: 'none' };
/** What clients see for a container without throughput of its own or of its database. It is not enforced. */
export const DEFAULT_THROUGHPUT: Throughput = { kind: 'manual', requestUnitsPerSecond: 400 };

const MANUAL = { least: 400, step: 100 };
const AUTOSCALE = { least: 1_000, step: 1_000 };
/** The most request units per second that can be set. In Azure, more needs a support request. */
export const MOST_THROUGHPUT = 1_000_000;
/** Throughput can be lowered to a hundredth (manual) or a tenth (autoscale) of the highest it ever was. */
const LOWERED = { manual: 100, autoscale: 10 };

/** The most request units per second that a throughput allows. 0 for none of its own. */
export function ceilingOf(throughput: Throughput): number {
  switch (throughput.kind) {
    case 'none':
      return 0;
    case 'manual':
      return throughput.requestUnitsPerSecond;
    case 'autoscale':
      return throughput.maxRequestUnitsPerSecond;
  }
}

/** The lowest throughput of a kind that can be set, given the highest there ever was. */
export function lowestThroughput(kind: 'manual' | 'autoscale', highest: number): number {
  const { least, step } = kind === 'manual' ? MANUAL : AUTOSCALE;
  return Math.max(least, roundedUp(highest / LOWERED[kind], step));
}

/**
 * What is wrong with a requested throughput, as a sentence. Undefined if nothing is.
 *
 * @param highest the most request units per second that were ever provisioned, 0 at creation
 */
export function throughputProblem(throughput: Throughput, highest: number): string | undefined {
  if (throughput.kind === 'none') return undefined;
  const { step } = throughput.kind === 'manual' ? MANUAL : AUTOSCALE;
  const lowest = lowestThroughput(throughput.kind, highest);
  const value = ceilingOf(throughput);
  if (Number.isInteger(value) && value >= lowest && value <= MOST_THROUGHPUT && value % step === 0) return undefined;
  const name = throughput.kind === 'manual' ? 'throughput' : 'maximum throughput of autoscale';
  return `The offer should have valid throughput values between ${lowest} and ${MOST_THROUGHPUT} inclusive in increments of ${step}: the ${name} can't be ${value}.`;
}

/**
 * The throughput after a migration, as Azure computes it. To autoscale: up to the former amount, rounded up to a whole
 * thousand. To manual: the former maximum.
 */
export function migratedThroughput(from: Throughput, kind: 'manual' | 'autoscale', highest: number): Throughput {
  const had = ceilingOf(from);
  const lowest = lowestThroughput(kind, highest);
  return kind === 'manual'
    ? { kind, requestUnitsPerSecond: Math.max(lowest, had) }
    : { kind, maxRequestUnitsPerSecond: Math.max(lowest, roundedUp(had, AUTOSCALE.step)) };
}

const roundedUp = (value: number, step: number): number => Math.ceil(value / step) * step;
