import { z } from 'zod';
import { MAX_TTL_SECONDS } from '@epitaph/core/ttl/ttl-value.ts';
import { LONGEST_VAULT_KEPT_SECONDS } from '@epitaph/projections/purge/vault-copies.ts';
import { parseInstant } from '../config/instant.ts';
import { Problem } from './problems.ts';

const instant = z
  .string()
  .meta({ description: 'ISO 8601 with an offset or Z, a date, or milliseconds since 1970 (12 digits or more).' })
  .transform((text, context) => {
    const atMs = parseInstant(text);
    if (atMs !== undefined) return atMs;
    context.addIssue({
      code: 'custom',
      message: 'must be a time like 2026-11-21T10:00:00Z, a date, or milliseconds since 1970, which have 13 digits',
    });
    return z.NEVER;
  });

const isPeriod = ({ from, to }: { readonly from?: number | undefined; readonly to?: number | undefined }): boolean =>
  from === undefined || to === undefined || from < to;
/** A period that is empty by mistake is refused. Its empty answer would look as if nothing had happened. */
const NO_PERIOD = { path: ['to'], message: 'must be later than from' };

/** Names an item: its id, and its partition key as the JSON array that Cosmos DB's clients send. */
const item = {
  // An unpaired surrogate would be encoded as U+FFFD, which is the id of another item.
  id: z
    .string()
    .min(1)
    .max(1023)
    .refine((text) => text.isWellFormed(), 'must not have an unpaired surrogate'),
  partitionKey: z.string().max(8192),
};
const rid = z.string().max(64).optional();

export const containerParams = z.object({ database: z.string(), container: z.string() });
export const projectionParams = z.object({ name: z.string() });

export const explainQuery = z.strictObject({
  id: item.id,
  // Without one, the answer names the paths of the partition key.
  partitionKey: item.partitionKey.optional(),
  at: instant.optional(),
  rid,
});
export const disappearancesQuery = z
  .strictObject({
    from: instant.optional(),
    to: instant.optional(),
    cause: z.enum(['expired', 'deleted', 'container-deleted', 'erasure']).optional(),
    continuation: z.string().max(64).optional(),
    limit: z
      .string()
      .regex(/^\d{1,4}$/, 'must be a whole number from 1 to 1000')
      .transform(Number)
      .pipe(z.int().min(1).max(1000))
      .optional(),
    rid,
  })
  .refine(isPeriod, NO_PERIOD);
export type DisappearancesQuery = z.infer<typeof disappearancesQuery>;

export const ridQuery = z.strictObject({ rid });

export const asOfQuery = z.strictObject({ at: instant, rid });
const revision = z
  .string()
  .regex(/^\d{1,9}$/, 'must be a whole number')
  .transform(Number);
export const contentQuery = z.strictObject({
  id: item.id,
  partitionKey: item.partitionKey.optional(),
  at: instant.optional(),
  revision: revision.optional(),
});

const wholeNumber = z
  .string()
  .regex(/^\d{1,15}$/, 'must be a whole number')
  .transform(Number);
const limit = wholeNumber.pipe(z.int().min(1).max(1000)).optional();
/** For lists that are answered whole unless a limit is given. */
const pageQuery = z.strictObject({
  limit,
  continuation: wholeNumber.optional(),
  rid,
});
export const historyQuery = pageQuery.extend({
  id: item.id.optional(),
  partitionKey: item.partitionKey.optional(),
  /** A revision of the container's stream. For the history of an item, the life and a dot come before it. */
  continuation: z
    .string()
    .regex(/^(\d{1,15}\.)?\d{1,15}$/, 'must be a continuation that this server returned')
    .optional(),
});
export const policiesQuery = pageQuery;
export const holdsQuery = pageQuery;
export const checkpointQuery = z.strictObject({ size: wholeNumber.optional() });
export const consistencyQuery = z.strictObject({ from: wholeNumber, to: wholeNumber });
export const certificateQuery = z.strictObject({
  id: item.id,
  partitionKey: item.partitionKey.optional(),
  life: wholeNumber.optional(),
  rid,
});

