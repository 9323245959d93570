import { z } from 'zod';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { VectorEmbedding } from '@epitaph/query';

const policySchema = z.looseObject({
  vectorEmbeddings: z.array(z.looseObject({ path: z.string(), distanceFunction: z.string() })),
});

/** What a container's vector policy says of its paths; nothing when it has none, or one of another shape. */
export function vectorEmbeddingsOf(definition: ContainerDefinition): readonly VectorEmbedding[] {
  const policy = definition['vectorEmbeddingPolicy'];
  if (policy === undefined || policy === null) return [];
  const parsed = policySchema.safeParse(policy);
  return parsed.success ? parsed.data.vectorEmbeddings : [];
}
