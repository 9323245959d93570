import type { DatabaseState } from '../database/state.ts';
import type { ContainerState } from './state.ts';

/** When a container was deleted, in milliseconds, and who deleted it or its database. */
export interface Gone {
  readonly atMs: number;
  readonly by: string | null;
}

/** How a container was deleted: itself or with its database, whichever came first. Undefined while it exists. */
export function goneOf(
  { deletedAtMs, deletedBy }: Pick<ContainerState, 'deletedAtMs' | 'deletedBy'>,
  database: Pick<DatabaseState, 'deletedAtMs' | 'deletedBy'> | undefined,
): Gone | undefined {
  const withDatabase = database?.deletedAtMs ?? null;
  if (deletedAtMs !== null && (withDatabase === null || deletedAtMs <= withDatabase)) {
    return { atMs: deletedAtMs, by: deletedBy ?? null };
  }
  return withDatabase === null ? undefined : { atMs: withDatabase, by: database?.deletedBy ?? null };
}
