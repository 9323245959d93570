import { z } from 'zod';
import type { EventOf } from '../upcast.ts';
import { ttlValueSchema } from '../ttl/ttl-value.ts';

/** Every item event repeats these, so that it can be read alone. */
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
  /** The streams of the values that the document has for its container's unique keys. Absent if the container has none. */
  uniqueKeys: z.array(z.string()).optional(),
  /** Set when the life begins with the replace of another item under this id: the stream of that item's life, which ended. */
  renamedFrom: z.string().optional(),
});
export type ItemUpserted = z.infer<typeof itemUpsertedSchema>;

/** First event of a life that begins with the content of an ended life of the same item. The key of that life still existed. */
const itemRecoveredSchema = itemUpsertedSchema.omit({ operation: true, renamedFrom: true }).extend({
  /** The ended life that the content comes from. */
  fromLife: z.int(),
});
export type ItemRecovered = z.infer<typeof itemRecoveredSchema>;

/** The part that all writes of an item have in common. */
export type ItemWritten = Omit<ItemUpserted, 'operation' | 'renamedFrom'>;

export const itemDeletedSchema = z.object({
  ...identity,
  ts: z.int(),
  /** Set when the item left with its whole partition key. */
  withPartitionKey: z
    .object({
      /** When the partition key was deleted, in milliseconds. */
      atMs: z.int(),
      /** Who asked for it. */
      by: z.string(),
      /**
       * Position of the life's last write. The read models have the delete at this position, and are rebuilt from this
       * event when the write is truncated.
       */
      position: z.int().optional(),
    })
    .optional(),
  /**
   * Set when the item was replaced under another id: the stream of the life that continues it. Not the id, because this
   * fact is a leaf of the proof tree, which names no one.
   */
  renamedTo: z.string().optional(),
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

/** One write in a ledger's times; see ledger.ts for the code. */
const LEDGER_TIME = /^-?\d+(?:\.\d+)?(?:t(?:-|-?\d+))?$/;

export const ledgerSchema = z
  .object({
    /** How many writes the life had. */
    writes: z.int(),
    /** Time and ttl of each write, except those left out; see ledger.ts for the code. */
    times: z.string(),
    /**
     * How many writes after the first one are left out, because an event with all of them would be too large for the
     * event store.
     */
    omitted: z.int().optional(),
    /** One letter for each write: c(reate), u(psert), r(eplace), p(atch), b(rought back). Only for up to a thousand writes. */
    operations: z.string().optional(),
    /** The UUIDs of the etags, 32 hexadecimal digits each. Only for up to a thousand writes. */
    etags: z.string().optional(),
    /** SHA-256 of each sealed body, base64url, 43 characters each. Only for up to a thousand writes. */
    digests: z.string().optional(),
    /** For lives of more than a thousand writes: one SHA-256 over operation, etag and body digest of all writes. */
    digest: z.string().optional(),
  })
  .refine(hasTimesOfItsWrites, { path: ['times'], message: 'not those of its writes' });
export type Ledger = z.infer<typeof ledgerSchema>;

/** Without this check a life could seem never to have begun, or to have begun at another time. */
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
  /** Until when an older copy of the vault could still open the content. Null if there is no such copy. */
  recoverableUntilMs: z.int().nullable(),
  ledger: ledgerSchema,
  /**
   * Position of the life's first event. Lists show a life that left with its container at this position, as they did
   * before this event; the write itself is truncated. Absent in older records and for every other cause.
   */
  firstPosition: z.int().optional(),
  /** What was checked before the key was destroyed. Absent if a crash came between the destruction and this record. */
  checks: z
    .object({
      /** Holds on the life. Always 0, because otherwise the vault would have refused. */
      holds: z.literal(0),
      /** The container's retention floor, which had passed. */
      floorSeconds: z.int(),
      /** The waiting time after the life's end besides the floor. */
      graceSeconds: z.int(),
    })
    .optional(),
  /** What was left in the log when the key was destroyed: bytes that nothing can open any more. Absent in older records. */
  remains: z
    .object({
      /** Size of the life's sealed bodies in the log at that time. */
      sealedBytes: z.int(),
      /** What removes them: the truncation that follows this record, or the event store's next scavenge. */
      removedBy: z.enum(['truncation', 'scavenge']),
    })
    .optional(),
});
export type ItemPurged = z.infer<typeof itemPurgedSchema>;

/** Events without content, which are never truncated. */
export const permanentItemFacts: ReadonlySet<string> = new Set(['ItemDeleted', 'ItemExpired', 'ItemPurged']);

/** True for an event with content, which stays until its life is purged. All other events are {@link permanentItemFacts}. */
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

/** The closed union of the events in an item's stream. */
export type ItemEvent = EventOf<typeof itemEventSchemas>;

/** `_etag` of the write that an event records: the event's id, quoted as Cosmos DB quotes its etags. */
export function etagOf(eventId: string): string {
  return `"${eventId}"`;
}
