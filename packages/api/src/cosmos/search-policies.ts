import { z } from 'zod';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { badRequest } from './errors.ts';

export const vectorIndexesSchema = z.array(
  z.looseObject({
    path: z.string(),
    type: z.string().nullish(),
    quantizationByteSize: z.number().nullish(),
    indexingSearchListSize: z.number().nullish(),
    vectorIndexShardKey: z.array(z.string()).nullish(),
  }),
);
export const fullTextIndexesSchema = z.array(z.looseObject({ path: z.string().nullish() }));
export const vectorEmbeddingPolicySchema = z.looseObject({
  vectorEmbeddings: z
    .array(
      z.looseObject({
        path: z.string(),
        dataType: z.string().nullish(),
        dimensions: z.number().nullish(),
        distanceFunction: z.string().nullish(),
      }),
    )
    .optional(),
});
export const fullTextPolicySchema = z.looseObject({
  defaultLanguage: z.string().nullish(),
  fullTextPaths: z.array(z.looseObject({ path: z.string(), language: z.string().nullish() })).nullish(),
});

interface SearchPolicies {
  readonly vectorEmbeddingPolicy?: z.infer<typeof vectorEmbeddingPolicySchema> | null | undefined;
  readonly fullTextPolicy?: z.infer<typeof fullTextPolicySchema> | null | undefined;
  readonly indexingPolicy?:
    | {
        readonly vectorIndexes?: z.infer<typeof vectorIndexesSchema> | undefined;
        readonly fullTextIndexes?: z.infer<typeof fullTextIndexesSchema> | null | undefined;
      }
    | null
    | undefined;
}
type VectorIndex = z.infer<typeof vectorIndexesSchema>[number];
type Embedding = NonNullable<z.infer<typeof vectorEmbeddingPolicySchema>['vectorEmbeddings']>[number];

const INDEX_TYPES = ['flat', 'quantizedFlat', 'diskANN'];
const DATA_TYPES = ['float32', 'float16', 'int8', 'uint8'];
const DISTANCE_FUNCTIONS = ['euclidean', 'cosine', 'dotproduct'];
/** Source: Cosmos DB, "Vector search" (limits, and the ranges named in its refusals). */
const MAX_DIMENSIONS = 4096;
const MAX_QUANTIZATION_BYTES = 512;
const SEARCH_LIST_SIZES = [25, 500] as const;
const MAX_SHARD_PATHS = 1;

/** Source: Cosmos DB, "Full text search" (supported languages). Clients also send the number of the first. */
const LANGUAGES = ['en-US', 'de-DE', 'es-ES', 'fr-FR', 'it-IT', 'pt-BR', 'pt-PT'];
const LANGUAGE_NUMBERS = ['1033'];

/**
 * Checks a container's policies for vector and full-text search. Only the distance functions have an effect here, but
 * whatever Cosmos DB refuses is refused. A container that has a setting from before it was refused may repeat it.
 *
 * @throws WireError 400
 */
export function checkSearchPolicies(given: SearchPolicies, current: ContainerDefinition | undefined): void {
  const indexes = given.indexingPolicy?.vectorIndexes ?? [];
  const embeddings = given.vectorEmbeddingPolicy?.vectorEmbeddings ?? [];
  checkIndexedPaths(indexes, embeddings);
  if (!isKept(given, current, 'vectorEmbeddingPolicy', 'vectorIndexes')) {
    for (const embedding of embeddings) checkEmbedding(embedding);
    for (const index of indexes) checkVectorIndex(index, embeddings);
    if (current !== undefined) checkUnchanged(indexes, embeddings, current);
  }
  if (!isKept(given, current, 'fullTextPolicy', 'fullTextIndexes')) checkFullText(given);
}

function isKept(
  given: SearchPolicies,
  current: ContainerDefinition | undefined,
  policy: 'vectorEmbeddingPolicy' | 'fullTextPolicy',
  indexes: 'vectorIndexes' | 'fullTextIndexes',
): boolean {
  if (current === undefined) return false;
  return (
    sameJson(given[policy], current[policy]) &&
    sameJson(given.indexingPolicy?.[indexes], current.indexingPolicy[indexes])
  );
}

/** Each vector index must be on a path that the embedding policy describes. */
function checkIndexedPaths(indexes: readonly VectorIndex[], embeddings: readonly Embedding[]): void {
  for (const { path } of indexes) {
    if (embeddings.some((embedding) => embedding.path === path)) continue;
    throw badRequest(`The Vector Indexing Policy's path::${shown(path)} not matching in Embedding's path.`);
  }
}

