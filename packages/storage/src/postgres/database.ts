import type { Socket } from 'node:net';
import { systemClocks } from '@epitaph/core/clock.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import pg from 'pg';
import { after, every } from '../patience.ts';

/** A PostgreSQL server that this store can't work with as it is configured; the message says what to change. */
export class UnusableServer extends Error {
  override readonly name = 'UnusableServer';
}

/** The server is there and does not let this store in, or do what it needs, which whoever gave it access can put right. */
export class AccessRefused extends StorageUnavailable {
  override readonly name = 'AccessRefused';
}

/** Tables of the vault, or all that is in one, are lost, or copies were put together that don't go together. */
export class VaultNotWhole extends StorageUnavailable {
  override readonly isForOperator = true;

  constructor(what: string) {
    super(
      `The key vault in PostgreSQL is not whole: ${what}. Put back a copy of all of its tables; docs/servers.md says how one is made.`,
    );
  }
}

export type Row = Readonly<Record<string, unknown>>;

/** What runs statements: the pool, or one connection inside a transaction. */
export interface Statements {
  query<Result extends Row>(text: string, values?: readonly unknown[]): Promise<Result[]>;
}

const CONNECT_TIMEOUT_MS = 5_000;
const CLOSE_TIMEOUT_MS = 2_000;
/** A statement that takes longer was lost with its server, or stands behind a lock that nobody lets go of. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** How often a connection that is watched is asked whether it stands, and how long the answer may take. */
const BEAT_MS = 5_000;
const BEAT = { text: 'SELECT 1', query_timeout: 4_000 };
/** A process that has not asked on such a connection for so long stands still, whatever the network says of it. */
export const SILENT_SECONDS = 15;
/** A connection of the pool in use for so long without a pause is a reason to ask the server whether it is there at all. */
const DOUBT_MS = 4_000;
/**
 * A connection of the pool that nobody has used for so long is asked whether it stands before it is used, and how long the
 * answer may take: where the server has lost it without a word, who uses it would wait for seconds, and fail.
 */
const IDLE_MS = 500;
const PROBE = { text: 'SELECT 1', query_timeout: 1_000 };
/** How often a transaction that lost against another one is tried again. */
const ATTEMPTS = 5;

/**
 * What is sent behind the beginning of a transaction would be carried out and stay, each statement for itself, where that alone
 * fails, as by a cancel that was meant for the statement before. So then the server ends the session, with all that is in it.
 *
 * @see https://www.postgresql.org/docs/current/runtime-config-error-handling.html
 */
const ENDS_BY_A_FAULT = "set_config('exit_on_error', 'on', false) AS ends_by_a_fault";
const BEGIN = 'BEGIN; SET LOCAL exit_on_error = off';

/** Longer ones come once: they are not worth a name on the server. */
const LONGEST_PREPARED = 2_000;