const requiredReason = z.string().min(1).max(1000);
/** A hold's id is shown in lists and refusals, so it is limited to text that can be read aloud. */
export const holdParams = containerParams.extend({
  hold: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/,
      'must have only letters, digits, dots, dashes and underscores, at most 100',
    ),
});
/** A partition key in a body: the array itself, or its pseudonym. */
const partitionKeyValue = z.union(
  [z.array(z.unknown()).max(3), z.string().max(64)],
  'must be an array with the values of the partition key, such as ["ann"]',
);
/** Exactly one of the four properties that define the scope must be given. */
export const holdBody = z.strictObject({
  reason: requiredReason,
  container: z.literal(true).optional(),
  partitionKey: partitionKeyValue.optional(),
  items: z
    .array(z.strictObject({ id: item.id, partitionKey: partitionKeyValue }))
    .min(1)
    .max(100)
    .optional(),
  query: z
    .strictObject({
      query: z.string().min(1).max(16_384),
      parameters: z
        .array(z.strictObject({ name: z.string().max(256), value: z.unknown() }))
        .max(100)
        .optional(),
    })
    .optional(),
});
export const givenReasonBody = z.strictObject({ reason: requiredReason });
export const retentionBody = z.strictObject({ seconds: z.int().min(0).max(2_147_483_647), reason: requiredReason });
export const eraseBody = z.strictObject({
  id: item.id,
  partitionKey: partitionKeyValue.optional(),
  reason: requiredReason,
  requestedBy: z.string().min(1).max(200),
});
/** Recovers one item, or everything that expired when a policy came into force. */
export const recoverBody = z.union(
  [
    z.strictObject({
      id: item.id,
      partitionKey: partitionKeyValue.optional(),
      life: z.int().min(0).optional(),
      reason: requiredReason,
    }),
    z.strictObject({ policyVersion: z.int().min(1), reason: requiredReason }),
  ],
  'must name an item, by id, partitionKey and reason, or a policy, by policyVersion and reason',
);
export const heldContentQuery = z.strictObject({
  id: item.id,
  partitionKey: item.partitionKey.optional(),
  life: wholeNumber.optional(),
  revision: revision.optional(),
  reason: requiredReason,
  rid,
});
export const periodQuery = z
  .strictObject({ from: instant.optional(), to: instant.optional(), rid })
  .refine(isPeriod, NO_PERIOD);
export const purgeRunsQuery = z.strictObject({
  after: wholeNumber.optional(),
  limit,
});
export const purgeRunParams = z.object({ run: z.string().max(64) });

export const noQuery = z.strictObject({});

export const policyGraceBody = z.strictObject({
  /** The range of a ttl, and 0 for none. */
  seconds: z.int().min(0).max(2_147_483_647),
  reason: z.string().min(1).max(1000).optional(),
});
const reason = z.string().min(1).max(1000);
const TTL_TEXT = `must be null (off), -1 or a whole number of seconds from 1 to ${MAX_TTL_SECONDS}`;
/** As in a container's own definition, but null means off and the property is required. */
const defaultTtl = z.union(
  [z.literal(-1), z.int(TTL_TEXT).min(1, TTL_TEXT).max(MAX_TTL_SECONDS, TTL_TEXT), z.null()],
  TTL_TEXT,
);
/** How long a purge may wait for request units that clients do not use. */
export const purgeRunQuery = z.strictObject({ waitSeconds: wholeNumber.pipe(z.int().max(3600)).optional() });

