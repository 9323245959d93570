import { z } from 'zod';
import { type ContainerDefinition, containerDefinitionSchema } from '@epitaph/core/container/definition.ts';
import { parseDocumentPath } from '@epitaph/core/document-path.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { MAX_TTL_SECONDS, readDefaultTtl, type DefaultTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { checkComputedProperties, type ComputedProperty, QueryError } from '@epitaph/query';
import { badRequest, requiredId, type WireError, wrappedErrors } from './errors.ts';
import type { JsonObject } from './json.ts';
import { checkClearPaths } from './clear-paths.ts';
import {
  checkSearchPolicies,
  fullTextIndexesSchema,
  fullTextPolicySchema,
  vectorEmbeddingPolicySchema,
  vectorIndexesSchema,
} from './search-policies.ts';
import { checkUniqueKeys } from './unique-keys.ts';

const MAX_NAME_CHARACTERS = 255;

/**
 * Properties that the server adds to a container. They are removed from what clients send back, and not part of its
 * definition.
 */
const outsideDefinition = [
  'id',
  'defaultTtl',
  'epitaph',
  '_rid',
  '_ts',
  '_self',
  '_etag',
  '_docs',
  '_sprocs',
  '_triggers',
  '_udfs',
  '_conflicts',
] as const;

/** Source: Cosmos DB, "Continuous backup" (the longest tier), which the feed of all versions and deletes depends on. */
const MAX_FEED_RETENTION_MINUTES = 30 * 24 * 60;

const pathsSchema = z.array(z.looseObject({ path: z.string() }));

/** A number, or its name ("V2"), which the Java client sends. */
const partitionKeyVersionSchema = z.union([
  z.literal(1),
  z.literal(2),
  z
    .string()
    .regex(/^v?[12]$/i)
    .transform((name) => (name.endsWith('2') ? 2 : 1)),
]);

const partitionKeySchema = z.looseObject({
  paths: z.array(z.string()).min(1).max(3, 'Too many partition key paths'),
  kind: z.string().optional(),
  version: partitionKeyVersionSchema.optional(),
});

const indexingPolicySchema = z.looseObject({
  indexingMode: z.string().optional(),
  automatic: z.boolean().optional(),
  includedPaths: z
    .array(z.looseObject({ path: z.string(), indexes: z.array(z.looseObject({ kind: z.unknown() })).nullish() }))
    .optional(),
  excludedPaths: pathsSchema.optional(),
  vectorIndexes: vectorIndexesSchema.optional(),
  fullTextIndexes: fullTextIndexesSchema.nullish(),
  spatialIndexes: z
    .array(
      z.looseObject({ path: z.string(), types: z.array(z.string()).nullish(), boundingBox: z.unknown().optional() }),
    )
    .optional(),
});

/** One of these names, in whatever case it is written; the first if there is none. */
const oneOf = <Name extends string>(...names: readonly [Name, ...Name[]]) =>
  z
    .string()
    .nullish()
    .transform((text, context): Name => {
      if (text === undefined || text === null) return names[0];
      const meant = names.find((name) => name.toLowerCase() === text.toLowerCase());
      if (meant !== undefined) return meant;
      context.addIssue({ code: 'custom', message: `'${text.slice(0, 100)}' is not one of ${names.join(', ')}` });
      return z.NEVER;
    });

const compositeIndexesSchema = z.array(
  z.array(z.looseObject({ path: z.string(), order: oneOf('ascending', 'descending') })),
);
const boundingBoxSchema = z.looseObject({ xmin: z.number(), ymin: z.number(), xmax: z.number(), ymax: z.number() });

const geospatialConfigSchema = z.looseObject({ type: oneOf('Geography', 'Geometry') });

const conflictResolutionPolicySchema = z.looseObject({
  mode: oneOf('LastWriterWins', 'Custom'),
  conflictResolutionPath: z.string().nullish(),
  conflictResolutionProcedure: z.string().nullish(),
});

const computedPropertySchema = z.looseObject({ name: z.string(), query: z.string() });

const clientEncryptionPolicySchema = z.looseObject({
  includedPaths: z.array(z.looseObject({ clientEncryptionKeyId: z.string().nullish() })).nullish(),
  policyFormatVersion: z.int().optional(),
});

/**
 * Settings that this store has in addition to Cosmos DB's. Unknown ones are refused, because a mistyped setting would
 * not take effect.
 */
const epitaphSchema = z.strictObject({
  pseudonymousIds: z.boolean().optional(),
  clearPaths: z.array(z.string()).optional(),
});

