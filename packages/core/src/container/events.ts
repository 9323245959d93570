import { z } from 'zod';
import type { EventOf } from '../upcast.ts';
import { retentionEventSchemas } from '../retention/events.ts';
import { throughputChangedSchema } from '../throughput/provisioning.ts';
import { defaultTtlSchema } from '../ttl/ttl-value.ts';
import { containerDefinitionSchema } from './definition.ts';

const containerCreatedSchema = z.object({
  databaseRid: z.string(),
  name: z.string(),
  definition: containerDefinitionSchema,
  defaultTtl: defaultTtlSchema,
  /** For how many seconds an item that expired by the start of a policy is hidden but not yet erased. */
  policyGraceSeconds: z.int().min(0),
});
export type ContainerCreated = z.infer<typeof containerCreatedSchema>;

const containerReplacedSchema = z.object({ definition: containerDefinitionSchema });

const containerTtlChangedSchema = z.object({
  from: defaultTtlSchema,
  to: defaultTtlSchema,
  policyVersion: z.int().min(2),
  /** Milliseconds; at or after the time of the record. */
  effectiveFromMs: z.int(),
  reason: z.string().optional(),
  /** Set if the change was requested for a later time. */
  scheduled: z.literal(true).optional(),
  /** How many items the change would make expire at once, counted for the decision: if there was a brake, or a confirmation. */
  expiringAtOnce: z.object({ items: z.int(), of: z.int() }).optional(),
  /** Set if the change was above the brake and somebody with the right to do so confirmed it. */
  confirmed: z.literal(true).optional(),
  /** Set if the log had lost events of the container: no earlier policy counts for items whose end is not recorded yet. */
  afterLoss: z.literal(true).optional(),
});

/** A scheduled TTL change was withdrawn and does not take effect. */
const containerTtlWithdrawnSchema = z.object({
  policyVersion: z.int().min(2),
  effectiveFromMs: z.int(),
  reason: z.string().optional(),
});

/** How many items a TTL change may make expire at once without confirmation. */
const ttlBrakeSchema = z.object({
  /** The largest number of items. */
  maxItems: z.int().min(0).optional(),
  /** The largest share of the container's visible items, from 0 to 1. */
  maxShare: z.number().min(0).max(1).optional(),
});
export type TtlBrake = z.infer<typeof ttlBrakeSchema>;

const ttlBrakeChangedSchema = z.object({
  from: ttlBrakeSchema.nullable(),
  to: ttlBrakeSchema.nullable(),
  reason: z.string().optional(),
});

const policyGraceChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string().optional(),
});

/** All items of a partition key left with this event. */
const partitionKeyDeletedSchema = z.object({ partitionKey: z.string() });

/** All lives that left with the partition key have their end recorded in their own streams. */
const partitionKeyDeleteCompletedSchema = z.object({
  partitionKey: z.string(),
  /** Position of the `PartitionKeyDeleted`. */
  position: z.int(),
});

const containerDeletedSchema = z.object({});

export const containerEventSchemas = {
  ContainerCreated: containerCreatedSchema,
  ContainerReplaced: containerReplacedSchema,
  ContainerTtlChanged: containerTtlChangedSchema,
  ContainerTtlWithdrawn: containerTtlWithdrawnSchema,
  TtlBrakeChanged: ttlBrakeChangedSchema,
  PolicyGraceChanged: policyGraceChangedSchema,
  ThroughputChanged: throughputChangedSchema,
  ...retentionEventSchemas,
  PartitionKeyDeleted: partitionKeyDeletedSchema,
  PartitionKeyDeleteCompleted: partitionKeyDeleteCompletedSchema,
  ContainerDeleted: containerDeletedSchema,
} as const;

/** The closed union of the events in a container's stream. */
export type ContainerEvent = EventOf<typeof containerEventSchemas>;
