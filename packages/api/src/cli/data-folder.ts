import { existsSync } from 'node:fs';
import path from 'node:path';
import { type Invocation, textFlag } from './command.ts';
import { UsageError } from './exit-codes.ts';

/** Checks that a folder has a store. Opening creates a missing folder, which a mistyped name must not do. */
export function existingData(folder: string): string {
  if (!existsSync(path.join(folder, 'vault.db'))) {
    throw new UsageError(
      `There is no key vault in ${path.resolve(folder)} that this user can read. Name the data folder with --data.`,
    );
  }
  return folder;
}

/** The clock that a folder was created with; the system's if the folder does not say. */
export async function clockOf(folder: string): Promise<'system' | 'manual'> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.clock ?? 'system';
}

/** The server with the event log of a folder, if its log is on a server and the server was named. */
export async function eventStoreOf(invocation: Invocation, folder: string): Promise<string | undefined> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.log === undefined ? undefined : givenEventStore(invocation);
}

/** The server with the event log, if one was named. */
export const givenEventStore = ({ flags, environment }: Invocation): string | undefined =>
  textFlag(flags, 'event-store') ?? environment['EPITAPH_EVENT_STORE'];