const bodySchema = z.looseObject({
  epitaph: epitaphSchema.nullish(),
  partitionKey: partitionKeySchema.nullish(),
  indexingPolicy: indexingPolicySchema.nullish(),
  vectorEmbeddingPolicy: vectorEmbeddingPolicySchema.nullish(),
  fullTextPolicy: fullTextPolicySchema.nullish(),
  changeFeedPolicy: z.looseObject({ retentionDuration: z.unknown().optional() }).nullish(),
  computedProperties: z.array(computedPropertySchema).nullish(),
  clientEncryptionPolicy: clientEncryptionPolicySchema.nullish(),
  uniqueKeyPolicy: containerDefinitionSchema.shape.uniqueKeyPolicy,
});

const MAX_COMPUTED_PROPERTIES = 20;
const MAX_PROPERTY_NAME_CHARACTERS = 256;
/** Names of properties that every item has, or may have, from the system. */
const SYSTEM_PROPERTIES: ReadonlySet<string> = new Set(['id', '_rid', '_ts', '_self', '_etag', '_attachments']);

/** @throws WireError 400 */
function checkComputed(properties: readonly ComputedProperty[], queryCharacters: number): void {
  if (properties.length > MAX_COMPUTED_PROPERTIES) {
    throw badRequest(`A container has at most ${MAX_COMPUTED_PROPERTIES} computed properties.`);
  }
  const names = new Set<string>();
  for (const { name } of properties) {
    if (name === '' || name.length > MAX_PROPERTY_NAME_CHARACTERS || name.includes('/')) {
      const shown = JSON.stringify(name.slice(0, 100));
      throw badRequest(
        `${shown} can't be the name of a computed property: that is a property at the top level, of 1 to ${MAX_PROPERTY_NAME_CHARACTERS} characters.`,
      );
    }
    if (SYSTEM_PROPERTIES.has(name)) throw badRequest(`The system property '${name}' can't be a computed property.`);
    if (names.has(name)) {
      throw badRequest(wrappedErrors(`Computed property name '${name}' cannot be used in multiple definitions.`));
    }
    names.add(name);
  }
  try {
    checkComputedProperties(properties, queryCharacters);
  } catch (error) {
    if (error instanceof QueryError) throw badRequest(`A computed property's query is invalid: ${error.message}`);
    throw error;
  }
}

export interface ContainerBody {
  readonly name: string;
  /** The client encryption keys that the container's policy names. */
  readonly encryptedWith: readonly string[];
  readonly definition: ContainerDefinition;
  readonly defaultTtl: DefaultTtl;
}

/**
 * Reads the body of a container's create or replace, and fills in the defaults that Cosmos DB fills in.
 *
 * @param current the definition that a replace starts from; a body without a partition key, unique keys or a conflict
 *   resolution policy keeps its own
 * @param legacy true for a protocol older than partition keys: without one the system's own is taken, and kinds of
 *   indexes are kept at their paths
 * @throws WireError 400
 */
