import { z } from 'zod';
import type { EventOf } from '../upcast.ts';

/** The kinds of JavaScript that clients store in a container. */
export type ScriptKind = 'stored-procedure' | 'trigger' | 'user-defined-function';

/**
 * When a trigger runs and for which operations. Upper and lower case is kept as the client gave it, because clients
 * compare it.
 */
const triggerSchema = z.object({ type: z.string().regex(/^(?:pre|post)$/i), operation: z.string() });
export type Trigger = z.infer<typeof triggerSchema>;

/** The part that a replacement changes. */
const contentSchema = z.object({
  /** The text of a function. */
  body: z.string(),
  /** Only for triggers. */
  trigger: triggerSchema.optional(),
});
export type ScriptContent = z.infer<typeof contentSchema>;

const scriptCreatedSchema = contentSchema.extend({
  databaseRid: z.string(),
  containerRid: z.string(),
  kind: z.enum(['stored-procedure', 'trigger', 'user-defined-function'] satisfies ScriptKind[]),
  name: z.string(),
});
const scriptDeletedSchema = z.object({});

export const scriptEventSchemas = {
  ScriptCreated: scriptCreatedSchema,
  ScriptReplaced: contentSchema,
  ScriptDeleted: scriptDeletedSchema,
} as const;

/** The closed union of the events in a script's stream. */
export type ScriptEvent = EventOf<typeof scriptEventSchemas>;
