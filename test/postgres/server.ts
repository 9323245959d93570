import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PostgresDatabase } from '@epitaph/storage/postgres/database.ts';
import { freePort } from '../support/free-port.ts';

const PROGRAMS = '/usr/lib/postgresql';
const KEPT = join(import.meta.dirname, '../../.toolchain');
const SUPERUSER = 'epitaph';

/** Settings under which a destroyed key leaves no trace on the server. Everything else has PostgreSQL's defaults. */
const SETTINGS = ['wal_recycle=off', 'max_connections=200'];

/** Why no PostgreSQL can be tested here, or undefined. Evaluated before any test is declared, so that skipped tests can say it. */
export const whyNoPostgres: string | undefined = (() => {
  if (process.env['EPITAPH_TEST_POSTGRES'] !== undefined) return undefined;
  if (programs() === undefined) {
    return `no PostgreSQL in ${PROGRAMS}: apt-get install postgresql, or EPITAPH_TEST_POSTGRES=<url of a server>`;
  }
  if (process.getuid?.() !== 0) return undefined;
  try {
    execFileSync('id', ['-u', 'postgres'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'PostgreSQL refuses to run as root, and there is no user postgres to run it as';
  }
})();

/** For the names of suites: the reason why they are skipped. */
export const skipReason = whyNoPostgres === undefined ? '' : ` [skipped: ${whyNoPostgres}]`;

function programs(): string | undefined {
  if (!existsSync(PROGRAMS)) return undefined;
  return readdirSync(PROGRAMS)
    .toSorted((left, right) => Number(right) - Number(left))
    .map((version) => join(PROGRAMS, version, 'bin'))
    .find((bin) => existsSync(join(bin, 'initdb')));
}

/**
 * A PostgreSQL server for tests: a private one with a folder of its own, stopped and removed at the end, or the one
 * that `EPITAPH_TEST_POSTGRES` names, in which each test makes and drops a database.
 */
export class TestServer {
  readonly #url: URL;
  /** The cluster's folder; undefined for a server given by an environment variable. */
  readonly folder: string | undefined;
  readonly #databases: string[] = [];
  #running = true;
  #counter = 0;

  private constructor(url: string, folder: string | undefined) {
    this.#url = new URL(url);
    this.folder = folder;
  }

  static async start(settings: readonly string[] = SETTINGS): Promise<TestServer> {
    const given = process.env['EPITAPH_TEST_POSTGRES'];
    if (given !== undefined) return new TestServer(given, undefined);
    const folder = mkdtempSync(join(tmpdir(), 'epitaph-postgres-'));
    if (process.getuid?.() === 0) chownSync(folder, idOf('-u'), idOf('-g'));
    const port = await freePort();
    const server = new TestServer(`postgresql://${SUPERUSER}@127.0.0.1:${port}/postgres`, folder);
    makeCluster(folder, server.#data);
    server.startAgain(settings);
    process.once('exit', () => server.kill());
    return server;
  }

  get #data(): string {
    return join(this.folder!, 'data');
  }

  /** The contents of every file of the cluster and of the server's log. A running server removes some meanwhile. */
  files(): { readonly file: string; readonly bytes: Buffer }[] {
    return readdirSync(this.folder!, { recursive: true, withFileTypes: true }).flatMap((entry) => {
      if (!entry.isFile()) return [];
      try {
        return [{ file: entry.name, bytes: readFileSync(join(entry.parentPath, entry.name)) }];
      } catch {
        return [];
      }
    });
  }

  get port(): number {
    return Number(this.#url.port);
  }

  startAgain(settings: readonly string[] = SETTINGS): void {
    const network = [`-p ${this.port}`, '-c listen_addresses=127.0.0.1', '-c unix_socket_directories='];
    // Tests can only crash the server, not the machine. What the server has written survives that without a sync.
    const options = [...network, ...['fsync=off', ...settings].map((setting) => `-c ${setting}`)].join(' ');
    const log = join(this.folder!, 'log');
    asServerUser(this.folder!, 'pg_ctl', ['-D', this.#data, '-w', '-s', '-l', log, '-o', options, 'start']);
    this.#running = true;
  }

  /** `immediate` looks like a crash: nothing more is written, and connections break. */
  stop(mode: 'fast' | 'immediate' = 'fast'): void {
    asServerUser(this.folder!, 'pg_ctl', ['-D', this.#data, '-w', '-s', '-m', mode, 'stop']);
    this.#running = false;
  }

  kill(): void {
    if (this.folder === undefined || !this.#running) return;
    try {
      this.stop('immediate');
    } catch {
      // The server has stopped by itself.
    }
    // A cluster has hundreds of files for each database. On a slow disk their removal took longer than a hook may, and nobody needs to wait
    // for it.
    spawn('rm', ['-rf', this.folder], { detached: true, stdio: 'ignore' }).unref();
  }

  url(database: string, user = this.#url.username, password = this.#url.password): string {
    const url = new URL(this.#url);
    url.pathname = `/${database}`;
    url.username = user;
    url.password = password;
    return url.href;
  }

  /** A new, empty database. @returns its URL */
  async newDatabase(): Promise<string> {
    const name = `epitaph_test_${process.pid}_${this.#counter++}`;
    await this.run(`CREATE DATABASE ${name} TEMPLATE template0`);
    this.#databases.push(name);
    return this.url(name);
  }

  /** For tests that create many databases. The others are removed with the server. */
  async dropDatabase(url: string): Promise<void> {
    const name = new URL(url).pathname.slice(1);
    await this.run(`DROP DATABASE ${name} WITH (FORCE)`);
    this.#databases.splice(this.#databases.indexOf(name), 1);
  }

  /** Statements as the superuser, in the maintenance database or another. */
  async run(sql: string, url = this.#url.href): Promise<readonly Record<string, unknown>[]> {
    const database = new PostgresDatabase(url, 1);
    try {
      return await database.query(sql);
    } finally {
      await database.close();
    }
  }

  /** A schema of a database, as written by `pg_dump`. */
  static dump(url: string, schema: string): string {
    return execFileSync(join(programs() ?? '', 'pg_dump'), ['--dbname', url, '--schema', schema], {
      maxBuffer: 64 * 1024 * 1024,
    }).toString();
  }

  /** Replaces a schema by a dump. */
  static load(url: string, schema: string, dump: string): void {
    const psql = (input: string) =>
      execFileSync(join(programs() ?? '', 'psql'), ['--dbname', url, '--quiet', '--set', 'ON_ERROR_STOP=1'], {
        input,
        stdio: ['pipe', 'ignore', 'pipe'],
      });
    psql(`DROP SCHEMA IF EXISTS ${schema} CASCADE;`);
    psql(dump);
  }

  /** Does the same while clients are connected, as when another server takes this one's place: their connections are lost. */
  async takePlace(url: string, schema: string, dump: string): Promise<void> {
    TestServer.load(url, schema, dump);
    const database = new URL(url).pathname.slice(1);
    await this.run(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${database}'`);
  }

  async dispose(): Promise<void> {
    if (this.folder !== undefined) return this.kill();
    for (const name of this.#databases) await this.run(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  }
}

/**
 * Makes a cluster by copying one that `initdb` has made once, because `initdb` takes a second. Like other things that the tests need, it is
 * kept in `.toolchain`.
 */
function makeCluster(folder: string, data: string): void {
  // Small WAL files, so that beginning a new one is cheap.
  const options = ['-U', SUPERUSER, '--auth=trust', '--no-sync', '-E', 'UTF8', '--locale=C', '--wal-segsize=1'];
  const version = execFileSync(join(programs()!, 'initdb'), ['--version']).toString();
  const digest = createHash('sha256').update(JSON.stringify([version, options, process.getuid?.()]));
  const kept = join(KEPT, `postgres-${digest.digest('hex').slice(0, 16)}`);
  if (existsSync(kept)) {
    copy(kept, data);
    return;
  }
  asServerUser(folder, 'initdb', ['-D', data, ...options]);
  const made = `${kept}.${process.pid}`;
  try {
    mkdirSync(KEPT, { recursive: true });
    copy(data, made);
    renameSync(made, kept);
  } catch {
    // Another process was first.
    rmSync(made, { recursive: true, force: true });
  }
}

/** Copies with owners and permissions. */
const copy = (from: string, to: string) => execFileSync('cp', ['-a', from, to]);

function idOf(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'postgres']).toString());
}

function asServerUser(folder: string, program: string, args: readonly string[]): void {
  const file = join(programs()!, program);
  const isRoot = process.getuid?.() === 0;
  execFileSync(isRoot ? 'runuser' : file, isRoot ? ['-u', 'postgres', '--', file, ...args] : args, {
    cwd: folder,
    // A plain `su` to root does not put /usr/sbin on the PATH.
    env: { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin` },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}