export function readContainerBody(
  body: JsonObject,
  options: {
    readonly current?: ContainerDefinition;
    readonly legacy?: boolean;
    readonly queryCharacters: number;
  },
): ContainerBody {
  const name = checkName(body['id']);
  const parsed = bodySchema.safeParse(body);
  if (!parsed.success) throw invalidPart([], parsed.error);
  checkKept(body, parsed.data.indexingPolicy?.spatialIndexes ?? [], options.current);
  readPart('analyticalStorageTtl', z.int(), body['analyticalStorageTtl'], options.current?.['analyticalStorageTtl']);
  const ttl = readDefaultTtl(body['defaultTtl']);
  if (ttl === undefined) {
    const shown = JSON.stringify(body['defaultTtl']).slice(0, 100);
    throw badRequest(
      wrappedErrors(
        `The input ttl '${shown}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '${MAX_TTL_SECONDS}', or '-1' which means never expire.`,
      ),
    );
  }
  // A replace must repeat them or leave them out, and older versions accepted some that are refused today.
  if (options.current === undefined) checkUniqueKeys(parsed.data.uniqueKeyPolicy ?? {});
  checkSearchPolicies(parsed.data, options.current);
  checkComputed(parsed.data.computedProperties ?? [], options.queryCharacters);
  checkFeedRetention(parsed.data.changeFeedPolicy?.retentionDuration);
  // Clients that don't know the property leave it out when they replace a container.
  const epitaph = parsed.data.epitaph ?? options.current?.epitaph;
  const others: Record<string, unknown> = { ...body };
  for (const property of outsideDefinition) delete others[property];
  // As with the partition key, what can't be changed needn't be repeated.
  others['uniqueKeyPolicy'] ??= options.current?.uniqueKeyPolicy;
  if (others['uniqueKeyPolicy'] === undefined) delete others['uniqueKeyPolicy'];
  const partitionKey = readPartitionKey(parsed.data.partitionKey ?? undefined, options);
  if (epitaph?.pseudonymousIds === true && partitionKey.kind === 'MultiHash') {
    throw badRequest(
      'epitaph.pseudonymousIds is not supported with hierarchical partition keys: queries by the first levels of a key would not be possible.',
    );
  }
  checkClearPaths(epitaph?.clearPaths ?? [], partitionKey.paths);
  const { compositeIndexes: orders, ...policy } = parsed.data.indexingPolicy ?? {};
  const formerOrders = options.current?.indexingPolicy['compositeIndexes'];
  const compositeIndexes = readPart('indexingPolicy.compositeIndexes', compositeIndexesSchema, orders, formerOrders);
  const indexingPolicy = readIndexingPolicy(
    compositeIndexes === undefined ? policy : { ...policy, compositeIndexes },
    options.legacy ?? false,
  );
  if (indexingPolicy.indexingMode === 'none' && ttl.defaultTtl !== null) {
    throw badRequest(
      "The Time to Live (TTL) feature can't be used with the indexing mode 'none': set the indexing mode to consistent, or leave defaultTtl out.",
    );
  }
  return {
    name,
    encryptedWith: (parsed.data.clientEncryptionPolicy?.includedPaths ?? []).flatMap(
      ({ clientEncryptionKeyId }) => clientEncryptionKeyId ?? [],
    ),
    defaultTtl: ttl.defaultTtl,
    definition: {
      ...others,
      ...(epitaph === undefined ? {} : { epitaph }),
      indexingPolicy,
      partitionKey,
      conflictResolutionPolicy: readConflictResolution(body['conflictResolutionPolicy'], options.current),
      geospatialConfig: readPart(
        'geospatialConfig',
        geospatialConfigSchema,
        body['geospatialConfig'],
        options.current?.['geospatialConfig'],
      ) ?? { type: 'Geography' },
    },
  };
}

const invalidPart = (within: readonly string[], { issues: [issue] }: z.ZodError): WireError =>
  badRequest(
    `One of the specified inputs is invalid: the container's '${[...within, ...(issue?.path ?? [])].join('.')}' is invalid: ${issue?.message ?? ''}.`,
  );

/**
 * A part of a container that the .NET and the Java client read into types of their own. With anything else there, they
 * can neither use the container nor list those of its database. A container that has it from before it was refused may
 * repeat it.
 *
 * @throws WireError 400
 */
function readPart(name: string, schema: z.ZodType, given: unknown, former: unknown): unknown {
  if (given === undefined || given === null) return undefined;
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  if (former !== undefined && sameJson(given, former)) return given;
  throw invalidPart([name], parsed.error);
}

/**
 * @source https://learn.microsoft.com/azure/cosmos-db/how-to-manage-conflicts ("can't be modified after container creation")
 * @throws WireError 400
 */
function readConflictResolution(given: unknown, current: ContainerDefinition | undefined): unknown {
  const former = current?.['conflictResolutionPolicy'];
  const policy = readPart('conflictResolutionPolicy', conflictResolutionPolicySchema, given, former);
  if (policy === undefined) {
    return former ?? { mode: 'LastWriterWins', conflictResolutionPath: '/_ts', conflictResolutionProcedure: '' };
  }
  const before = conflictResolutionPolicySchema.safeParse(former).data;
  const after = conflictResolutionPolicySchema.safeParse(policy).data;
  if (before === undefined || after === undefined || resolutionOf(before) === resolutionOf(after)) return policy;
  throw badRequest("A container's conflict resolution policy can't be changed.");
}

/** A comparable form of a policy, in which defaults are filled in. */
function resolutionOf(policy: z.infer<typeof conflictResolutionPolicySchema>): string {
  const path = policy.conflictResolutionPath || (policy.mode === 'LastWriterWins' ? '/_ts' : '');
  return JSON.stringify([policy.mode, path, policy.conflictResolutionProcedure || '']);
}

/**
 * The property of a container that the service fills from another one, a global secondary index, under both its names.
 *
 * @source `materializedViewDefinition` of Azure Resource Manager and the Java client; the Python client sends both
 */
const copiesOfOthers = ['materializedViewDefinition', 'globalSecondaryIndexDefinition'] as const;

