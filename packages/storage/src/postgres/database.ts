import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import pg from 'pg';
import { after, every } from '../patience.ts';

/** The store can't work with this PostgreSQL server as it is configured. The message says what to change. */
export class UnusableServer extends Error {
  override readonly name = 'UnusableServer';
}

/** The server runs, but refuses the store access, or a right that it needs. The operator who grants access can correct that. */
export class AccessRefused extends StorageUnavailable {
  override readonly name = 'AccessRefused';
}

/** Tables of the vault, or all rows of one, are lost, or tables from copies that don't match were restored. */
export class VaultNotWhole extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(what: string) {
    super(
      `The key vault in PostgreSQL is incomplete: ${what}. Restore a copy of all of its tables; docs/servers.md says how to make one.`,
    );
  }
}

export type Row = Readonly<Record<string, unknown>>;

/** Runs statements: the pool, or one connection inside a transaction. */
export interface Statements {
  query<Result extends Row>(text: string, values?: readonly unknown[]): Promise<Result[]>;
}

const CONNECT_TIMEOUT_MS = 5_000;
const CLOSE_TIMEOUT_MS = 2_000;
/** A statement that takes longer was lost with its server, or waits for a lock that is never released. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** How often a watched connection is tested, and how long the answer may take. */
const BEAT_MS = 5_000;
const BEAT = { text: 'SELECT 1', query_timeout: 4_000 };
/** A process that has not tested such a connection for so long is stuck, even if the network still shows it as connected. */
export const SILENT_SECONDS = 15;
/** If a connection of the pool is in use for so long without a pause, the server is asked whether it still responds. */
const DOUBT_MS = 4_000;
/**
 * A connection of the pool that was unused for so long is tested before it is used; the probe's timeout says how long the answer
 * may take. If the server has lost the connection silently, its next user would otherwise wait for seconds, and fail.
 */
const IDLE_MS = 500;
const PROBE = { text: 'SELECT 1', query_timeout: 1_000 };
/** How often a transaction is attempted if it conflicts with others. */
const ATTEMPTS = 5;

/**
 * Statements are sent right after BEGIN, without waiting for its answer. If BEGIN alone failed, for example by a cancel that was
 * meant for the statement before, each of them would be executed and committed by itself. With `exit_on_error`, the server ends
 * the session instead, and nothing of it is committed.
 *
 * @see https://www.postgresql.org/docs/current/runtime-config-error-handling.html
 */
const ENDS_BY_A_FAULT = "set_config('exit_on_error', 'on', false) AS ends_by_a_fault";
const BEGIN = 'BEGIN; SET LOCAL exit_on_error = off';

/** Longer statements are used only once, so they are not prepared on the server. */
const LONGEST_PREPARED = 2_000;

/** The client returns 64-bit integers as strings. All of the store's are positions and times, which fit into a JavaScript number. */
const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, Number);

/** One connection outside the pool. */
export class DedicatedConnection implements Statements {
  readonly #client: pg.Client;
  #endWatch: () => void = () => {};
  #hasEnded = false;

