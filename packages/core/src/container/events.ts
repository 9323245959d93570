import { z } from 'zod';
import { type ThroughputChanged, throughputChangedSchema } from '../throughput/provisioning.ts';
import { defaultTtlSchema } from '../ttl/ttl-value.ts';
import { containerDefinitionSchema } from './definition.ts';

export const containerCreatedSchema = z.object({
  databaseRid: z.string(),
  name: z.string(),
  definition: containerDefinitionSchema,
  defaultTtl: defaultTtlSchema,
  /** Seconds for which an item that a policy's start made expire is hidden but not yet erased. */
  policyGraceSeconds: z.int().min(0),
});
export type ContainerCreated = z.infer<typeof containerCreatedSchema>;

export const containerReplacedSchema = z.object({ definition: containerDefinitionSchema });

export const containerTtlChangedSchema = z.object({
  from: defaultTtlSchema,
  to: defaultTtlSchema,
  policyVersion: z.int().min(2),
  /** Milliseconds; at or after the time of the record. */
  effectiveFromMs: z.int(),
  reason: z.string().optional(),
});

export const policyGraceChangedSchema = z.object({
  fromSeconds: z.int().min(0),
  toSeconds: z.int().min(0),
  reason: z.string().optional(),
});

export const containerDeletedSchema = z.object({});

/** The closed union of what can be in a container's stream. */
export type ContainerEvent =
  | { readonly type: 'ContainerCreated'; readonly data: ContainerCreated }
  | { readonly type: 'ContainerReplaced'; readonly data: z.infer<typeof containerReplacedSchema> }
  | { readonly type: 'ContainerTtlChanged'; readonly data: z.infer<typeof containerTtlChangedSchema> }
  | { readonly type: 'PolicyGraceChanged'; readonly data: z.infer<typeof policyGraceChangedSchema> }
  | ThroughputChanged
  | { readonly type: 'ContainerDeleted'; readonly data: z.infer<typeof containerDeletedSchema> };

export const containerEventSchemas = {
  ContainerCreated: containerCreatedSchema,
  ContainerReplaced: containerReplacedSchema,
  ContainerTtlChanged: containerTtlChangedSchema,
  PolicyGraceChanged: policyGraceChangedSchema,
  ThroughputChanged: throughputChangedSchema,
  ContainerDeleted: containerDeletedSchema,
} as const;
