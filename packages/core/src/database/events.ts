import { z } from 'zod';
import { type ThroughputChanged, throughputChangedSchema } from '../throughput/provisioning.ts';

const databaseCreatedSchema = z.object({ name: z.string() });
const databaseDeletedSchema = z.object({});

/** The closed union of what can be in a database's stream. */
export type DatabaseEvent =
  | { readonly type: 'DatabaseCreated'; readonly data: z.infer<typeof databaseCreatedSchema> }
  | ThroughputChanged
  | { readonly type: 'DatabaseDeleted'; readonly data: z.infer<typeof databaseDeletedSchema> };

export const databaseEventSchemas = {
  DatabaseCreated: databaseCreatedSchema,
  ThroughputChanged: throughputChangedSchema,
  DatabaseDeleted: databaseDeletedSchema,
} as const;
