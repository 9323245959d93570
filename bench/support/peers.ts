import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Unavailable } from './bench.ts';
import { PEERS_FOLDER } from './folders.ts';

/**
 * What we are measured against, pinned, each in a folder of its own beside the benches so that the workspace
 * depends on none of it. `emmett-sqlite` 0.42.4 asks for an `emmett` 0.42.4 that not every registry has; 0.42.0
 * serves it. Its driver `sqlite3` is fetched built, or built here when that can't be (node-gyp: minutes, once).
 */
const PEERS = {
  'emmett-sqlite': {
    dependencies: {
      '@event-driven-io/emmett': '0.42.0',
      '@event-driven-io/emmett-sqlite': '0.42.4',
      sqlite3: '5.1.7',
    },
    overrides: { '@event-driven-io/emmett': '0.42.0' },
  },
  'emmett-postgresql': {
    dependencies: { '@event-driven-io/emmett': '0.42.0', '@event-driven-io/emmett-postgresql': '0.42.0' },
    overrides: {},
  },
  'cosmosdb-server': { dependencies: { '@vercel/cosmosdb-server': '1.0.1' }, overrides: {} },
} as const;

export type PeerName = keyof typeof PEERS;

/** Installs a peer if it is not there. Answers why it can't be used, or undefined when it can. */
export function installPeer(name: PeerName, say: (text: string) => void): Unavailable | undefined {
  const folder = join(PEERS_FOLDER, name);
  const wanted = JSON.stringify({ private: true, ...PEERS[name] }, null, 2);
  const installed = join(folder, 'installed.json');
  if (existsSync(installed) && readFileSync(installed, 'utf8') === wanted) return undefined;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), wanted);
  say(
    `installing ${Object.entries(PEERS[name].dependencies)
      .map(([what, version]) => `${what} ${version}`)
      .join(', ')}`,
  );
  try {
    execFileSync('npm', ['install', '--prefix', folder, '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 600_000,
    });
    if ('sqlite3' in PEERS[name].dependencies) buildIfMissing(folder);
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: Buffer };
    return new Unavailable(
      `${name} could not be installed: ${(stderr?.toString() || message).trim().split('\n').at(-1)}`,
    );
  }
  writeFileSync(installed, wanted);
  return undefined;
}

/** npm 12 runs no install scripts unless told to, so the driver is built by its own script when it isn't there. */
function buildIfMissing(folder: string): void {
  const driver = join(folder, 'node_modules', 'sqlite3');
  if (existsSync(join(driver, 'build', 'Release', 'node_sqlite3.node'))) return;
  execFileSync('npm', ['run', 'install'], { cwd: driver, stdio: ['ignore', 'pipe', 'pipe'], timeout: 600_000 });
}

/** A module of an installed peer; the caller says by a type what it uses of it. */
export function loadPeer<Exports>(peer: PeerName, module: string): Exports {
  return createRequire(join(PEERS_FOLDER, peer, 'package.json'))(module) as Exports;
}

/** Versions of the peers that are installed. */
export function peerVersions(): Record<string, string> {
  const versions: Record<string, string> = {};
  for (const [peer, { dependencies }] of Object.entries(PEERS)) {
    for (const name of Object.keys(dependencies)) {
      const file = join(PEERS_FOLDER, peer, 'node_modules', name, 'package.json');
      if (existsSync(file)) versions[name] = (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
    }
  }
  return versions;
}
