import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/**
 * What a hold covers, as it is on record: names of streams without the `item-<container rid>.` that they all begin
 * with. They are keyed hashes, so who doesn't know an item can't tell it from its name.
 */
const recordedScopeSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('container') }),
  /** All items of a partition key, now and later, by what their names begin with. */
  z.object({ kind: z.literal('partition-key'), prefix: z.string() }),
  /** All lives of some items, now and later. */
  z.object({ kind: z.literal('items'), items: z.array(z.string()) }),
  /** The lives that a query found when the hold was placed, and no others. */
  z.object({ kind: z.literal('query'), lives: z.array(z.string()) }),
]);
export type RecordedScope = z.infer<typeof recordedScopeSchema>;

const holdPlacedSchema = z.object({
  holdId: z.string(),
  scope: recordedScopeSchema,
  reason: z.string(),
  /** Lives in its scope whose content was gone already: for them the hold came too late. */
  tooLateFor: z.int(),
});

export type HoldPlaced = z.infer<typeof holdPlacedSchema>;

const holdReleasedSchema = z.object({ holdId: z.string(), reason: z.string() });

/** Seconds from a life's last write during which its content must not be erased. */
const retentionFloorChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string(),
});

/** Seconds after a delete or an expiry during which an item can be brought back. */
const recoveryWindowChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string(),
});

/** Somebody wants every life of an item erased. What became of it follows. */
const erasureRequestedSchema = z.object({
  /** The item's streams without container and life: a keyed hash. */
  item: z.string(),
  requestedBy: z.string(),
  reason: z.string(),
});

const erasureRefusedSchema = z.object({
  /** Position of the `ErasureRequested`. */
  position: z.int(),
  item: z.string(),
  /** Holds that stand against it. */
  holds: z.array(z.string()),
  /** When the last floor in the way will have passed, in milliseconds; null when only holds are in the way. */
  floorUntilMs: z.int().nullable(),
  /** Lives that were erased before one was found to be kept; 0 unless a hold came in between. */
  erasedLives: z.int(),
});

const erasureCompletedSchema = z.object({
  position: z.int(),
  item: z.string(),
  erasedLives: z.int(),
  /** Lives whose content was gone before. */
  alreadyErasedLives: z.int(),
});

/** Somebody brings back one item, or all that the start of one policy took; each is an `ItemRecovered` of its own. */
const recoveryRequestedSchema = z.object({
  item: z.string().optional(),
  policyVersion: z.int().optional(),
  reason: z.string(),
});

/** Content of a life that has ended was read. On record before it was given out. */
const heldContentReadSchema = z.object({
  /** The stream of the life, without the container. */
  life: z.string(),
  revision: z.int(),
  reason: z.string(),
});

export const retentionEventSchemas = {
  HoldPlaced: holdPlacedSchema,
  HoldReleased: holdReleasedSchema,
  RetentionFloorChanged: retentionFloorChangedSchema,
  RecoveryWindowChanged: recoveryWindowChangedSchema,
  ErasureRequested: erasureRequestedSchema,
  ErasureRefused: erasureRefusedSchema,
  ErasureCompleted: erasureCompletedSchema,
  RecoveryRequested: recoveryRequestedSchema,
  HeldContentRead: heldContentReadSchema,
} as const;

/** What a container's stream says of keeping and erasing content. Closed. */
export type RetentionEvent = EventOf<typeof retentionEventSchemas>;

export function isRetentionEvent<Event extends { readonly type: string }>(
  event: Event,
): event is Extract<Event, { readonly type: RetentionEvent['type'] }> {
  return Object.hasOwn(retentionEventSchemas, event.type);
}