function checkEmbedding({ dataType, dimensions, distanceFunction }: Embedding): void {
  const policy = 'The Vector Embedding Policy has';
  if (!isOneOf(DATA_TYPES, dataType)) throw badRequest(`${policy} an invalid DataType:${shown(dataType)}.`);
  if (!isOneOf(DISTANCE_FUNCTIONS, distanceFunction)) {
    throw badRequest(`${policy} an invalid DistanceFunction:${shown(distanceFunction)}.`);
  }
  if (dimensions === undefined || dimensions === null) return;
  if (dimensions > MAX_DIMENSIONS) {
    throw badRequest(
      `${policy} Dimensions:${dimensions} which is more than the maximum supported value ${MAX_DIMENSIONS}.`,
    );
  }
  if (!Number.isInteger(dimensions) || dimensions < 1) {
    throw badRequest(`${policy} Dimensions:${dimensions} which is not a positive whole number.`);
  }
}

function checkVectorIndex(index: VectorIndex, embeddings: readonly Embedding[]): void {
  const policy = 'The Vector Indexing Policy';
  if (!isOneOf(INDEX_TYPES, index.type)) throw badRequest(`${policy}'s Index Type::${shown(index.type)} is invalid.`);
  const dimensions = embeddings.find(({ path }) => path === index.path)?.dimensions ?? MAX_DIMENSIONS;
  const checkRange = (name: string, value: number | null | undefined, least: number, most: number): void => {
    if (value === undefined || value === null || (value >= least && value <= most)) return;
    throw badRequest(
      `${policy} parameter ${name} value :: ${value} is out of range. The allowed range is between ${least} and ${most}.`,
    );
  };
  checkRange('QuantizationByteSize', index.quantizationByteSize, 1, Math.min(dimensions, MAX_QUANTIZATION_BYTES));
  checkRange('IndexingSearchListSize', index.indexingSearchListSize, ...SEARCH_LIST_SIZES);
  const shards = index.vectorIndexShardKey ?? [];
  if (shards.length > MAX_SHARD_PATHS) {
    throw badRequest(
      `The number of shard paths defined in the Vector Indexing Policy: ${shards.length} exceeds the maximum: ${MAX_SHARD_PATHS}.`,
    );
  }
  for (const path of shards) {
    if (!isPath(path)) throw badRequest(`${policy} has an invalid Shard Path: ${shown(path)}.`);
  }
}

/** The description of vectors and their indexes can't change after the first policy that names their path. */
function checkUnchanged(
  indexes: readonly VectorIndex[],
  embeddings: readonly Embedding[],
  current: ContainerDefinition,
): void {
  const before = vectorEmbeddingPolicySchema.safeParse(current['vectorEmbeddingPolicy']).data?.vectorEmbeddings ?? [];
  const essence = ({ dataType, dimensions, distanceFunction }: Embedding) => [dataType, dimensions, distanceFunction];
  if (differs(embeddings, before, essence)) {
    throw badRequest('Paths in existing embedding policy cannot be modified in Collection Replace.');
  }
  const indexed = vectorIndexesSchema.safeParse(current.indexingPolicy['vectorIndexes']).data ?? [];
  if (differs(indexes, indexed, ({ type }) => [type])) {
    throw badRequest('Paths in existing vector indexing policy cannot be modified in Collection Replace.');
  }
}

function differs<T extends { readonly path: string }>(
  given: readonly T[],
  before: readonly T[],
  essence: (one: T) => readonly unknown[],
): boolean {
  return given.some((one) => {
    const known = before.find(({ path }) => path === one.path);
    return known !== undefined && !sameJson(essence(one), essence(known));
  });
}

function checkFullText({ fullTextPolicy, indexingPolicy }: SearchPolicies): void {
  const paths = fullTextPolicy?.fullTextPaths ?? [];
  for (const { path } of paths) {
    if (!isPath(path)) throw badRequest(`The Full Text Policy contains an invalid Path: ${shown(path)}`);
  }
  for (const language of [fullTextPolicy?.defaultLanguage, ...paths.map((one) => one.language)]) {
    if (isOneOf([...LANGUAGES, ...LANGUAGE_NUMBERS], language)) continue;
    throw badRequest(
      `The Full Text Policy contains an unsupported language ${shown(language)}. Supported languages are: ${LANGUAGES.join(', ')}.`,
    );
  }
  for (const [at, { path }] of (indexingPolicy?.fullTextIndexes ?? []).entries()) {
    if (path === undefined || path === null) {
      throw badRequest(`Missing path in full-text index specification at index (${at}).`);
    }
    if (!isPath(path)) {
      throw badRequest(`Full-text index specification at index (${at}) contains invalid path: ${shown(path)}.`);
    }
    if (paths.some((one) => one.path === path)) continue;
    throw badRequest(
      `The path of the Full Text Index ${shown(path)} does not match the path specified in the Full Text Policy.`,
    );
  }
}

const isPath = (path: string): boolean => path.startsWith('/') && path.length > 1;

/** True also for a value that is left to the server. */
const isOneOf = (names: readonly string[], given: string | null | undefined): boolean =>
  given === undefined || given === null || names.some((name) => name.toLowerCase() === given.toLowerCase());

const shown = (text: string | null | undefined): string => String(text).slice(0, 200);
