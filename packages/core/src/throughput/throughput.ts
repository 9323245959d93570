import { z } from 'zod';

/**
 * What a container or a database is provisioned with. `none`: nothing of its own (it shares its database's, has the
 * account's default, or is serverless). `manual`: so many request units in every second. `autoscale`: up to so many.
 *
 * Source of the bounds: Azure Cosmos DB, "Service quotas" and "Provision autoscale throughput".
 */
export const throughputSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('none') }),
  z.object({ kind: z.literal('manual'), requestUnitsPerSecond: z.int().min(1) }),
  z.object({
    kind: z.literal('autoscale'),
    maxRequestUnitsPerSecond: z.int().min(1),
    /** Of the auto-upgrade policy, which is kept and shown; nothing raises the maximum here. */
    incrementPercent: z.int().min(0).optional(),
  }),
]);
export type Throughput = z.infer<typeof throughputSchema>;

export const NO_THROUGHPUT: Throughput = { kind: 'none' };
/** What a container without throughput of its own or of its database is shown with, and is not held to. */
export const DEFAULT_THROUGHPUT: Throughput = { kind: 'manual', requestUnitsPerSecond: 400 };

const MANUAL = { least: 400, step: 100 };
const AUTOSCALE = { least: 1_000, step: 1_000 };
/** Request units a second that anybody gets; more is a matter for the service's support. */
export const MOST_THROUGHPUT = 1_000_000;
/** Throughput may be lowered to a hundredth (manual) or a tenth (autoscale) of the highest there ever was. */
const LOWERED = { manual: 100, autoscale: 10 };

/** The request units a second that can be had at most; 0 for none of its own. */
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

/** The lowest throughput of a kind that is possible after the highest that there ever was. */
export function lowestThroughput(kind: 'manual' | 'autoscale', highest: number): number {
  const { least, step } = kind === 'manual' ? MANUAL : AUTOSCALE;
  return Math.max(least, roundedUp(highest / LOWERED[kind], step));
}

/**
 * Says what is wrong with a throughput somebody asks for, as a sentence; undefined for nothing.
 *
 * @param highest request units a second that were ever provisioned, 0 at creation
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
 * What a change of kind leads to, as the service computes it: autoscale up to what there was, rounded up to a whole
 * thousand; manual with the maximum that there was.
 */
export function migratedThroughput(from: Throughput, kind: 'manual' | 'autoscale', highest: number): Throughput {
  const had = ceilingOf(from);
  const lowest = lowestThroughput(kind, highest);
  return kind === 'manual'
    ? { kind, requestUnitsPerSecond: Math.max(lowest, had) }
    : { kind, maxRequestUnitsPerSecond: Math.max(lowest, roundedUp(had, AUTOSCALE.step)) };
}

const roundedUp = (value: number, step: number): number => Math.ceil(value / step) * step;
