import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Unavailable } from './bench.ts';
import { PEERS_FOLDER } from './folders.ts';
import { freePort } from '../../test/support/free-port.ts';

/** Possible places of the server's program: as named, beside the other peers, or where the vendors' packages put it. */
const PROGRAMS = [
  process.env['EPITAPH_EVENTSTORE_PROGRAM'],
  join(PEERS_FOLDER, 'eventstore', 'EventStore.ClusterNode'),
  '/usr/bin/eventstored',
  '/usr/bin/kurrentd',
];
/** As in docs/servers.md: large enough for an item of 2 MiB. */
const MAX_APPEND_BYTES = 4 * 1024 * 1024;
const UP_WITHIN_MS = 60_000;

export interface EventStoreServer {
  readonly connectionString: string;
  stop(): void;
}

/**
 * Starts an empty server with its files in a folder on the project's disk. If `EPITAPH_TEST_EVENTSTORE` names a server,
 * that one is used as it is.
 */
export async function startEventStore(folder: string): Promise<EventStoreServer | Unavailable> {
  const given = process.env['EPITAPH_TEST_EVENTSTORE'];
  if (given !== undefined) return { connectionString: given, stop: () => {} };
  const program = PROGRAMS.find((path) => path !== undefined && existsSync(path));
  if (program === undefined) {
    return new Unavailable(
      'no EventStoreDB: neither EPITAPH_TEST_EVENTSTORE nor EPITAPH_EVENTSTORE_PROGRAM is set, and none is installed',
    );
  }
  const [port, replicationPort] = [await freePort(), await freePort()];
  const options = {
    insecure: true,
    db: join(folder, 'db'),
    log: join(folder, 'log'),
    'node-port': port,
    'replication-port': replicationPort,
    'max-append-size': MAX_APPEND_BYTES,
  };
  const child = spawn(
    program,
    Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    { stdio: 'ignore', env: { ...process.env, EVENTSTORE_TELEMETRY_OPTOUT: 'true' } },
  );
  const state: { ended?: string } = {};
  child.on('error', (error) => (state.ended = error.message));
  child.on('exit', (code, signal) => (state.ended = `it ended with ${signal ?? code}`));
  const stop = () => {
    child.kill('SIGKILL');
  };
  const untilMs = performance.now() + UP_WITHIN_MS;
  while (state.ended === undefined && performance.now() < untilMs) {
    const answer = await fetch(`http://127.0.0.1:${port}/health/live`).catch(() => undefined);
    if (answer?.ok === true) return { connectionString: `esdb://127.0.0.1:${port}?tls=false`, stop };
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  stop();
  return new Unavailable(`${program} did not start: ${state.ended ?? 'it does not answer'}`);
}
