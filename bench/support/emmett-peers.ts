import { type BenchContext, Unavailable } from './bench.ts';
import type { RunningContender } from './contender.ts';
import { installPeer } from './peers.ts';
import { startPostgres } from './postgres.ts';

const FACTORIES = import.meta.resolve('./emmett.ts');

/** Starts Emmett's SQLite store with this many events. Installs it if necessary. */
export async function startEmmettSqlite(context: BenchContext, seed = 0): Promise<RunningContender | Unavailable> {
  if (context.profiling) return new Unavailable('left out while profiling');
  return (
    installPeer('emmett-sqlite', context.say) ??
    (await context.peer(FACTORIES, 'emmettSqlite', { folder: context.scratch('emmett-sqlite'), seed }))
  );
}

/** Starts Emmett's PostgreSQL store with this many events, on a cluster of its own. */
export async function startEmmettPostgresql(context: BenchContext, seed = 0): Promise<RunningContender | Unavailable> {
  if (context.profiling) return new Unavailable('left out while profiling');
  const missing = installPeer('emmett-postgresql', context.say);
  if (missing !== undefined) return missing;
  const server = await startPostgres(context.scratch('postgresql'), context.say);
  if (server instanceof Unavailable) return server;
  context.atEnd(() => server.stop());
  context.say(server.version);
  return context.peer(FACTORIES, 'emmettPostgresql', { connectionString: server.connectionString, seed });
}