  constructor(client: pg.Client) {
    this.#client = client;
    client.once('end', () => {
      this.#hasEnded = true;
      this.#endWatch();
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  async query<Result extends Row>(text: string, values: readonly unknown[] = []): Promise<Result[]> {
    try {
      return (await this.#client.query<Result>(text, [...values])).rows;
    } catch (error) {
      throw inOurWords(error);
    }
  }

  onNotification(listener: (payload: string | undefined) => void): void {
    this.#client.on('notification', ({ payload }) => listener(payload));
  }

  /** The listener is called once, when the connection has ended, for whatever reason. */
  onEnd(listener: () => void): void {
    this.#client.once('end', listener);
  }

  /**
   * From now on the connection is tested regularly. If the server's machine is gone, or the network has dropped the connection
   * silently, this process would not notice otherwise: it only listens on the connection, and sends nothing.
   */
  watch(): void {
    this.#endWatch = every(BEAT_MS, () => {
      // If a query is unanswered, the client closes the socket at once.
      this.#client.query(BEAT).catch(() => this.close());
    });
  }

  /** Ends the connection. It waits for CLOSE_TIMEOUT_MS at most, in case the server no longer responds. */
  async close(): Promise<void> {
    this.#endWatch();
    const stop = after(CLOSE_TIMEOUT_MS, () => socketOf(this.#client).destroy());
    await this.#client.end();
    stop();
  }
}

/** The socket is private in the client's types only. */
function socketOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Connections to one PostgreSQL database. Its errors are translated into those of this project. */
export class PostgresDatabase implements Statements {
  readonly #pool: pg.Pool;
  readonly #url: string;
  /** Names of prepared statements by their texts. A name is never reused, since a session keeps the statement of a name. */
  readonly #names = new Map<string, string>();
  #named = 0;
  #generation = 0;
  /** For each connection that is known not to lead to a standby: the process id of its session on the server. */
  readonly #sessions = new WeakMap<pg.Client, number>();
  /** The value of {@link #generation} when each connection was made. */
  readonly #generationOf = new WeakMap<pg.PoolClient, number>();
  /** The connections in use; true for one that was in use at the last check already, without a pause since. */
  readonly #inUse = new Map<pg.Client, boolean>();
  /** Since when each idle connection has been idle, by the monotonic clock. */
  readonly #idleSinceMs = new Map<pg.Client, number>();
  #asking = false;
  readonly #endWatch: () => void;
  #closed = false;

  constructor(url: string, connections = 10) {
    this.#url = url;
    // With `pipeline`, the statements of a transaction are sent without waiting for the answers to earlier ones.
    this.#pool = new pg.Pool({ ...connectionOptions(url), max: connections, pipeline: true });
    // A broken idle connection is replaced at the next use, so its error needs no handling. The user of a broken connection gets
    // the error from its statement.
    this.#pool.on('error', () => {});
    // The pool handles the errors of idle connections only. Without this listener, a connection that breaks in a transaction,
    // between two statements, would end the process. The next statement fails and tells its caller.
    this.#pool.on('connect', (client) => {
      client.on('error', () => {});
      this.#generationOf.set(client, this.#generation);
    });
    this.#pool.on('acquire', (client) => this.#inUse.set(client, false));
    this.#pool.on('release', (_error, client) => {
      this.#inUse.delete(client);
      this.#idleSinceMs.set(client, systemClocks.monotonicMs());
    });
    this.#pool.on('remove', (client) => this.#idleSinceMs.delete(client));
    this.#endWatch = every(DOUBT_MS, () => {
      if (this.#inUse.values().some((isLong) => isLong)) void this.#askAgain();
      for (const client of this.#inUse.keys()) this.#inUse.set(client, true);
    });
  }

