import { badRequest } from './errors.ts';

/** From strongest to weakest. */
export const consistencyLevels = ['Strong', 'BoundedStaleness', 'Session', 'ConsistentPrefix', 'Eventual'] as const;
export type ConsistencyLevel = (typeof consistencyLevels)[number];

/** The account's consistency. The bounds are shown to clients; bounded reads are never stale here. */
export interface ConsistencyPolicy {
  readonly level: ConsistencyLevel;
  /** For bounded staleness: by how many versions, and how many seconds, a read may be behind. */
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
 * The level of a request: the one that it asks for, or the account's.
 *
 * @param asked `x-ms-consistency-level`
 * @throws WireError 400 for an unknown level, and for one that is stronger than the account's
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

/** The level that each read consistency strategy stands for, whatever the account's level is. */
const strategies: ReadonlyMap<string, ConsistencyLevel> = new Map([
  ['eventual', 'Eventual'],
  ['session', 'Session'],
  ['latestcommitted', 'BoundedStaleness'],
  ['globalstrong', 'Strong'],
]);

/**
 * The level of a request that may name a read consistency strategy. The strategy takes precedence over the level.
 *
 * @param strategy `x-ms-cosmos-read-consistency-strategy`
 * @param asked `x-ms-consistency-level`
 * @source `ReadConsistencyStrategy` of the .NET and the Java client; `apply_read_consistency_strategy` of the Rust
 *   client, whose patches begin with a read of the latest committed version
 * @throws WireError 400 for an unknown strategy, for the strongest one when the account's level is weaker, and as
 *   {@link consistencyOf}
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
      `The value '${strategy.slice(0, 100)}' specified for the header 'x-ms-cosmos-read-consistency-strategy' is invalid: it must be Eventual, Session or LatestCommitted, or GlobalStrong if the account's consistency level is Strong.`,
    );
  }
  return level;
}
