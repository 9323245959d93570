import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

const uniqueKeyTakenSchema = z.object({
  /** The stream of the life whose write has the value. */
  holder: z.string(),
});

/** The last holder was purged. Nothing says any more who had the value. */
const uniqueKeyReleasedSchema = z.object({});

export const uniqueKeyEventSchemas = {
  UniqueKeyTaken: uniqueKeyTakenSchema,
  UniqueKeyReleased: uniqueKeyReleasedSchema,
} as const;

/**
 * The closed union of the events in the stream of a unique key's value. Only the last event counts, so these streams
 * are truncated, and none of these events is a permanent fact.
 */
export type UniqueKeyEvent = EventOf<typeof uniqueKeyEventSchemas>;
