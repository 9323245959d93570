import { z } from 'zod';
import { type Decision, etagDiffers } from '../decision.ts';
import { unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { sameJson } from '../same-json.ts';
import {
  ceilingOf,
  DEFAULT_THROUGHPUT,
  migratedThroughput,
  NO_THROUGHPUT,
  type Throughput,
  throughputProblem,
  throughputSchema,
} from './throughput.ts';

/** In the stream of a container or database: its throughput changes. */
export const throughputChangedSchema = z.object({ from: throughputSchema, to: throughputSchema });
export interface ThroughputChanged {
  readonly type: 'ThroughputChanged';
  readonly data: z.infer<typeof throughputChangedSchema>;
}

/** The throughput of a container or database, according to its stream. */
export interface Provisioning {
  readonly throughput: Throughput;
  /** The highest throughput it ever had, in request units per second. 0 if it never had any. */
  readonly highestThroughput: number;
  /** Etag of the offer, which changes with the throughput. Before the first change, the etag of the creation. */
  readonly throughputEtag: string;
  readonly throughputChangedAtMs: number;
}

export interface ChangeThroughput {
  readonly type: 'ChangeThroughput';
  readonly change:
    | { readonly kind: 'set'; readonly throughput: Exclude<Throughput, { kind: 'none' }> }
    /** From manual to autoscale or back; the store computes the amount. */
    | { readonly kind: 'migrate'; readonly to: 'manual' | 'autoscale' };
  /** Etag of the offer, not of the container or database. */
  readonly ifMatch?: string | undefined;
}

export type ThroughputRefusal =
  | { readonly reason: 'precondition-failed' }
  /** Manual changes to autoscale, and autoscale to manual, only by a migration. */
  | { readonly reason: 'throughput-kind-fixed'; readonly to: 'manual' | 'autoscale' }
  /** `problem` is a sentence for the user. */
  | { readonly reason: 'throughput-invalid'; readonly problem: string };

export type ThroughputDecision = Decision<ThroughputChanged, ThroughputRefusal>;

/** The state after a creation. A throughput that was given with the creation is recorded by the next event. */
export function initialProvisioning(created: RecordedEvent): Provisioning {
  return {
    throughput: NO_THROUGHPUT,
    highestThroughput: 0,
    throughputEtag: etagOf(created.id),
    throughputChangedAtMs: created.occurredAtMs,
  };
}

export function evolveProvisioning(
  before: Provisioning,
  { data: { to } }: ThroughputChanged,
  recorded: RecordedEvent,
): Provisioning {
  return {
    throughput: to,
    highestThroughput: Math.max(before.highestThroughput, ceilingOf(to)),
    throughputEtag: etagOf(recorded.id),
    throughputChangedAtMs: recorded.occurredAtMs,
  };
}

/** The event that follows a creation with a throughput. */
export function decideInitialThroughput(throughput: Throughput | undefined): ThroughputDecision {
  const to = throughput ?? NO_THROUGHPUT;
  if (to.kind === 'none') return { kind: 'accepted', events: [] };
  const problem = throughputProblem(to, 0);
  if (problem !== undefined) return invalid(problem);
  return { kind: 'accepted', events: [{ type: 'ThroughputChanged', data: { from: NO_THROUGHPUT, to } }] };
}

/** Decides a change of the throughput. If there is none, the default that clients see counts as the present one. */
export function decideThroughput(before: Provisioning, { change, ifMatch }: ChangeThroughput): ThroughputDecision {
  if (etagDiffers(before.throughputEtag, ifMatch)) {
    return { kind: 'refused', refusal: { reason: 'precondition-failed' } };
  }
  const { throughput: from, highestThroughput } = before;
  const shown = from.kind === 'none' ? DEFAULT_THROUGHPUT : from;
  let to: Throughput;
  switch (change.kind) {
    case 'set':
      to = change.throughput;
      if (to.kind !== shown.kind) {
        return { kind: 'refused', refusal: { reason: 'throughput-kind-fixed', to: change.throughput.kind } };
      }
      break;
    case 'migrate':
      to = shown.kind === change.to ? shown : migratedThroughput(shown, change.to, highestThroughput);
      break;
    default:
      return unreachable(change);
  }
  if (sameJson(from, to)) return { kind: 'accepted', events: [] };
  const problem = throughputProblem(to, highestThroughput);
  if (problem !== undefined) return invalid(problem);
  return { kind: 'accepted', events: [{ type: 'ThroughputChanged', data: { from, to } }] };
}

const invalid = (problem: string): ThroughputDecision => ({
  kind: 'refused',
  refusal: { reason: 'throughput-invalid', problem },
});
