import { z } from 'zod';

/**
 * What a client defines of a container besides its TTL. Properties that the store does not use are kept and returned as
 * they came.
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
  /** No two items of a partition key may have the same values at the paths of one of these keys. */
  uniqueKeyPolicy: z
    .looseObject({ uniqueKeys: z.array(z.looseObject({ paths: z.array(z.string()) })).optional() })
    .nullish(),
  /** Options of this store that Cosmos DB does not have. */
  epitaph: z
    .looseObject({
      /** Fixed when the container is created. */
      pseudonymousIds: z.boolean().optional(),
      /**
       * Paths whose values the read models store in clear, so that queries can look them up. Fixed when the container
       * is created.
       */
      clearPaths: z.array(z.string()).optional(),
    })
    .optional(),
});
export type ContainerDefinition = z.infer<typeof containerDefinitionSchema>;
