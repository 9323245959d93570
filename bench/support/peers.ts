import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Unavailable } from './bench.ts';
import { PEERS_FOLDER } from './folders.ts';

/**
 * The peers, with pinned versions. Each is in a folder of its own beside the benches, so that the workspace does not
 * depend on it. `emmett-sqlite` 0.42.4 requires `emmett` 0.42.4, which not every registry has; it works with 0.42.0. Its
 * driver `sqlite3` is downloaded as a binary, or built here if there is none (by node-gyp, which takes minutes, once).
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

/** Installs a peer if it is not there. Returns why it can't be used, or undefined if it can. */
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

/** By default npm 12 runs no install scripts. So if the driver is missing, its own script is called to build it. */
function buildIfMissing(folder: string): void {
  const driver = join(folder, 'node_modules', 'sqlite3');
  if (existsSync(join(driver, 'build', 'Release', 'node_sqlite3.node'))) return;
  execFileSync('npm', ['run', 'install'], { cwd: driver, stdio: ['ignore', 'pipe', 'pipe'], timeout: 600_000 });
}

/** Loads a module of an installed peer. The caller's type describes the part that it uses. */
export function loadPeer<Exports>(peer: PeerName, module: string): Exports {
  return createRequire(join(PEERS_FOLDER, peer, 'package.json'))(module) as Exports;
}

/** The versions of the installed peers. */
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
