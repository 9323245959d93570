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

/** In a container's stream or a database's: what it is provisioned with is another from now on. */
export const throughputChangedSchema = z.object({ from: throughputSchema, to: throughputSchema });
export interface ThroughputChanged {
  readonly type: 'ThroughputChanged';
  readonly data: z.infer<typeof throughputChangedSchema>;
}

/** What a container's or database's stream says of its throughput. */
export interface Provisioning {
  readonly throughput: Throughput;
  /** Request units a second that were ever provisioned at most; 0 for none ever. */
  readonly highestThroughput: number;
  /** Of the offer, which changes with every change of the throughput; that of the creation before the first. */
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
  /** Manual becomes autoscale, and the other way round, by a migration alone. */
  | { readonly reason: 'throughput-kind-fixed'; readonly to: 'manual' | 'autoscale' }
  /** `problem` is a sentence for whoever asked. */
  | { readonly reason: 'throughput-invalid'; readonly problem: string };

export type ThroughputDecision = Decision<ThroughputChanged, ThroughputRefusal>;

/** The provisioning that a creation leaves behind; a throughput given with it is recorded as the next event. */
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

/** What follows a creation that comes with a throughput. */
export function decideInitialThroughput(throughput: Throughput | undefined): ThroughputDecision {
  const to = throughput ?? NO_THROUGHPUT;
  if (to.kind === 'none') return { kind: 'accepted', events: [] };
  const problem = throughputProblem(to, 0);
  if (problem !== undefined) return invalid(problem);
  return { kind: 'accepted', events: [{ type: 'ThroughputChanged', data: { from: NO_THROUGHPUT, to } }] };
}

/** A change of what is provisioned. Whatever has nothing of its own is changed from the default it is shown with. */
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
