import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { OpenLogElsewhere } from '../sqlite/data-folder.ts';
import { Connection } from './connection.ts';
import { BadConnectionString, parseConnectionString } from './connection-string.ts';
import { EventStoreEventLog } from './event-store-event-log.ts';
import { tlsProblem } from './tls-problem.ts';

export interface EventStoreLogOptions {
  /** `esdb://…` or `kurrentdb://…`. */
  readonly connectionString: string;
  /** For how long a call is repeated while the server can't be reached, in milliseconds; 5,000 by default. */
  readonly patienceMs?: number;
}

const PATIENCE_MS = 5_000;

/**
 * Opens the event log on a server for a store with a data folder, with the facts that the folder needs.
 *
 * @throws {BadConnectionString | CredentialsRefused | StorageUnavailable} as {@link openEventStoreLog}
 */
export async function openLogElsewhere(connectionString: string): Promise<OpenLogElsewhere> {
  const log = await openEventStoreLog({ connectionString });
  try {
    return {
      log,
      id: await log.id(),
      name: log.nodes,
      isEmpty: (await log.head()) === 0,
      claim: (owner, takeOver) => log.claim(owner, takeOver),
    };
  } catch (error) {
    await log.close();
    throw error;
  }
}

/**
 * Opens the event log on an EventStoreDB or KurrentDB server. The server must be available.
 *
 * @throws {BadConnectionString} with a message for the operator: the string is invalid, or no connection can succeed with it
 * @throws {StorageUnavailable} with such a message, if the server may just not have started yet
 */
export async function openEventStoreLog(options: EventStoreLogOptions): Promise<EventStoreEventLog> {
  const target = parseConnectionString(options.connectionString);
  const connection = new Connection(target, options.patienceMs ?? PATIENCE_MS);
  const log = new EventStoreEventLog(connection);
  try {
    await log.head();
    return log;
  } catch (error) {
    await log.close();
    const mayPass = error instanceof StorageUnavailable && !error.isForOperator;
    const problem = mayPass ? await tlsProblem(target) : undefined;
    const message = `names ${connection.nodes}, but: ${problem ?? (error as Error).message}`;
    throw mayPass && problem === undefined
      ? new StorageUnavailable(`--event-store ${message}`, { cause: error })
      : new BadConnectionString(message);
  }
}
