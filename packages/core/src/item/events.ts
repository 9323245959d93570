import { z } from 'zod';
import type { EventOf } from '../upcast.ts';
import { ttlValueSchema } from '../ttl/ttl-value.ts';

/** What every item event repeats, so that each can be read alone. */
const identity = {
  id: z.string(),
  /** The partition key as canonical JSON: an array of components, `{}` for an undefined one. */
  partitionKey: z.string(),
};

export const writeOperations = ['create', 'upsert', 'replace', 'patch'] as const;
export type WriteOperation = (typeof writeOperations)[number];

const itemUpsertedSchema = z.object({
  ...identity,
  operation: z.enum(writeOperations),
  /** `_ts`: Unix seconds of the write. */
  ts: z.int(),
  /** The document's own readable ttl in seconds, null for none. */
  ttl: ttlValueSchema.nullable(),
  /** Set when the document has a `ttl` that is not one; only possible while the container's TTL is off. */
  unreadableTtl: z.literal(true).optional(),
  /** The TTL policy that was in force when this was decided. */
  policyVersion: z.int(),
  /** Id of the life's key in the vault. */
  key: z.int(),
  /** Size of the document in bytes, as JSON before sealing. */
  bytes: z.int(),
  /** The streams of the values that the document has of its container's unique keys, where there are any. */
  uniqueKeys: z.array(z.string()).optional(),
});
export type ItemUpserted = z.infer<typeof itemUpsertedSchema>;

/** First event of a life: the content of an ended life of the same item, whose key still existed, written anew. */
const itemRecoveredSchema = itemUpsertedSchema.omit({ operation: true }).extend({
  /** The life whose content it is. */
  fromLife: z.int(),
});
export type ItemRecovered = z.infer<typeof itemRecoveredSchema>;

/** What every write of an item says, whatever brought it about. */
export type ItemWritten = Omit<ItemUpserted, 'operation'>;

export const itemDeletedSchema = z.object({
  ...identity,
  ts: z.int(),
  /** Set when the item left with its whole partition key. */
  withPartitionKey: z
    .object({
      /** When that was, in milliseconds. */
      atMs: z.int(),
      /** Who asked for it. */
      by: z.string(),
      /**
       * Of the life's last write, at which it was taken out of the read models. Projections are built again from this
       * event when that write is gone.
       */
      position: z.int().optional(),
    })
    .optional(),
});
export type ItemDeleted = z.infer<typeof itemDeletedSchema>;

export const itemExpiredSchema = z.object({
  ...identity,
  /** The exact instant, in milliseconds: the first one at which the item was expired. */
  expiredAtMs: z.int(),
  rule: z.enum(['container-default', 'item-ttl']),
  /** `_ts` of the last write, in seconds: expiredAt is `ts + ttl`, or the policy's start if that was later. */
  ts: z.int(),
  ttl: z.int(),
  policyVersion: z.int(),
  byPolicyStart: z.boolean(),
});
export type ItemExpired = z.infer<typeof itemExpiredSchema>;

export const purgeCauses = ['expired', 'deleted', 'container-deleted', 'erasure'] as const;
export type PurgeCause = (typeof purgeCauses)[number];

/** A write in a ledger's times; see ledger.ts for the code. */
const LEDGER_TIME = /^-?\d+(?:\.\d+)?(?:t(?:-|-?\d+))?$/;

export const ledgerSchema = z
  .object({
    /** How many writes the life had. */
    writes: z.int(),
    /** When each was and which ttl it had, but for those left out; see ledger.ts for the code. */
    times: z.string(),
    /** How many writes after the first one are left out, because the event store takes no event with all of them. */
    omitted: z.int().optional(),
    /** A letter a write: c(reate), u(psert), r(eplace), p(atch), b(rought back). At most a thousand. */
    operations: z.string().optional(),
    /** The etags' UUIDs, 32 hexadecimal digits each. At most a thousand. */
    etags: z.string().optional(),
    /** SHA-256 of each sealed body, base64url, 43 characters each. At most a thousand. */
    digests: z.string().optional(),
    /** For lives of more than a thousand writes: one SHA-256 over operation, etag and body digest of them all. */
    digest: z.string().optional(),
  })
  .refine(hasTimesOfItsWrites, { path: ['times'], message: 'not those of its writes' });
export type Ledger = z.infer<typeof ledgerSchema>;

/** Otherwise a life would be taken for one that never began, or began at another time. */
function hasTimesOfItsWrites(ledger: {
  readonly writes: number;
  readonly times: string;
  readonly omitted?: number | undefined;
}): boolean {
  const times = ledger.times.split(' ');
  return times.length === ledger.writes - (ledger.omitted ?? 0) && times.every((time) => LEDGER_TIME.test(time));
}

export const itemPurgedSchema = z.object({
  ...identity,
  cause: z.enum(purgeCauses),
  /** How the content was erased. */
  erased: z.literal('key-destroyed'),
  key: z.int(),
  /** Until when a copy of the vault from before could still open the content; null when there is none. */
  recoverableUntilMs: z.int().nullable(),
  ledger: ledgerSchema,
  /**
   * Position of the life's first event, under which lists have a life that left with its container: they had it before
   * this event, and that write is truncated. Absent in older records and for every other cause.
   */
  firstPosition: z.int().optional(),
  /** What stood in the way of the erasure no more when the key went; absent where a crash came in between. */
  checks: z
    .object({
      /** Holds over the life: none, or the vault would have refused. */
      holds: z.literal(0),
      /** The container's retention floor, passed by then. */
      floorSeconds: z.int(),
      /** What was waited after the life's end, besides. */
      graceSeconds: z.int(),
    })
    .optional(),
  /** What the key's end left in the log: bytes that nothing opens any more. Absent in older records. */
  remains: z
    .object({
      /** Of the life's sealed bodies as the log held them then. */
      sealedBytes: z.int(),
      /** What takes them away: the truncation that follows this record, or the event store's next scavenge. */
      removedBy: z.enum(['truncation', 'scavenge']),
    })
    .optional(),
});
export type ItemPurged = z.infer<typeof itemPurgedSchema>;

/** Facts that hold no content and are never truncated. */
export const permanentItemFacts: ReadonlySet<string> = new Set(['ItemDeleted', 'ItemExpired', 'ItemPurged']);

/** True for an event with content: it is there until its life is purged. All others are {@link permanentItemFacts}. */
export function isItemWrite<Event extends { readonly type: string }>(
  event: Event,
): event is Event & { readonly type: 'ItemUpserted' | 'ItemRecovered' } {
  return event.type === 'ItemUpserted' || event.type === 'ItemRecovered';
}

export const itemEventSchemas = {
  ItemUpserted: itemUpsertedSchema,
  ItemRecovered: itemRecoveredSchema,
  ItemDeleted: itemDeletedSchema,
  ItemExpired: itemExpiredSchema,
  ItemPurged: itemPurgedSchema,
} as const;

/** The closed union of what can be in an item's stream. */
export type ItemEvent = EventOf<typeof itemEventSchemas>;

/** `_etag` of the write that an event records: the event's id, quoted as Cosmos DB quotes its etags. */
export function etagOf(eventId: string): string {
  return `"${eventId}"`;
}
