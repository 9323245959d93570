import { z } from 'zod';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { PlanOptions } from '@epitaph/query';

const vectorPolicySchema = z.looseObject({
  vectorEmbeddings: z.array(z.looseObject({ path: z.string(), distanceFunction: z.string() })),
});
const computedPropertiesSchema = z.array(z.looseObject({ name: z.string(), query: z.string() }));
const geospatialSchema = z.looseObject({ type: z.enum(['Geography', 'Geometry']) });

/** What a container's definition says about queries over its items. Parts with an unknown shape are left out. */
export function planOptionsOf(definition: ContainerDefinition): PlanOptions {
  const vectors = partOf(definition, 'vectorEmbeddingPolicy', vectorPolicySchema);
  const computedProperties = partOf(definition, 'computedProperties', computedPropertiesSchema);
  const geospatial = partOf(definition, 'geospatialConfig', geospatialSchema);
  return {
    ...(geospatial === undefined ? {} : { geospatialType: geospatial.type }),
    ...(vectors === undefined ? {} : { vectorEmbeddings: vectors.vectorEmbeddings }),
    ...(computedProperties === undefined ? {} : { computedProperties }),
  };
}

function partOf<Schema extends z.ZodType>(
  definition: ContainerDefinition,
  name: string,
  schema: Schema,
): z.infer<Schema> | undefined {
  const part = definition[name];
  if (part === undefined || part === null) return undefined;
  return schema.safeParse(part).data;
}