  async query<Result extends Row>(text: string, values: readonly unknown[] = []): Promise<Result[]> {
    try {
      const client = await this.#connect();
      let fault: Error | undefined;
      try {
        return (await client.query<Result>(this.#statement(text, values))).rows;
      } catch (error) {
        fault = error as Error;
        throw error;
      } finally {
        this.#release(client, fault);
      }
    } catch (error) {
      throw inOurWords(error);
    }
  }

  /**
   * Forgets all prepared statements. Otherwise those on tables that no longer exist would stay in their sessions on the server.
   * Each connection is replaced by a new one when it is next released.
   */
  forgetStatements(): void {
    this.#generation += 1;
    this.#names.clear();
  }

  /**
   * Runs work in one transaction, and runs it again if the transaction conflicts with another. So the work must have no effects
   * outside of the transaction. It need not await one statement before it sends the next: the server executes them in the order
   * in which they are sent, and if one fails, the whole transaction is rolled back.
   */
  async transaction<Result>(work: (statements: Statements) => Promise<Result>): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once(work);
      } catch (error) {
        if (attempt === ATTEMPTS || !lostARace(error)) throw inOurWords(error);
      }
    }
  }

  /**
   * Begins a transaction that only reads, and in which all statements see the state of its begin. It occupies a connection of the
   * pool until it is closed.
   */
  async snapshot(): Promise<{ readonly statements: Statements; readonly close: () => Promise<void> }> {
    const begun = Promise.withResolvers<Statements>();
    const closing = Promise.withResolvers<void>();
    const done = this.#once(async (sql) => {
      void sql.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY');
      // PostgreSQL takes the snapshot at the first statement that reads.
      await sql.query('SELECT 1');
      begun.resolve(sql);
      await closing.promise;
    }).catch((error: unknown) => begun.reject(inOurWords(error)));
    const transaction = await begun.promise;
    return {
      statements: {
        query: <Result extends Row>(text: string, values?: readonly unknown[]) =>
          transaction.query<Result>(text, values).catch((error: unknown) => {
            throw inOurWords(error);
          }),
      },
      close: () => {
        closing.resolve();
        return done;
      },
    };
  }

  /**
   * Opens a connection outside the pool, for locks and notifications that last as long as the connection. It is tested all the
   * time, also during `prepare`; so no statement on it may take seconds.
   *
   * @param prepare must be done before the connection can be used. If it fails, the connection is closed, with its locks
   */
  async dedicated<Prepared>(
    prepare: (connection: DedicatedConnection) => Promise<Prepared>,
  ): Promise<{ readonly connection: DedicatedConnection; readonly prepared: Prepared }> {
    const client = new pg.Client(connectionOptions(this.#url));
    // Without a listener the loss of a connection would end the process.
    client.on('error', () => {});
    const connection = new DedicatedConnection(client);
    try {
      await client.connect();
      connection.watch();
      await assertNoStandby(client);
      const prepared = await prepare(connection);
      // The connection may have ended during `prepare`. The caller can listen for its end only from here on, so it would not notice.
      if (connection.hasEnded) throw new Error('Connection terminated');
      return { connection, prepared };
    } catch (error) {
      connection.close().catch(() => {});
      throw inOurWords(error);
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#endWatch();
    await this.#pool.end();
  }

  /** Closes all connections, also those in use. What is not committed yet is lost. */
  async abandon(): Promise<void> {
    for (const client of this.#inUse.keys()) socketOf(client).destroy();
    await this.close();
  }

  /**
   * For connections that have waited long for an answer: connects anew, to find out whether the server is still there. (A machine
   * or network that fails tells nobody.) If it can't be reached, all connections in use are closed. If it can, only the waiting
   * ones whose session no longer exists are closed; the server is still working on the statements of the others.
   */
  async #askAgain(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    const doubted = [...this.#inUse].filter(([, isLong]) => isLong).map(([client]) => client);
    // A connection that was made meanwhile, or was released and taken again, is not closed.
    const close = (clients: readonly pg.Client[]) => {
      for (const client of clients) if (this.#inUse.get(client) === true) socketOf(client).destroy();
    };
    try {
      const sessions = doubted.map((client) => this.#sessions.get(client));
      const { connection, prepared: there } = await this.dedicated((sql) =>
        sql.query<{ pid: number }>('SELECT pid FROM pg_stat_activity WHERE pid = ANY ($1::integer[])', [
          sessions.filter((session) => session !== undefined),
        ]),
      );
      const known = new Set<number | undefined>([undefined, ...there.map(({ pid }) => pid)]);
      const lost = doubted.filter((_, index) => !known.has(sessions[index]));
      close(lost);
      if (lost.length > 0) this.#closeIdle();
      await connection.close();
    } catch (error) {
      const { cause = error } = error as Error;
      // An error that the server itself reports shows that it is there.
      if (cause instanceof pg.DatabaseError) return;
      close([...this.#inUse.keys()]);
    } finally {
      this.#asking = false;
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await this.#pool.connect();
      const isIdle = this.#isIdle(client);
      this.#idleSinceMs.delete(client);
      if (!this.#sessions.has(client)) {
        try {
          this.#sessions.set(client, await assertNoStandby(client, ENDS_BY_A_FAULT));
        } catch (error) {
          client.release(error as Error);
          throw error;
        }
        return client;
      }
      if (!isIdle) return client;
      try {
        await client.query(PROBE);
        return client;
      } catch (error) {
        client.release(error as Error);
        // The server has probably lost the other connections too, and the probe of each would take its time in turn.
        this.#closeIdle();
      }
    }
  }

  #isIdle(client: pg.Client): boolean {
    return systemClocks.monotonicMs() - (this.#idleSinceMs.get(client) ?? Number.POSITIVE_INFINITY) >= IDLE_MS;
  }

  #closeIdle(): void {
    // If the pool hands one out before it notices that it is closed, the probe fails, and another one is taken.
    for (const client of this.#idleSinceMs.keys()) if (this.#isIdle(client)) socketOf(client).destroy();
  }

  async #once<Result>(work: (statements: Statements) => Promise<Result>): Promise<Result> {
    const client = await this.#connect();
    let broken: Error | undefined;
    const faults: Error[] = [];
    const send = async <Row_ extends Row>(statement: pg.QueryConfig) => {
      const answer = await client.query<Row_>(statement).catch((error: Error) => void faults.push(error));
      // Statements after a failed one fail only because of it, so they report its error.
      if (answer === undefined || faults.length > 0) throw faults[0];
      return answer.rows;
    };
    const query = <Row_ extends Row>(text: string, values: readonly unknown[] = []) => {
      const rows = send<Row_>(this.#statement(text, values));
      // If the caller does not await a statement, the end of the transaction reports its failure.
      rows.catch(() => {});
      return rows;
    };
    try {
      void query(BEGIN);
      const result = await work({ query });
      // If a statement has failed, COMMIT commits nothing, without an error. All statements have been answered by then.
      await query('COMMIT');
      if (faults.length > 0) throw faults[0];
      return result;
    } catch (error) {
      await client.query('ROLLBACK').catch((fault: Error) => {
        broken = fault;
      });
      if ((error as { code?: string }).code === READ_ONLY) broken ??= error as Error;
      throw error;
    } finally {
      this.#release(client, broken);
    }
  }

  #release(client: pg.PoolClient, fault: Error | undefined): void {
    client.release(fault ?? this.#generationOf.get(client) !== this.#generation);
  }

  #statement(text: string, values: readonly unknown[]): pg.QueryConfig {
    if (text.length > LONGEST_PREPARED || !/^\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)/.test(text)) {
      return { text, values: [...values] };
    }
    let name = this.#names.get(text);
    if (name === undefined) this.#names.set(text, (name = `s${this.#named++}`));
    return { name, text, values: [...values] };
  }
}

/**
 * Connects for the first time, at the start of the store, when the operator can still correct the configuration.
 *
 * @throws {UnusableServer} with a message in one line that says what is wrong and where, without the password
 * @throws {StorageUnavailable} with such a message, if the server may just not have started yet
 */
export async function openDatabase(url: string): Promise<PostgresDatabase> {
  const place = placeOf(url);
  const database = new PostgresDatabase(url);
  try {
    const [row] = await database.query<{ version: string }>("SELECT current_setting('server_version_num') AS version");
    if (Number(row!.version) < OLDEST_SERVER * 10_000) {
      throw new UnusableServer(
        `PostgreSQL at ${place} is version ${Math.floor(Number(row!.version) / 10_000)}, but the store needs ${OLDEST_SERVER} or newer.`,
      );
    }
    await assertOwnSessions(database, place);
    return database;
  } catch (error) {
    await database.close();
    if (error instanceof UnusableServer) throw error;
    if (isOfAPool(error)) throw pooled(place, `refuses what is needed (${error.message})`, error);
    const [message, cause] = [`PostgreSQL at ${place} can't be used: ${plainReason(error)}`, { cause: error }];
    throw error instanceof StorageUnavailable && !(error instanceof AccessRefused)
      ? new StorageUnavailable(message, cause)
      : new UnusableServer(message, cause);
  }
}

/**
 * Refuses a connection pooler between the store and the server that drops the settings of a session, or that gives the session,
 * with its locks, to other clients after each transaction. With such a pooler two nodes could hold the vault's lock at once.
 */
async function assertOwnSessions(database: PostgresDatabase, place: string): Promise<void> {
  const { connection } = await database.dedicated(async () => {});
  try {
    const settings = await connection.query<{ name: keyof typeof SESSION; value: string }>(
      'SELECT name, current_setting(name) AS value FROM unnest($1::text[]) AS name',
      [Object.keys(SESSION).filter((name) => !name.startsWith('tcp_'))],
    );
    const dropped = settings.filter(({ name, value }) => value !== SESSION[name]);
    if (dropped.length > 0) {
      const wanted = dropped.map(({ name }) => `${name} = '${SESSION[name]}'`).join(', ');
      throw pooled(place, `does not pass on these settings of a session: ${wanted}`);
    }
    const sessionOf = async (sql: Statements) =>
      (await sql.query<{ session: number }>('SELECT pg_backend_pid() AS session'))[0]!.session;
    const own = await sessionOf(connection);
    const isShared = await database.transaction(
      async (sql) => (await sessionOf(sql)) === own || (await sessionOf(connection)) !== own,
    );
    if (isShared) throw pooled(place, 'gives a session, with its locks, to other clients after each transaction');
  } finally {
    await connection.close();
  }
}

function pooled(place: string, what: string, cause?: unknown): UnusableServer {
  return new UnusableServer(
    `The connection pooler at ${place} ${what}. Connect directly to PostgreSQL; docs/servers.md says which poolers work.`,
    { cause },
  );
}

/**
 * Recognizes a pooler by its errors: a message that only PgBouncer sends, or a prepared statement that is missing because the
 * session was changed, or that exists already because another client made it.
 */
function isOfAPool(error: unknown): error is Error {
  const { code, message } = error as { code?: string; message?: string };
  return code === '42P05' || code === '26000' || /unsupported startup parameter|pooling mode/.test(message ?? '');
}

const SESSION = {
  // A transaction that has waited for a lock must then see what was committed while it waited, a hold for example. Under the
  // stricter levels it would see the state before it waited.
  default_transaction_isolation: 'read committed',
  // A commit must be durable before the store acknowledges it, whatever the server's default is.
  synchronous_commit: 'on',
  lock_timeout: '10s',
  // A process that stops in the middle of a transaction may block others from its rows for no longer than this.
  idle_in_transaction_session_timeout: '20s',
  // The locks of a machine that fails silently are released within half a minute.
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
};

/** PostgreSQL 15 introduced `pg_checkpoint`, the right to request a checkpoint without being a superuser. */
const OLDEST_SERVER = 15;

function connectionOptions(url: string): pg.ClientConfig {
  // If the URL contains options, the client ignores those of the configuration. So they are moved from the URL into it.
  const { given, rest } = withoutOptions(url);
  const ours = Object.entries(SESSION).map(([name, value]) => `-c ${name}=${value.replaceAll(' ', String.raw`\ `)}`);
  return {
    connectionString: rest,
    application_name: 'epitaph',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    // The client's own limit is needed too: a server that is gone does not even report a timeout.
    query_timeout: STATEMENT_TIMEOUT_MS + 5_000,
    keepAlive: true,
    // If a setting occurs twice, the later one counts.
    options: [...given, ...ours].join(' '),
    types,
  };
}

function withoutOptions(url: string): { readonly given: readonly string[]; readonly rest: string } {
  const parsed = new URL(url);
  const given = parsed.searchParams.getAll('options');
  if (given.length === 0) return { given, rest: url };
  parsed.searchParams.delete('options');
  return { given, rest: parsed.href };
}

/** The host, port and database of a URL: the parts that messages may contain. */
export function placeOf(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new UnusableServer('The PostgreSQL URL is invalid; it must look like postgresql://user@host:5432/database.');
  }
  if (parsed.protocol !== 'postgresql:' && parsed.protocol !== 'postgres:') {
    throw new UnusableServer('The PostgreSQL URL must begin with postgresql://.');
  }
  return `${parsed.hostname || 'localhost'}:${parsed.port || '5432'}${parsed.pathname}`;
}

function plainReason(error: unknown): string {
  const { code, message } = error as { code?: string; message: string };
  switch (code) {
    case 'ECONNREFUSED':
      return 'nothing listens there. Check host and port, and that the server runs.';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `the host is not known (${code}).`;
    case '28P01':
    case '28000':
      return 'the server refuses the user or the password.';
    case '3D000':
      return 'there is no such database. Create it first.';
    default:
      return `${message.trim().replace(/\.$/, '')}.`;
  }
}

/** @see https://www.postgresql.org/docs/current/errcodes-appendix.html */
function lostARace(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === '40001' || code === '40P01';
}

/** The server refuses writes: it may have become a standby. The next connection may then lead to the new primary. */
const READ_ONLY = '25006';

/**
 * Refuses a standby. It lags behind, so it may still return keys that were just destroyed, and its locks are not those of the
 * primary. After a failover, a host name may lead to a standby for a while.
 *
 * @param besides another column that the same statement selects, or a setting that it makes
 * @returns the process id of the session on the server
 */
async function assertNoStandby(client: pg.ClientBase, besides = '1 AS one'): Promise<number> {
  const { rows } = await client.query<{ standby: boolean; session: number }>(
    `SELECT pg_is_in_recovery() AS standby, pg_backend_pid() AS session, ${besides}`,
  );
  if (rows[0]!.standby) throw Object.assign(new Error('the server is a standby'), { code: READ_ONLY });
  return rows[0]!.session;
}

/** Classes of SQLSTATE: errors of the connection, and of a server that is starting, stopping, not ready or out of resources. */
const PASSING = /^(?:08|53|57P|58|55000|55P03|57014|25P03|25006)/;
/** The server refuses the user or the password, or the database does not exist. */
const NOT_LET_IN = /^(?:28|3D000)/;
/** The user lacks a right. */
const NOT_GRANTED = '42501';
/** A table or schema of read models does not exist: another node has just replaced them, or made those of a later version. */
const REPLACED = /^(?:42P01|3F000).*epitaph_items_v/;
/** A table or sequence of the vault does not exist: it may have been left out of a dump, or a dump was restored only in part. */
const LEFT_OUT_OF_VAULT = /^42P01.*epitaph_vault/;
const SYSTEM_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);

function inOurWords(error: unknown): unknown {
  // Work inside a transaction may also use the pool, whose errors are translated already.
  if (!(error instanceof Error) || error instanceof StorageUnavailable) return error;
  const { code } = error as { code?: string };
  if (code === NOT_GRANTED) {
    const message = `PostgreSQL refuses a right that the store needs: ${error.message}. Grant it to the user; docs/servers.md lists the rights.`;
    return new AccessRefused(message, { cause: error });
  }
  if (code !== undefined && NOT_LET_IN.test(code)) {
    return Object.assign(new AccessRefused(`PostgreSQL: ${error.message}`, { cause: error }), { code });
  }
  if (LEFT_OUT_OF_VAULT.test(`${code} ${error.message}`)) return new VaultNotWhole(error.message);
  const passing =
    code === undefined
      ? // The client library has no codes for the errors that it raises itself.
        /Connection terminated|timeout exceeded|timeout expired|Client has encountered a connection error|not queryable|Query read timeout|after calling end on the pool/.test(
          error.message,
        )
      : SYSTEM_CODES.has(code) || PASSING.test(code) || REPLACED.test(`${code} ${error.message}`);
  if (!passing && !lostARace(error)) return error;
  return Object.assign(new StorageUnavailable(`PostgreSQL: ${error.message}`, { cause: error }), { code });
}
