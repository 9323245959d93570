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
  /** Seconds for which an item that a policy's start made expire is hidden but not yet erased. */
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
  /** Set when it was asked for to take effect at a later time. */
  scheduled: z.literal(true).optional(),
  /** What the change was counted to make expire at once when it was decided; counted under a brake, or to confirm it. */
  expiringAtOnce: z.object({ items: z.int(), of: z.int() }).optional(),
  /** Set when a brake stood against the change and somebody who may has confirmed it. */
  confirmed: z.literal(true).optional(),
  /** Set when the log had lost events of the container: nothing that held before counts for what is not on record yet. */
  afterLoss: z.literal(true).optional(),
});

/** A TTL change that was to take effect later does not. */
const containerTtlWithdrawnSchema = z.object({
  policyVersion: z.int().min(2),
  effectiveFromMs: z.int(),
  reason: z.string().optional(),
});

/** How much a change of the TTL may make expire at once before it has to be confirmed. */
const ttlBrakeSchema = z.object({
  /** Items at most. */
  maxItems: z.int().min(0).optional(),
  /** Share of the container's visible items at most, from 0 to 1. */
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

/** All items of a partition key left at once, with the record of this. */
const partitionKeyDeletedSchema = z.object({ partitionKey: z.string() });

/** Every life that left with a partition key has the end on record in its own stream. */
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

/** The closed union of what can be in a container's stream. */
export type ContainerEvent = EventOf<typeof containerEventSchemas>;
