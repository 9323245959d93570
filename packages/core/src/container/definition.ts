import { z } from 'zod';

/**
 * What a client defines of a container besides its TTL. Properties that the store has no use for yet are kept and
 * given back as they came.
 */
export const containerDefinitionSchema = z.looseObject({
  partitionKey: z.looseObject({
    paths: z.array(z.string()).min(1).max(3),
    kind: z.enum(['Hash', 'MultiHash']),
    version: z.union([z.literal(1), z.literal(2)]).optional(),
  }),
  indexingPolicy: z.looseObject({
    indexingMode: z.enum(['consistent', 'lazy', 'none']),
  }),
  /** Within a partition key no two items have the same values at the paths of one of these. */
  uniqueKeyPolicy: z
    .looseObject({ uniqueKeys: z.array(z.looseObject({ paths: z.array(z.string()) })).optional() })
    .nullish(),
  /** What this store offers beyond Cosmos DB. */
  epitaph: z
    .looseObject({
      /** Fixed when the container is created. */
      pseudonymousIds: z.boolean().optional(),
      /**
       * Paths whose values the read models keep a copy of in clear, for queries to look up. Fixed when the container
       * is created.
       */
      clearPaths: z.array(z.string()).optional(),
    })
    .optional(),
});
export type ContainerDefinition = z.infer<typeof containerDefinitionSchema>;