export const previewBody = z.strictObject({ defaultTtl, effectiveFrom: instant.optional() });
export const ttlBody = z.strictObject({
  defaultTtl,
  effectiveFrom: instant.optional(),
  /** Makes the change although more items expire at once than the brake allows. Needs a reason. */
  confirm: z.boolean().optional(),
  reason: reason.optional(),
});
/** Policies in order of time. Before the first one, time to live is off. */
export const replayBody = z.strictObject({
  timeline: z
    .array(z.strictObject({ from: instant, defaultTtl }))
    .min(1)
    .max(1000),
});
export const reasonBody = z.strictObject({ reason: reason.optional() });
/** Without both limits there is no brake. */
export const brakeBody = z.strictObject({
  maxItems: z
    .int()
    .min(0)
    .nullish()
    .transform((value) => value ?? undefined),
  maxShare: z
    .number()
    .min(0)
    .max(1)
    .nullish()
    .transform((value) => value ?? undefined),
  reason: reason.optional(),
});
/** The backup's copy of the key vault lapses after a week by default. */
export const backupBody = z.strictObject({
  folder: z.string().min(1).max(4096),
  vaultKeptSeconds: z
    .int()
    .min(1)
    .max(LONGEST_VAULT_KEPT_SECONDS)
    .default(7 * 86_400),
});
export const advanceBody = z.strictObject({ milliseconds: z.int().min(0) });
export const confirmBody = z
  .strictObject({
    pausePurge: z.boolean().optional().meta({
      description:
        'True to pause the purge first: what is overdue by the confirmed time is then not erased until the purge is resumed.',
    }),
  })
  .optional();
export const rebuildBody = z
  .strictObject({
    eventsPerSecond: z
      .int()
      .min(1)
      .max(1_000_000)
      .optional()
      .meta({ description: 'The most events to read in a second.' }),
  })
  .optional();
/** For calls without a body. */
export const noBody = z.union([z.undefined(), z.strictObject({})]);

/** @throws Problem bad-request that names each part that is wrong. */
export function read<T extends z.ZodType>(schema: T, value: unknown, what: 'query' | 'body' | 'path'): z.infer<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const taken = schema instanceof z.ZodObject ? Object.keys(schema.shape) : undefined;
  const errors = result.error.issues.map((issue) => ({
    path: issue.path.join('.'),
    message: inWords(issue, valueAt(value, issue.path), issue.path.length === 0 ? taken : undefined),
  }));
  const first = errors[0]!;
  const where = first.path === '' ? `The ${what}` : `${first.path} in the ${what}`;
  throw new Problem('bad-request', `${where} ${first.message}.`, errors);
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((at, name) => (at as Readonly<Record<PropertyKey, unknown>> | undefined)?.[name], value);
}

const nouns: Readonly<Record<string, string>> = {
  object: 'an object',
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
};

/**
 * Describes a fault of a value, in words that follow the value's name. The messages given to the schemas of this file are written the same
 * way.
 */
function inWords(issue: z.core.$ZodIssue, value: unknown, taken: readonly string[] | undefined): string {
  const isOfValue = ['invalid_type', 'invalid_value', 'invalid_union'].includes(issue.code);
  if (isOfValue && value === undefined) return 'is missing';
  if (!/^(?:Invalid|Too|Unrecognized)/.test(issue.message)) return issue.message;
  switch (issue.code) {
    case 'unrecognized_keys': {
      const others =
        taken === undefined ? '' : `: ${taken.length === 0 ? 'it has no parameters' : `it knows ${taken.join(', ')}`}`;
      return `has ${issue.keys.map((key) => JSON.stringify(key)).join(', ')}, which this call does not know${others}`;
    }
    case 'invalid_type':
      // A number with more digits than a JavaScript number can hold.
      if (typeof value === 'bigint') return 'is out of range';
      return `must be ${nouns[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      return `must be ${issue.values.length === 1 ? '' : 'one of '}${issue.values.map(String).join(', ')}`;
    case 'too_small':
      if (issue.origin === 'string') return 'must not be empty';
      return issue.origin === 'array' ? 'must not be empty' : `must be ${issue.minimum} or more`;
    case 'too_big':
      if (issue.origin === 'string') return `must have at most ${issue.maximum} characters`;
      return issue.origin === 'array'
        ? `must have at most ${issue.maximum} entries`
        : `must be at most ${issue.maximum}`;
    default:
      return 'is invalid';
  }
}
