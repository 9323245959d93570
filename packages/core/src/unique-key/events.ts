import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

const uniqueKeyTakenSchema = z.object({
  /** The stream of the life whose write has the value. */
  holder: z.string(),
});

/** The last holder was purged: nothing says any more who had the value. */
const uniqueKeyReleasedSchema = z.object({});

export const uniqueKeyEventSchemas = {
  UniqueKeyTaken: uniqueKeyTakenSchema,
  UniqueKeyReleased: uniqueKeyReleasedSchema,
} as const;

/**
 * The closed union of what can be in the stream of a unique key's value. The last event is all that counts, so such
 * streams are truncated, and none of these is a permanent fact.
 */
export type UniqueKeyEvent = EventOf<typeof uniqueKeyEventSchemas>;
