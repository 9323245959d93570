import { invariant } from '../invariant.ts';
import type { ItemPurged } from '../item/events.ts';
import { decodeLedger, type LedgerWrite } from '../item/ledger.ts';
import { writesLost } from '../item/read-life.ts';
import { readItemEvent } from '../item/upcast.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { expiryOf, type Expiry } from '../ttl/expiry.ts';
import type { PolicyTimeline } from '../ttl/policy-timeline.ts';

/** How and when a life ended, according to its own stream. */
export interface LifeEnd {
  readonly kind: 'expired' | 'deleted';
  /** The deadline of an expired life, or the time of the request that deleted it; in milliseconds. */
  readonly atMs: number;
  readonly recordedAtMs: number;
  readonly recordedBy: string;
  /** Set when the item left with its whole partition key. */
  readonly withPartitionKey?: true;
  /** Set when the item was replaced under another id: the stream of the life that continues it. */
  readonly renamedTo?: string;
  /** The recorded expiry. */
  readonly expiry?: Expiry;
}

/** A request to erase all of an item. */
export interface ErasureRequest {
  /** In milliseconds. */
  readonly requestedAtMs: number;
  readonly requestedBy: string;
  readonly reason: string;
}

/** When and why the content of a life was erased. */
export interface LifePurge extends Pick<ItemPurged, 'cause' | 'remains' | 'recoverableUntilMs'> {
  readonly atMs: number;
  readonly recordedBy: string;
  /** The request for the erasure, if there was one. It is in the container's stream, not in the life's. */
  readonly request?: ErasureRequest;
}

/** What must be known of a write to tell when a life existed. */
export type LifeWrite = Pick<LedgerWrite, 'atMs' | 'ttl' | 'omittedAfter'>;

/** What is known of one life: from the events that are left, and from the ledger of the truncated ones. */
export interface LifeFacts {
  readonly life: number;
  /** Oldest first. */
  readonly writes: readonly LifeWrite[];
  readonly end?: LifeEnd;
  readonly purge?: LifePurge;
}

/** The end of a life that left with its partition key. It was recorded for the whole key at the time it happened. */
function endOf(left: { readonly atMs: number; readonly by: string } | undefined): LifeEnd | undefined {
  if (left === undefined) return undefined;
  return { kind: 'deleted', atMs: left.atMs, recordedAtMs: left.atMs, recordedBy: left.by, withPartitionKey: true };
}

/** Adds the end of a life that left with its partition key, if it is not in the life's own stream yet. */
export function withPartitionKeyEnd(
  facts: LifeFacts,
  left: { readonly atMs: number; readonly by: string } | undefined,
  timeline: PolicyTimeline,
): LifeFacts {
  if (left === undefined || facts.end !== undefined || facts.purge !== undefined) return facts;
  const { atMs, ttl } = facts.writes.at(-1)!;
  const expiry = expiryOf({ ts: Math.floor(atMs / 1000), ttl }, timeline);
  // The life had expired before that, and its expiry is not recorded yet.
  if (expiry !== undefined && expiry.expiredAtMs <= left.atMs) return facts;
  return { ...facts, end: endOf(left)! };
}

/** Adds the request to the facts of a life that was erased on request. */
export function withErasureRequest(facts: LifeFacts, request: ErasureRequest | undefined): LifeFacts {
  return facts.purge === undefined || request === undefined ? facts : { ...facts, purge: { ...facts.purge, request } };
}

/** Reads the facts of one life from its stream, truncated or not. */
export function lifeFacts(life: number, events: readonly RecordedEvent[]): LifeFacts {
  const facts = new GrowingLifeFacts(life);
  for (const recorded of events) facts.add(recorded);
  return facts.soFar();
}

/** The facts of a life whose events are added one by one. */
export class GrowingLifeFacts {
  readonly #life: number;
  #writes: LifeWrite[] = [];
  #end: LifeEnd | undefined;
  #purge: LifePurge | undefined;
  #last: RecordedEvent | undefined;

  constructor(life: number) {
    this.#life = life;
  }

  add(recorded: RecordedEvent): void {
    const event = readItemEvent(recorded);
    this.#last = recorded;
    const record = { recordedAtMs: recorded.occurredAtMs, recordedBy: recorded.actor };
    switch (event.type) {
      case 'ItemUpserted':
      case 'ItemRecovered':
        this.#writes.push({ atMs: recorded.occurredAtMs, ttl: event.data.ttl });
        break;
      case 'ItemExpired': {
        const { expiredAtMs, rule, ttl, policyVersion, byPolicyStart } = event.data;
        const expiry = { expiredAtMs, rule, ttl, policyVersion, byPolicyStart };
        this.#end = { kind: 'expired', atMs: expiredAtMs, ...record, expiry };
        break;
      }
      case 'ItemDeleted':
        this.#end = endOf(event.data.withPartitionKey) ?? {
          kind: 'deleted',
          atMs: recorded.occurredAtMs,
          ...record,
          ...(event.data.renamedTo === undefined ? {} : { renamedTo: event.data.renamedTo }),
        };
        break;
      case 'ItemPurged':
        // The ledger lists the writes, whether or not they are truncated already.
        this.#writes = decodeLedger(event.data.ledger).map(({ atMs, ttl, omittedAfter }) =>
          omittedAfter === undefined ? { atMs, ttl } : { atMs, ttl, omittedAfter },
        );
        this.#purge = {
          atMs: recorded.occurredAtMs,
          cause: event.data.cause,
          recordedBy: recorded.actor,
          recoverableUntilMs: event.data.recoverableUntilMs,
          ...(event.data.remains === undefined ? {} : { remains: event.data.remains }),
        };
        break;
    }
  }

  /** @throws {UnreadableEvent} for a life whose writes the log has lost */
  soFar(): LifeFacts {
    if (this.#writes.length === 0) {
      invariant(this.#last !== undefined, 'a life has events');
      throw writesLost(this.#last);
    }
    return {
      life: this.#life,
      writes: this.#writes,
      ...(this.#end === undefined ? {} : { end: this.#end }),
      ...(this.#purge === undefined ? {} : { purge: this.#purge }),
    };
  }
}
