import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { OpenLogElsewhere } from '@epitaph/storage/sqlite/data-folder.ts';
import { DEFAULT_DATA } from '../config/options.ts';
import { textFlag, type Command, type Invocation } from './command.ts';
import { clockOf, eventStoreOf, existingData } from './data-folder.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { Progress } from './progress.ts';
import { readText } from './read-text.ts';

export const keys: Command = {
  summary: 'Changes the master key, exports it for escrow, or checks a copy of it.',
  operands: 'rotate-master | export-master <file> | verify-master <file>',
  operandCounts: [1, 2],
  isLocal: true,
  flags: {
    data: {
      type: 'string',
      placeholder: '<folder>',
      description:
        'The data folder; EPITAPH_DATA, or data in the folder of the sources by default. For rotate-master the store must be stopped.',
    },
    postgres: {
      type: 'string',
      placeholder: '<postgresql://…>',
      description: 'For keys in PostgreSQL; EPITAPH_POSTGRES. All nodes must be stopped.',
    },
    'event-store': {
      type: 'string',
      placeholder: '<esdb://…>',
      description: 'With rotate-master, for a data folder whose event log is on a server; EPITAPH_EVENT_STORE.',
    },
  },
  notes:
    'If the store gets its master key from you, set EPITAPH_MASTER_KEY, and for a change also EPITAPH_NEW_MASTER_KEY. Life keys are never exported. For --data, verify-master also takes the vault part of a backup.',
  run: async (invocation) => {
    const [action, file] = invocation.operands;
    if (action === 'rotate-master' && file === undefined) return rotate(invocation);
    if (action === 'export-master' && file !== undefined) return exportMaster(invocation, file);
    if (action === 'verify-master' && file !== undefined) return verifyMaster(invocation, file);
    throw new UsageError('keys takes rotate-master, export-master <file> or verify-master <file>.');
  },
};

/** The PostgreSQL with the keys, unless a data folder is named. */
function postgresOf({ flags, environment }: Pick<Invocation, 'flags' | 'environment'>): string | undefined {
  if (textFlag(flags, 'postgres') !== undefined) return textFlag(flags, 'postgres');
  return textFlag(flags, 'data') === undefined ? environment['EPITAPH_POSTGRES'] : undefined;
}

async function rotatePostgres({ environment, json, print }: Invocation, url: string): Promise<number> {
  const { EPITAPH_MASTER_KEY: current, EPITAPH_NEW_MASTER_KEY: next } = environment;
  if (current === undefined || next === undefined) {
    throw new UsageError('Set EPITAPH_MASTER_KEY to the current master key and EPITAPH_NEW_MASTER_KEY to the new one.');
  }
  const { readMasterKey, SAME_KEY } = await import('@epitaph/storage/sqlite/master-key.ts');
  if (readMasterKey(current).equals(readMasterKey(next))) throw new UsageError(SAME_KEY);
  const { rotatePostgresMasterKey } = await import('@epitaph/storage/postgres/rotate-master-key.ts');
  const rewrapped = await rotatePostgresMasterKey({ url, current: readMasterKey(current), next: readMasterKey(next) });
  if (json) print(JSON.stringify({ rewrapped }));
  else {
    print(
      `Rewrapped the root of the keys and all secrets, ${rewrapped} in total. Start every node with the new master key.`,
    );
    print('Earlier copies of the keys still need the old master key. Put the new one into escrow now.');
  }
  return exitCodes.ok;
}

async function rotate(invocation: Invocation): Promise<number> {
  const postgres = postgresOf(invocation);
  if (postgres !== undefined) return rotatePostgres(invocation, postgres);
  const folder = dataOf(invocation);
  const { FACTS_FILE } = await import('@epitaph/storage/sqlite/data-folder.ts');
  // Opening the folder would turn it into a store. It may be the vault part of a backup.
  if (!existsSync(path.join(folder, FACTS_FILE))) {
    throw new UsageError(
      `There is no store in ${path.resolve(folder)} (it has no ${FACTS_FILE}). Copies of the keys keep the master key with which they were made.`,
    );
  }
  const logElsewhere = await logElsewhereOf(invocation, folder);
  try {
    return await rotateFolder(invocation, folder, logElsewhere);
  } finally {
    await logElsewhere?.log.close();
  }
}

