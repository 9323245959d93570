import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/**
 * What a hold covers, as it is recorded: names of streams without `item-<container rid>.`, with which all of them
 * begin. The names are keyed hashes, so they don't reveal an item to somebody who doesn't know it.
 */
const recordedScopeSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('container') }),
  /** All items of a partition key, now and later, by the common beginning of their streams' names. */
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
  /** Number of lives in its scope whose content was erased already: for them the hold came too late. */
  tooLateFor: z.int(),
});

export type HoldPlaced = z.infer<typeof holdPlacedSchema>;

const holdReleasedSchema = z.object({ holdId: z.string(), reason: z.string() });

/** For how many seconds after a life's last write its content must not be erased. */
const retentionFloorChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string(),
});

/** For how many seconds after a delete or an expiry an item can be brought back. */
const recoveryWindowChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string(),
});

/** A request to erase every life of an item. An event with its outcome follows. */
const erasureRequestedSchema = z.object({
  /** The name of the item's streams without container and life: a keyed hash. */
  item: z.string(),
  requestedBy: z.string(),
  reason: z.string(),
});

const erasureRefusedSchema = z.object({
  /** Position of the `ErasureRequested`. */
  position: z.int(),
  item: z.string(),
  /** Holds that prevent it. */
  holds: z.array(z.string()),
  /** When the last floor in the way will have passed, in milliseconds. Null if only holds are in the way. */
  floorUntilMs: z.int().nullable(),
  /** How many lives were erased before one was found to be kept. 0 unless a hold was placed in between. */
  erasedLives: z.int(),
});

const erasureCompletedSchema = z.object({
  position: z.int(),
  item: z.string(),
  erasedLives: z.int(),
  /** Number of lives whose content had been erased before. */
  alreadyErasedLives: z.int(),
});

/** A request to bring back one item, or all items that expired by the start of one policy. Each gets its own `ItemRecovered`. */
const recoveryRequestedSchema = z.object({
  item: z.string().optional(),
  policyVersion: z.int().optional(),
  reason: z.string(),
});

/** Content of a life that has ended was read. Recorded before the content was given out. */
const heldContentReadSchema = z.object({
  /** The name of the life's stream, without the container. */
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

/** The closed union of the events about keeping and erasing content, which are in a container's stream. */
export type RetentionEvent = EventOf<typeof retentionEventSchemas>;

export function isRetentionEvent<Event extends { readonly type: string }>(
  event: Event,
): event is Extract<Event, { readonly type: RetentionEvent['type'] }> {
  return Object.hasOwn(retentionEventSchemas, event.type);
}
