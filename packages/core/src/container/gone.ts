import type { DatabaseState } from '../database/state.ts';
import type { ContainerState } from './state.ts';

/** When a container went, in milliseconds, and who deleted it or its database. */
export interface Gone {
  readonly atMs: number;
  readonly by: string | null;
}

/** How a container went, by its own deletion or its database's, whichever was first; undefined while it is there. */
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