type SpatialIndexes = readonly {
  readonly path: string;
  readonly types?: readonly string[] | null | undefined;
  readonly boundingBox?: unknown;
}[];

/**
 * Refuses settings that would be stored without any effect. A container that has them from before they were refused may
 * repeat them, so that the rest of it can be replaced.
 *
 * @throws WireError 400
 */
function checkKept(body: JsonObject, spatial: SpatialIndexes, current: ContainerDefinition | undefined): void {
  const { ttlPropertyPath } = body;
  if (ttlPropertyPath !== undefined && ttlPropertyPath !== null) {
    if (!sameJson(ttlPropertyPath, current?.['ttlPropertyPath'])) {
      throw badRequest(
        "The container's 'ttlPropertyPath' is not supported: expiry counts from the last write (_ts), not from a property of the item.",
      );
    }
  }
  for (const property of copiesOfOthers) {
    const given = body[property];
    if (given === undefined || given === null || sameJson(given, current?.[property])) continue;
    throw badRequest(
      `The container's '${property}' is not supported: this store does not fill containers from others, so the container would stay empty.`,
    );
  }
  const type = geospatialTypeOf(body['geospatialConfig']);
  const keepsSpatial =
    sameJson(spatial, current?.indexingPolicy['spatialIndexes']) &&
    type === geospatialTypeOf(current?.['geospatialConfig']);
  if (!keepsSpatial) for (const index of spatial) checkSpatialIndex(index, type);
}

const geospatialTypeOf = (config: unknown): string =>
  geospatialConfigSchema.safeParse(config).data?.type ?? 'Geography';

/**
 * @source what the service refuses: the JavaScript client's own tests, "Spatial Index - boundingBox behavior"
 * @throws WireError 400
 */
function checkSpatialIndex({ path, types, boundingBox }: SpatialIndexes[number], type: string): void {
  const of = `the path ${path.slice(0, 200)}`;
  if (types === undefined || types === null || types.length === 0) {
    throw badRequest(
      `The spatial data types array cannot be empty. Assign at least one spatial type for the 'types' array for ${of}.`,
    );
  }
  const isBounded = boundingBox !== undefined && boundingBox !== null;
  if (isBounded && !boundingBoxSchema.safeParse(boundingBox).success) {
    throw badRequest(`The spatial index of ${of} has a 'boundingBox' without the numbers xmin, ymin, xmax and ymax.`);
  }
  if (isBounded === (type === 'Geometry')) return;
  throw badRequest(
    isBounded
      ? `The spatial index of ${of} has a 'boundingBox', which is for the geospatial type Geometry, not for ${type}.`
      : `The spatial index of ${of} needs a 'boundingBox', because the container's geospatial type is Geometry.`,
  );
}

/**
 * Minutes for which all versions and deletes are kept. 0, which the .NET client sends for "none", and an absent value
 * mean none.
 */
function checkFeedRetention(minutes: unknown): void {
  if (minutes === undefined || minutes === null) return;
  if (Number.isSafeInteger(minutes) && (minutes as number) >= 0 && (minutes as number) <= MAX_FEED_RETENTION_MINUTES) {
    return;
  }
  throw badRequest(
    `The changeFeedPolicy's retentionDuration '${JSON.stringify(minutes).slice(0, 100)}' is invalid: it must be a whole number of minutes, at most ${MAX_FEED_RETENTION_MINUTES} (30 days), or 0 for none.`,
  );
}

/**
 * The name of a database or container.
 *
 * @throws WireError 400
 */
