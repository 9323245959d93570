import { z } from 'zod';
import type { EventOf } from '../upcast.ts';
import { throughputChangedSchema } from '../throughput/provisioning.ts';

const databaseCreatedSchema = z.object({ name: z.string() });
const databaseDeletedSchema = z.object({});

export const databaseEventSchemas = {
  DatabaseCreated: databaseCreatedSchema,
  ThroughputChanged: throughputChangedSchema,
  DatabaseDeleted: databaseDeletedSchema,
} as const;

/** The closed union of the events in a database's stream. */
export type DatabaseEvent = EventOf<typeof databaseEventSchemas>;