/** Positions and times are whole numbers that a JavaScript number holds; as texts they would only be a trap. */
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

  /** Called once, when the connection has ended, whoever has ended it. */
  onEnd(listener: () => void): void {
    this.#client.once('end', listener);
  }

  /**
   * From now on the connection is asked whether it still stands. Whose other end is gone without a word, as with
   * its machine or by a network that forgets, is told of it by nobody else: nothing is ever sent there.
   */
  watch(): void {
    this.#endWatch = every(BEAT_MS, () => {
      // With its query unanswered, the client closes the socket at once.
      this.#client.query(BEAT).catch(() => this.close());
    });
  }

  /** Gives the connection back, and does not wait for a server that says nothing any more. */
  async close(): Promise<void> {
    this.#endWatch();
    const stop = after(CLOSE_TIMEOUT_MS, () => socketOf(this.#client).destroy());
    await this.#client.end();
    stop();
  }
}

/** Private in the client's types alone. */
function socketOf(client: pg.Client): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

/** Connections to one PostgreSQL database, and its errors in this project's words. */
export class PostgresDatabase implements Statements {
  readonly #pool: pg.Pool;
  readonly #url: string;
  /** By the texts of statements. A name is given once: a session keeps what it stands for. */
  readonly #names = new Map<string, string>();
  #named = 0;
  #generation = 0;
  /** The session on the server of each connection that is known not to lead to a standby. */
  readonly #sessions = new WeakMap<pg.Client, number>();
  /** How often statements had been forgotten when each connection was made. */
  readonly #generationOf = new WeakMap<pg.PoolClient, number>();
  /** And whether each was so at the last look already, and all the time since. */
  readonly #inUse = new Map<pg.Client, boolean>();
  /** Since when each of the others is not used, by the monotonic clock. */
  readonly #idleSinceMs = new Map<pg.Client, number>();
  #asking = false;
  readonly #endWatch: () => void;
  #closed = false;

  constructor(url: string, connections = 10) {
    this.#url = url;
    // Statements of a transaction that don't wait for each other's answers are sent at once.
    this.#pool = new pg.Pool({ ...connectionOptions(url), max: connections, pipeline: true });
    // An idle connection that breaks is replaced at the next use; whoever uses one is told by the statement.
    this.#pool.on('error', () => {});
    // One that breaks in the middle of a transaction, between two statements, would end the process: the pool listens to
    // idle ones alone. The next statement tells whoever uses it.
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
   * Forgets all prepared statements: those on tables that are no more would stay in the sessions on the server for as long
   * as these. Each connection is replaced by a new one when it is next given back.
   */
  forgetStatements(): void {
    this.#generation += 1;
    this.#names.clear();
  }

  /**
   * Runs work in one transaction, again if it lost against another. The work must do nothing outside of it. It need not wait for
   * a statement's answer to ask the next: they are carried out in the order of their asking, and if one fails nothing of the
   * transaction stays.
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
   * A connection of its own, for locks and notifications that live as long as it does. It is asked all the time whether it
   * stands, also while it is prepared; so nothing may be asked on it that takes seconds.
   *
   * @param prepare what it is good for only when done; should that fail, the connection and its locks are given back
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
      // While something else was waited for, say. Nobody else would be told: whoever wants to know asks to be from here on.
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

  /** Closes it under whoever is at work on it: what is not committed yet never will be. */
  async abandon(): Promise<void> {
    for (const client of this.#inUse.keys()) socketOf(client).destroy();
    await this.close();
  }

  /**
   * Closes connections whose answer is long in coming if the server can't be reached anew either: a machine that is
   * gone, or a network, says so to nobody. If it can be, those whose session it has lost. It is at work on what the
   * others were asked.
   */
  async #askAgain(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    const doubted = [...this.#inUse].filter(([, isLong]) => isLong).map(([client]) => client);
    // One that is made in the meantime, or given back and taken by somebody else, is not doubted any more.
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
      // Whatever the server itself answers, it is there.
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
        // With it the server will have lost the others, of which each would be waited for in turn.
        this.#closeIdle();
      }
    }
  }

  #isIdle(client: pg.Client): boolean {
    return systemClocks.monotonicMs() - (this.#idleSinceMs.get(client) ?? Number.POSITIVE_INFINITY) >= IDLE_MS;
  }

  #closeIdle(): void {
    // One that somebody is given before the pool has noticed is asked whether it stands.
    for (const client of this.#idleSinceMs.keys()) if (this.#isIdle(client)) socketOf(client).destroy();
  }

  async #once<Result>(work: (statements: Statements) => Promise<Result>): Promise<Result> {
    const client = await this.#connect();
    let broken: Error | undefined;
    const faults: Error[] = [];
    const send = async <Row_ extends Row>(statement: pg.QueryConfig) => {
      const answer = await client.query<Row_>(statement).catch((error: Error) => void faults.push(error));
      // What was asked behind one that failed fails for that alone.
      if (answer === undefined || faults.length > 0) throw faults[0];
      return answer.rows;
    };
    const query = <Row_ extends Row>(text: string, values: readonly unknown[] = []) => {
      const rows = send<Row_>(this.#statement(text, values));
      // Who doesn't wait for it is told by the end of the transaction.
      rows.catch(() => {});
      return rows;
    };
    try {
      void query(BEGIN);
      const result = await work({ query });
      // It commits nothing where a statement has failed, which has been answered by then.
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
 * Connects for the first time, when whoever starts the store can still put right what is wrong.
 *
 * @throws {UnusableServer} with one line that says what and where, without the password
 * @throws {StorageUnavailable} with such a line, where the server may only not be there yet
 */
export async function openDatabase(url: string): Promise<PostgresDatabase> {
  const place = placeOf(url);
  const database = new PostgresDatabase(url);
  try {
    const [row] = await database.query<{ version: string }>("SELECT current_setting('server_version_num') AS version");
    if (Number(row!.version) < OLDEST_SERVER * 10_000) {
      throw new UnusableServer(
        `PostgreSQL at ${place} is version ${Math.floor(Number(row!.version) / 10_000)}; ${OLDEST_SERVER} is the oldest that will do.`,
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
 * What pools connections between here and the server may drop what a session is to be like, and give one to others as soon
 * as a transaction has ended, with its locks: two nodes would have the vault to themselves at once.
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
      throw pooled(place, `does not pass on what a session is to be like: ${wanted}`);
    }
    const sessionOf = async (sql: Statements) =>
      (await sql.query<{ session: number }>('SELECT pg_backend_pid() AS session'))[0]!.session;
    const own = await sessionOf(connection);
    const isShared = await database.transaction(
      async (sql) => (await sessionOf(sql)) === own || (await sessionOf(connection)) !== own,
    );
    if (isShared) throw pooled(place, 'gives a session to others after each transaction, with its locks');
  } finally {
    await connection.close();
  }
}

function pooled(place: string, what: string, cause?: unknown): UnusableServer {
  return new UnusableServer(
    `What pools connections to PostgreSQL at ${place} ${what}. Connect to the server itself; docs/servers.md says what else will do.`,
    { cause },
  );
}

/** What PgBouncer alone says; or of a prepared statement that went with another session, or that another client has made. */
function isOfAPool(error: unknown): error is Error {
  const { code, message } = error as { code?: string; message?: string };
  return code === '42P05' || code === '26000' || /unsupported startup parameter|pooling mode/.test(message ?? '');
}

const SESSION = {
  // Who has waited for a lock sees what was done until then, a hold say: under any other level it sees what stood before
  // it waited.
  default_transaction_isolation: 'read committed',
  // What is answered as durable must be, whatever the server's default is.
  synchronous_commit: 'on',
  lock_timeout: '10s',
  // Whoever stands still in the middle of a transaction keeps others from its rows for no longer than that.
  idle_in_transaction_session_timeout: '20s',
  // The locks of a machine that is gone without a word are free within half a minute.
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
};

/** 15 has `pg_checkpoint`, the right to ask for a checkpoint without being the superuser. */
const OLDEST_SERVER = 15;

function connectionOptions(url: string): pg.ClientConfig {
  // The client takes those of the URL in place of others.
  const { given, rest } = withoutOptions(url);
  const ours = Object.entries(SESSION).map(([name, value]) => `-c ${name}=${value.replaceAll(' ', String.raw`\ `)}`);
  return {
    connectionString: rest,
    application_name: 'epitaph',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    // The client's own limit: a server that is gone answers nothing, not even a timeout.
    query_timeout: STATEMENT_TIMEOUT_MS + 5_000,
    keepAlive: true,
    // Of two settings the later one counts.
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

/** Host, port and database of a URL: what may be shown. */
export function placeOf(url: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new UnusableServer('The PostgreSQL URL is not one; it looks like postgresql://user@host:5432/database.');
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

/** Of a server that takes no writes: another may have taken its place, which the next connection leads to. */
const READ_ONLY = '25006';

/**
 * A standby shows what there was a moment ago, keys that are destroyed since among it, and its locks are its own. A name may
 * lead to one for a while after another server has taken its place.
 *
 * @param besides what else the statement asks or sets
 * @returns the session on the server
 */
async function assertNoStandby(client: pg.ClientBase, besides = '1 AS one'): Promise<number> {
  const { rows } = await client.query<{ standby: boolean; session: number }>(
    `SELECT pg_is_in_recovery() AS standby, pg_backend_pid() AS session, ${besides}`,
  );
  if (rows[0]!.standby) throw Object.assign(new Error('the server is a standby'), { code: READ_ONLY });
  return rows[0]!.session;
}

/** Errors of the connection, of a server that starts or stops or is not ready for it, and of one that has no room, by class of SQLSTATE. */
const PASSING = /^(?:08|53|57P|58|55000|55P03|57014|25P03|25006)/;
/** Of a user or password that the server refuses, and of a database that is not there. */
const NOT_LET_IN = /^(?:28|3D000)/;
/** Of a user who lacks a right, which most start with. */
const NOT_GRANTED = '42501';
/** A table or schema that is not there: of read models that another node has put others in the place of, a moment ago or for a later version. */
const REPLACED = /^(?:42P01|3F000).*epitaph_items_v/;
/** A table or sequence of the vault that is not there: it may be left out of a dump, and a dump be put back in part. */
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
  // Who asks for something in a transaction, beside it, has it in our words already.
  if (!(error instanceof Error) || error instanceof StorageUnavailable) return error;
  const { code } = error as { code?: string };
  if (code === NOT_GRANTED) {
    const message = `PostgreSQL refuses the user what it needs: ${error.message}. Grant it; docs/servers.md says what.`;
    return new AccessRefused(message, { cause: error });
  }
  if (code !== undefined && NOT_LET_IN.test(code)) {
    return Object.assign(new AccessRefused(`PostgreSQL: ${error.message}`, { cause: error }), { code });
  }
  if (LEFT_OUT_OF_VAULT.test(`${code} ${error.message}`)) return new VaultNotWhole(error.message);
  const passing =
    code === undefined
      ? // The client library has no codes for what it notices itself.
        /Connection terminated|timeout exceeded|timeout expired|Client has encountered a connection error|not queryable|Query read timeout|after calling end on the pool/.test(
          error.message,
        )
      : SYSTEM_CODES.has(code) || PASSING.test(code) || REPLACED.test(`${code} ${error.message}`);
  if (!passing && !lostARace(error)) return error;
  return Object.assign(new StorageUnavailable(`PostgreSQL: ${error.message}`, { cause: error }), { code });
}