async function rotateFolder(
  { environment, json, print, stderr }: Invocation,
  folder: string,
  logElsewhere: OpenLogElsewhere | undefined,
): Promise<number> {
  const { rotateMasterKey } = await import('@epitaph/storage/sqlite/master-key.ts');
  const { DataFolder } = await import('@epitaph/storage/sqlite/data-folder.ts');
  const opened = DataFolder.open(folder, await clockOf(folder), logElsewhere);
  const progress = new Progress(stderr, 'rotate');
  try {
    if (logElsewhere !== undefined) await opened.claim(logElsewhere, false);
    const rewrapped = await rotateMasterKey(opened, {
      current: environment['EPITAPH_MASTER_KEY'],
      next: environment['EPITAPH_NEW_MASTER_KEY'],
      log: logElsewhere?.log,
      onProgress: (done, total) => progress.update(done, total),
    });
    progress.end();
    if (json) print(JSON.stringify({ rewrapped }));
    else {
      print(`Rewrapped ${rewrapped} keys and secrets. The old master key opens nothing in ${folder} any more.`);
      print('Earlier backups of the keys still need the old master key. Export the new one for escrow now.');
      const kept = path.join(folder, 'master.key');
      if (environment['EPITAPH_MASTER_KEY'] !== undefined && existsSync(kept)) {
        print(
          `${kept} is not the current master key any more: remove that file, and keep giving the store its key in EPITAPH_MASTER_KEY.`,
        );
      }
    }
    return exitCodes.ok;
  } finally {
    opened.close();
  }
}

/** The event log of a folder whose log is on a server. */
async function logElsewhereOf(invocation: Invocation, folder: string): Promise<OpenLogElsewhere | undefined> {
  const connectionString = await eventStoreOf(invocation, folder);
  if (connectionString === undefined) return undefined;
  const { openLogElsewhere } = await import('@epitaph/storage/eventstoredb/open-event-store-log.ts');
  return openLogElsewhere(connectionString);
}

async function exportMaster(invocation: Invocation, file: string): Promise<number> {
  const { flags, environment, print } = invocation;
  if (postgresOf(invocation) !== undefined) {
    throw new UsageError(
      'With PostgreSQL, the master key is the one that you give to the nodes: put that into escrow.',
    );
  }
  const folder = dataOf({ flags, environment });
  const source = path.join(folder, 'master.key');
  const given = environment['EPITAPH_MASTER_KEY'];
  if (given === undefined && !existsSync(source)) {
    throw new UsageError(`${source} does not exist: this store gets its master key from you, in EPITAPH_MASTER_KEY.`);
  }
  const text = (given ?? readText(source)).trim();
  const { checkMasterKey, readMasterKey } = await import('@epitaph/storage/sqlite/master-key.ts');
  // Checks that the key opens the vault. Otherwise it might turn out only years later that the key in the safe
  // opens nothing.
  checkMasterKey(path.join(folder, 'vault.db'), readMasterKey(text));
  if (file === '-') print(text);
  else {
    try {
      writeFileSync(file, `${text}\n`, { mode: 0o600, flag: 'wx', flush: true });
    } catch (error) {
      throw new UsageError(
        `${file} can't be written: ${(error as Error).message}. An existing file is not overwritten.`,
      );
    }
    print(`The master key of ${folder} is in ${file}, readable by its owner only. It opens every key of this store.`);
  }
  return exitCodes.ok;
}

async function verifyMaster(invocation: Invocation, file: string): Promise<number> {
  const { flags, environment, print } = invocation;
  const postgres = postgresOf(invocation);
  if (postgres !== undefined) {
    const { readMasterKey } = await import('@epitaph/storage/sqlite/master-key.ts');
    const { checkPostgresMasterKey } = await import('@epitaph/storage/postgres/rotate-master-key.ts');
    await checkPostgresMasterKey(postgres, readMasterKey(readText(file)));
    print(`good: ${file} opens the keys in PostgreSQL.`);
    return exitCodes.ok;
  }
  const folder = dataOf({ flags, environment });
  const { checkMasterKey, readMasterKey } = await import('@epitaph/storage/sqlite/master-key.ts');
  checkMasterKey(path.join(folder, 'vault.db'), readMasterKey(readText(file)));
  print(`good: ${file} opens the keys in ${folder}.`);
  return exitCodes.ok;
}

function dataOf({ flags, environment }: Pick<Invocation, 'flags' | 'environment'>): string {
  return existingData(textFlag(flags, 'data') ?? environment['EPITAPH_DATA'] ?? DEFAULT_DATA);
}
