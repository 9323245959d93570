import {
  ChangeFeedMode,
  ChangeFeedPolicy,
  ChangeFeedRetentionTimeSpan,
  ChangeFeedStartFrom,
  type ChangeFeedIteratorOptions,
  type Container,
  StatusCodes,
} from '@azure/cosmos';
import { raw, type RawReply } from '../support/raw.ts';
import type { Fields, World } from '../support/world.ts';

export const ALL_VERSIONS = ChangeFeedMode.AllVersionsAndDeletes;

/** Settings of a container that keeps all versions for some minutes. */
export const keeping = (minutes: number) => ({
  changeFeedPolicy: new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(minutes)),
});

/** A change of the latest-version feed. */
export interface LatestItem {
  readonly id: string;
  readonly customer: string;
  readonly n?: number;
  readonly _ts: number;
  readonly _lsn: number;
}

/** An entry of the feed of all versions. */
export interface Version {
  readonly current: Fields & { readonly id?: string };
  readonly previous?: Fields & { readonly id: string };
  readonly metadata: {
    readonly operationType: 'create' | 'replace' | 'delete';
    readonly lsn: number;
    readonly crts: number;
    readonly previousImageLSN?: number;
    readonly timeToLiveExpired?: boolean;
    readonly id?: string;
    readonly partitionKey?: Fields;
  };
}

export interface Reading<Change> {
  readonly changes: readonly Change[];
  readonly continuationToken: string;
  readonly pages: number;
}

/** Reads with the client's iterator until it reports that nothing is new. */
export async function readOn<Change = LatestItem>(
  container: Container,
  options: ChangeFeedIteratorOptions,
): Promise<Reading<Change>> {
  const changes: Change[] = [];
  let pages = 0;
  for await (const page of container.items.getChangeFeedIterator<Change>(options).getAsyncIterator()) {
    pages += 1;
    if (page.statusCode === StatusCodes.NotModified) {
      return { changes, continuationToken: page.continuationToken, pages };
    }
    changes.push(...page.result);
  }
  throw new Error('the feed has ended, which no feed does');
}

/** Continues from an earlier reading. */
export const from = (continuationToken: string) => ChangeFeedStartFrom.Continuation(continuationToken);

export const ids = (changes: readonly { readonly id: string }[]): string[] => changes.map(({ id }) => id);

/** The changes in short: `create a`, `delete a (expired)`. */
export function told(changes: readonly Version[]): string[] {
  return changes.map(({ current, metadata }) => {
    const { operationType, id, timeToLiveExpired } = metadata;
    return operationType === 'delete'
      ? `delete ${id}${timeToLiveExpired === true ? ' (expired)' : ''}`
      : `${operationType} ${current.id}`;
  });
}

/** Asks for a page over bare HTTP. */
export function page(
  world: World,
  container: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<RawReply> {
  return raw(world.endpoint, 'GET', `/dbs/shop/colls/${container}/docs`, {
    headers: { 'a-im': 'Incremental Feed', ...headers },
  });
}

export const documentsOf = (reply: RawReply): readonly LatestItem[] =>
  (reply.json?.['Documents'] ?? []) as readonly LatestItem[];

/**
 * The result of an estimator for an answer: how far its first change is behind its session token.
 *
 * @source `ChangeFeedEstimatorIterator` of the .NET client
 */
export function estimated(reply: RawReply): number {
  const session = Number(/(\d+)$/.exec(String(reply.headers['x-ms-session-token']))?.[1]);
  const [first] = (reply.json?.['Documents'] ?? []) as readonly Partial<LatestItem & Version>[];
  return first === undefined ? 0 : session - (first._lsn ?? first.metadata!.lsn) + 1;
}
