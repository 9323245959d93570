import { existsSync } from 'node:fs';
import path from 'node:path';
import { type Invocation, textFlag } from './command.ts';
import { UsageError } from './exit-codes.ts';

/** Opening a folder makes it; a mistyped name must not. */
export function existingData(folder: string): string {
  if (!existsSync(path.join(folder, 'vault.db'))) {
    throw new UsageError(
      `There is no key vault in ${path.resolve(folder)} that this user can see. Name the data folder with --data.`,
    );
  }
  return folder;
}

/** The clock that a folder was made with; the system's where it does not say. */
export async function clockOf(folder: string): Promise<'system' | 'manual'> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.clock ?? 'system';
}

/** Where the event log is of a folder that has it on a server, if that was said. */
export async function eventStoreOf(invocation: Invocation, folder: string): Promise<string | undefined> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.log === undefined ? undefined : givenEventStore(invocation);
}

/** The event log's server, if one was named. */
export const givenEventStore = ({ flags, environment }: Invocation): string | undefined =>
  textFlag(flags, 'event-store') ?? environment['EPITAPH_EVENT_STORE'];
