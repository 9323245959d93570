import { badRequest } from './errors.ts';

/** From the strongest to the weakest. */
export const consistencyLevels = ['Strong', 'BoundedStaleness', 'Session', 'ConsistentPrefix', 'Eventual'] as const;
export type ConsistencyLevel = (typeof consistencyLevels)[number];

/** What the account says of its consistency. The bounds are told to clients; a bounded read here is never stale. */
export interface ConsistencyPolicy {
  readonly level: ConsistencyLevel;
  /** For bounded staleness: versions, and seconds, that a read may be behind. */
  readonly maxStalenessPrefix: number;
  readonly maxStalenessSeconds: number;
}

/** Source of the bounds: Cosmos DB's own defaults. */
export const defaultConsistency: ConsistencyPolicy = {
  level: 'Session',
  maxStalenessPrefix: 100,
  maxStalenessSeconds: 5,
};

/** `userConsistencyPolicy` of the account. */
export function showConsistency(policy: ConsistencyPolicy): Readonly<Record<string, unknown>> {
  const bounds = { maxStalenessPrefix: policy.maxStalenessPrefix, maxIntervalInSeconds: policy.maxStalenessSeconds };
  return {
    defaultConsistencyLevel: policy.level,
    ...(policy.level === 'BoundedStaleness' ? bounds : {}),
  };
}

/**
 * The level of a request: the one it asks for, or the account's.
 *
 * @param asked `x-ms-consistency-level`
 * @throws WireError 400 for no level at all, and for one that is stronger than the account's
 */
export function consistencyOf(asked: string | undefined, { level }: ConsistencyPolicy): ConsistencyLevel {
  if (asked === undefined || asked === '') return level;
  const wanted = consistencyLevels.find((each) => each.toLowerCase() === asked.toLowerCase());
  if (wanted === undefined) {
    throw badRequest(
      `The value '${asked.slice(0, 100)}' specified for the header 'x-ms-consistency-level' is invalid.`,
    );
  }
  if (consistencyLevels.indexOf(wanted) < consistencyLevels.indexOf(level)) {
    throw badRequest(
      `ConsistencyLevel ${wanted} specified in the request is invalid when service is configured with consistency level ${level}. Ensure the request consistency level is not stronger than the service consistency level.`,
    );
  }
  return wanted;
}

/** What a read is to see whatever the account's level is, in the terms of levels. */
const strategies: ReadonlyMap<string, ConsistencyLevel> = new Map([
  ['eventual', 'Eventual'],
  ['session', 'Session'],
  ['latestcommitted', 'BoundedStaleness'],
  ['globalstrong', 'Strong'],
]);

/**
 * The level of a request that may name a strategy of reading, which goes before the level that it asks for.
 *
 * @param strategy `x-ms-cosmos-read-consistency-strategy`
 * @param asked `x-ms-consistency-level`
 * @source `ReadConsistencyStrategy` of the .NET and the Java client; `apply_read_consistency_strategy` of the Rust
 *   client, whose patches begin with a read of what was committed last
 * @throws WireError 400 for no strategy at all, for reading the strongest where the account is weaker, and as {@link consistencyOf}
 */
export function consistencyByStrategy(
  strategy: string | undefined,
  asked: string | undefined,
  policy: ConsistencyPolicy,
): ConsistencyLevel {
  if (strategy === undefined || strategy === '') return consistencyOf(asked, policy);
  const level = strategies.get(strategy.toLowerCase());
  if (level === undefined || (level === 'Strong' && policy.level !== 'Strong')) {
    throw badRequest(
      `The value '${strategy.slice(0, 100)}' specified for the header 'x-ms-cosmos-read-consistency-strategy' is invalid: it is Eventual, Session or LatestCommitted, and GlobalStrong where the account is at Strong.`,
    );
  }
  return level;
}