export function checkName(given: unknown): string {
  const id = requiredId(given);
  if (id.length > MAX_NAME_CHARACTERS) {
    throw badRequest(
      `The id is longer than ${MAX_NAME_CHARACTERS} characters. Ensure to provide a unique non-empty string less than '${MAX_NAME_CHARACTERS}' characters.`,
    );
  }
  if (/[/\\?#]/.test(id)) throw badRequest("The id contains characters that are not allowed: '/', '\\', '?' or '#'.");
  if (id.endsWith(' ')) throw badRequest("The id can't end with a space.");
  if (!id.isWellFormed() || hasControlCharacter(id)) {
    throw badRequest('The id contains characters that are not allowed: control characters or an unpaired surrogate.');
  }
  return id;
}

function hasControlCharacter(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) if (text.charCodeAt(at) < 32) return true;
  return false;
}

function readPartitionKey(
  given: z.infer<typeof partitionKeySchema> | undefined,
  { current, legacy }: { readonly current?: ContainerDefinition; readonly legacy?: boolean },
): ContainerDefinition['partitionKey'] {
  if (given === undefined) {
    if (current !== undefined) return current.partitionKey;
    if (legacy) return { paths: ['/_partitionKey'], kind: 'Hash', systemKey: true };
    throw badRequest("The container has no partition key: the required property 'partitionKey' is missing.");
  }
  for (const path of given.paths) {
    if (parseDocumentPath(path) === undefined) {
      throw badRequest(
        `The partition key component definition path '${path.slice(0, 200)}' could not be accepted, failed near position '0'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.`,
      );
    }
  }
  if (new Set(given.paths).size < given.paths.length) throw badRequest('The partition key names a path twice.');
  const kind = readKind(given.kind ?? (given.paths.length > 1 ? 'MultiHash' : 'Hash'));
  if (kind === 'Hash' && given.paths.length > 1) {
    throw badRequest("The partition key kind 'Hash' has exactly one path; hierarchical keys are of kind 'MultiHash'.");
  }
  if (kind === 'MultiHash' && (given.version ?? 2) !== 2) {
    throw badRequest("The partition key kind 'MultiHash' needs version 2.");
  }
  const { version: _, ...rest } = given;
  const version = kind === 'MultiHash' ? 2 : given.version;
  return { ...rest, kind, ...(version === undefined ? {} : { version }) };
}

function readKind(kind: string): 'Hash' | 'MultiHash' {
  if (kind.toLowerCase() === 'hash') return 'Hash';
  if (kind.toLowerCase() === 'multihash') return 'MultiHash';
  throw badRequest(`The partition key kind '${kind.slice(0, 100)}' is not one of Hash, MultiHash.`);
}

const ETAG_PATH = '/"_etag"/?';
const SPATIAL_TYPES: readonly string[] = ['Point', 'LineString', 'Polygon', 'MultiPolygon'];

/**
 * A path once had kinds of indexes. Cosmos DB returns only the spatial ones, in a list of their own, to today's clients
 * and to older ones that still send kinds.
 */
function withoutKinds(policy: z.infer<typeof indexingPolicySchema>): z.infer<typeof indexingPolicySchema> {
  if (policy.includedPaths?.every(({ indexes }) => indexes === undefined) ?? true) return policy;
  const listed = policy.spatialIndexes ?? [];
  const spatial = (policy.includedPaths ?? []).filter(
    ({ path, indexes }) => indexes?.some(isSpatial) === true && !listed.some((index) => index.path === path),
  );
  const spatialIndexes = [...listed, ...spatial.map(({ path }) => ({ path }))];
  return {
    ...policy,
    includedPaths: policy.includedPaths?.map(({ indexes: _, ...included }) => included),
    ...(spatialIndexes.length === 0 ? {} : { spatialIndexes }),
  };
}

function isSpatial({ kind }: { readonly kind?: unknown }): boolean {
  return typeof kind === 'string' && kind.toLowerCase() === 'spatial';
}

function readIndexingPolicy(
  policy: z.infer<typeof indexingPolicySchema>,
  legacy: boolean,
): ContainerDefinition['indexingPolicy'] {
  const sent = legacy ? policy : withoutKinds(policy);
  // Cosmos DB indexes a path for all spatial types, whichever of them were named.
  const spatialIndexes = sent.spatialIndexes?.map((index) => ({ ...index, types: SPATIAL_TYPES }));
  const given = spatialIndexes === undefined ? sent : { ...sent, spatialIndexes };
  const mode = (given.indexingMode ?? 'consistent').toLowerCase();
  if (mode !== 'consistent' && mode !== 'lazy' && mode !== 'none') {
    throw badRequest(`The indexing mode '${mode.slice(0, 100)}' is not one of consistent, lazy, none.`);
  }
  if (mode === 'none') {
    return { ...given, indexingMode: mode, automatic: given.automatic ?? false, includedPaths: [], excludedPaths: [] };
  }
  const excludedPaths = given.excludedPaths ?? [];
  const includedPaths = given.includedPaths ?? [];
  const excludesAll = excludedPaths.some(({ path }) => path === '/*');
  return {
    ...given,
    indexingMode: mode,
    automatic: given.automatic ?? true,
    // A policy that a client created and left unchanged has an empty list.
    includedPaths: includedPaths.length > 0 || excludesAll ? includedPaths : [{ path: '/*' }],
    excludedPaths: excludedPaths.some(({ path }) => path === ETAG_PATH)
      ? excludedPaths
      : [...excludedPaths, { path: ETAG_PATH }],
  };
}
