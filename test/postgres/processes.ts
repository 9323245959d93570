import { type Container, ErrorResponse } from '@azure/cosmos';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import type { EventStoreDouble } from '../eventstoredb/double.ts';
import type { Target } from './load.ts';

/** The environment of an `epitaph serve` process that is one of several nodes. */
export function environmentOf(postgresUrl: string, double: EventStoreDouble): Readonly<Record<string, string>> {
  return {
    EPITAPH_POSTGRES: postgresUrl,
    EPITAPH_EVENT_STORE: double.connectionString,
    EPITAPH_MASTER_KEY: Buffer.alloc(32, 5).toString('base64'),
  };
}

/** Items with the partition key `/id`, through a client, which keeps its session token. */
export function clientTarget(container: Container): Target {
  return {
    write: async (id, n) => {
      await container.items.upsert({ id, n });
    },
    read: async (id) => (await container.item(id, id).read<{ readonly n: number }>()).resource?.n,
  };
}

/** Whether a request was refused with advice to retry, as it must be while a part is away. */
export function toldToRetry(error: unknown): boolean {
  return error instanceof ErrorResponse && error.code === 503 && error.headers?.['retry-after'] !== undefined;
}

/** The number of recorded writes of items. */
export function countWrites(double: EventStoreDouble): number {
  return double.log.readForwards(undefined).filter(({ type }) => type === 'ItemUpserted').length;
}

export async function manage(
  endpoint: string,
  method: 'GET' | 'POST',
  path: string,
  key = EMULATOR_KEY,
): Promise<unknown> {
  const answer = await fetch(`${endpoint}/_epitaph${path}`, { method, headers: { authorization: `Bearer ${key}` } });
  return answer.json();
}

export const fsckOf = (endpoint: string, key?: string): Promise<unknown> => manage(endpoint, 'POST', '/fsck', key);
