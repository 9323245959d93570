import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Unavailable } from './bench.ts';
import { freePort } from '../../test/support/free-port.ts';

const PROGRAMS = '/usr/lib/postgresql';

export interface PostgresServer {
  readonly connectionString: string;
  readonly version: string;
  stop(): void;
}

/**
 * A new PostgreSQL cluster in a folder, configured as by default in Debian's package: fsync is on, and every commit is
 * synced. If this process is root, the cluster runs as another user, because PostgreSQL refuses to run as root.
 */
export async function startPostgres(
  folder: string,
  say: (text: string) => void,
  { settings: more = [], initdb = [] }: { settings?: readonly string[]; initdb?: readonly string[] } = {},
): Promise<PostgresServer | Unavailable> {
  const programs = await findPrograms(say);
  if (programs instanceof Unavailable) return programs;
  const isRoot = process.getuid?.() === 0;
  const asUser = (program: string, args: readonly string[]) =>
    execFileSync(
      isRoot ? 'runuser' : join(programs, program),
      isRoot ? ['-u', 'postgres', '--', join(programs, program), ...args] : args,
      {
        cwd: folder,
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    ).toString();
  try {
    mkdirSync(folder, { recursive: true });
    if (isRoot) {
      const [uid, gid] = ['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, 'postgres']).toString()));
      chownSync(folder, uid!, gid!);
    }
    const data = join(folder, 'data');
    const port = await freePort();
    asUser('initdb', ['-D', data, '-U', 'bench', '--auth=trust', '--no-sync', '-E', 'UTF8', '--locale=C', ...initdb]);
    const settings = [
      `-p ${port}`,
      ...['listen_addresses=127.0.0.1', `unix_socket_directories=${folder}`, 'fsync=on', ...more].map(
        (setting) => `-c ${setting}`,
      ),
    ].join(' ');
    asUser('pg_ctl', ['-D', data, '-w', '-l', join(folder, 'log'), '-o', settings, 'start']);
    return {
      connectionString: `postgresql://bench@127.0.0.1:${port}/postgres`,
      version: asUser('postgres', ['--version']).trim(),
      stop: () => {
        asUser('pg_ctl', ['-D', data, '-w', '-m', 'fast', 'stop']);
      },
    };
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: Buffer };
    return new Unavailable(`PostgreSQL did not start: ${(stderr?.toString() || message).trim().split('\n').at(-1)}`);
  }
}

async function findPrograms(say: (text: string) => void): Promise<string | Unavailable> {
  const found = () =>
    existsSync(PROGRAMS)
      ? readdirSync(PROGRAMS)
          .toSorted((left, right) => Number(right) - Number(left))
          .map((version) => join(PROGRAMS, version, 'bin'))
          .find((bin) => existsSync(join(bin, 'initdb')))
      : undefined;
  const there = found();
  if (there !== undefined) return there;
  if (process.getuid?.() !== 0) return new Unavailable('PostgreSQL is not installed (apt-get install postgresql)');
  say('installing PostgreSQL from the distribution');
  try {
    execFileSync('apt-get', ['install', '-y', '-q', 'postgresql'], { stdio: ['ignore', 'pipe', 'pipe'] });
  } catch {
    return new Unavailable('PostgreSQL could not be installed (apt-get install postgresql)');
  }
  return found() ?? new Unavailable(`PostgreSQL is not in ${PROGRAMS}`);
}
