import { statSync, existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isoTime, systemClocks } from '@epitaph/core/clock.ts';
import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { formatLedgerHead, parseLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { OpenLogElsewhere } from '@epitaph/storage/sqlite/data-folder.ts';
import { secondsFlag, textFlag, type Command, type Flags, type FlagValues, type Invocation } from './command.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { follow } from './follow.ts';
import { Progress } from './progress.ts';
import { PURGE_PAUSED } from './purge-paused.ts';
import { readText } from './read-text.ts';

/** How long the copy of the keys is kept when nothing else is said: a week. */
const VAULT_KEPT_SECONDS = 7 * 86_400;

const dataFlag: Flags = {
  data: {
    type: 'string',
    placeholder: '<folder>',
    description: 'The data folder; EPITAPH_DATA, or ./data by default. For rotate-master the store must be stopped.',
  },
};

const ledgerFlag: Flags = {
  'purge-ledger': {
    type: 'string',
    placeholder: '<file>',
    description: 'The purge ledger where it is not in the data folder; EPITAPH_PURGE_LEDGER.',
  },
};

interface BackupAnswer {
  readonly id: string;
  readonly folder: string;
  readonly parts: readonly ('log' | 'vault')[];
  readonly vaultLapsesAt: string;
  readonly bytes: number;
  readonly logPosition: number;
  readonly ledgerHead: string;
}

export const backup: Command = {
  summary:
    'Copies the log and the keys of a running store, or of a stopped one (--data); the keys, where the log is on a server.',
  operands: '<folder>',
  operandCounts: [1, 1],
  flags: {
    'vault-kept': {
      type: 'string',
      placeholder: '<seconds>',
      description: `How long the copy of the keys is kept; ${VAULT_KEPT_SECONDS} (a week) by default.`,
    },
    data: {
      type: 'string',
      placeholder: '<folder>',
      description:
        'Backs this data folder up, of a store that is stopped; without it the running server backs its own up.',
    },
    'event-store': {
      type: 'string',
      placeholder: '<esdb://…>',
      description: 'With --data, for a folder whose event log is on a server; EPITAPH_EVENT_STORE.',
    },
    ...ledgerFlag,
  },
  notes:
    'A running server takes the folder below its --backup-folder. In it are log/ and vault/, which are to be stored apart; vault/ alone where the event log is on a server, which is backed up by its own tools. Ctrl-C cancels.',
  run: async (invocation) => {
    const { flags, json, print, operands } = invocation;
    const vaultKeptSeconds = secondsFlag(flags, 'vault-kept') ?? VAULT_KEPT_SECONDS;
    const request = { folder: operands[0]!, vaultKeptSeconds };
    const taken =
      textFlag(flags, 'data') === undefined
        ? await follow<BackupAnswer>(invocation, { method: 'POST', path: '/backups', body: request, label: 'backup' })
        : await offline(invocation, request);
    if (json) print(JSON.stringify(taken));
    else {
      print(`Backup ${taken.id}: ${taken.bytes} bytes, up to position ${taken.logPosition} of the log.`);
      const hasLog = taken.parts.includes('log');
      print(
        `  log    ${hasLog ? path.join(taken.folder, 'log') : 'none: back the event log up by the tools of its server'}`,
      );
      print(`  vault  ${path.join(taken.folder, 'vault')}: store it apart, and destroy it by ${taken.vaultLapsesAt}`);
      print(`  ledger head ${taken.ledgerHead}`);
    }
    return exitCodes.ok;
  },
};

interface Requested {
  readonly folder: string;
  readonly vaultKeptSeconds: number;
}

/** A stopped store is started for as long as it takes, without a port and without its purge. */
async function offline(invocation: Invocation, request: Requested): Promise<BackupAnswer> {
  const { flags, environment, stderr } = invocation;
  const folder = existingData(textFlag(flags, 'data')!);
  const { openEmbeddedStore } = await import('../compose.ts');
  const eventStore = await eventStoreOf(invocation, folder);
  const store = await openEmbeddedStore({
    folder,
    clock: await clockOf(folder),
    eventStore,
    logMayBeOlder: eventStore !== undefined,
    masterKey: environment['EPITAPH_MASTER_KEY'],
    purgeLedger: ledgerOf(invocation),
    automaticPurge: false,
    backupsInto: 'anywhere',
  });
  const progress = new Progress(stderr, 'backup');
  const cancel = new AbortController();
  const onSignal = () => cancel.abort();
  process.once('SIGINT', onSignal);
  try {
    const taken = await store.backup({ actor: 'command-line', correlationId: crypto.randomUUID() }, request, {
      signal: cancel.signal,
      onProgress: ({ phase, done, total }) => progress.update(done, total, phase),
    });
    const { id, folder: target, parts, bytes, logPosition, ledgerHead, vaultLapsesAtMs } = taken;
    return {
      id,
      folder: target,
      parts,
      bytes,
      logPosition,
      ledgerHead: formatLedgerHead(ledgerHead),
      vaultLapsesAt: isoTime(vaultLapsesAtMs),
    };
  } finally {
    process.off('SIGINT', onSignal);
    progress.end();
    await store.close();
  }
}

export const restore: Command = {
  summary: 'Makes a data folder from a backup, and erases in it again what was erased since.',
  operands: '',
  operandCounts: [0, 0],
  flags: {
    log: {
      type: 'string',
      placeholder: '<folder>',
      description: 'The log part of a backup; none where the event log is on a server (--event-store).',
    },
    vault: {
      type: 'string',
      placeholder: '<folder>',
      description: 'The vault part of the same backup, or of a later one.',
    },
    ledger: { type: 'string', placeholder: '<file>', description: 'The purge ledger as it was last.' },
    'ledger-head': {
      type: 'string',
      placeholder: '<head or file>',
      description: 'How far the ledger must go at least, as kept apart from it: lines:hash, or a file with that.',
    },
    to: { type: 'string', placeholder: '<folder>', description: 'The new data folder.' },
    'master-key-file': {
      type: 'string',
      placeholder: '<file>',
      description: 'The master key from escrow, which the new folder then keeps; or give it in EPITAPH_MASTER_KEY.',
    },
    'allow-lapsed': {
      type: 'boolean',
      description: 'Restores from a copy of the keys that should be destroyed by now.',
    },
    'event-store': {
      type: 'string',
      placeholder: '<esdb://…>',
      description: 'Where the event log is, in place of --log; EPITAPH_EVENT_STORE.',
    },
    'resume-purge': {
      type: 'boolean',
      description:
        'Erases what is due by the backup at once. By default the purge is paused, so that holds and policies that were lost can be set again.',
    },
    postgres: {
      type: 'string',
      placeholder: '<postgresql://…>',
      description:
        'Settles keys in PostgreSQL that were put back, instead of a folder: makes them go with the log again.',
    },
    'vault-copies-kept': {
      type: 'string',
      placeholder: '<seconds>',
      description: 'With --postgres: as nodes are given it; EPITAPH_VAULT_COPIES_KEPT.',
    },
    'accept-lost': {
      type: 'boolean',
      description: 'With --event-store: gives up what was written after the copy of the keys was made.',
    },
  },
  isLocal: true,
  notes: 'Ends with 1 when the restored store does not agree with its log; nothing is served before all is applied.',
  run: async (invocation) => {
    const postgres = textFlag(invocation.flags, 'postgres');
    if (postgres !== undefined) {
      const { restoreServers } = await import('./restore-servers.ts');
      return restoreServers(invocation, {
        postgres,
        ledgerHead: ledgerHeadOf(
          neededFlag(
            invocation.flags,
            'ledger-head',
            'it says how far what is on record of destroyed keys went. Take the one that epitaph ledger printed last, kept apart from both servers.',
          ),
        ),
        masterKey: masterKeyOf(invocation).masterKey,
      });
    }
    const { flags, json, print, stderr } = invocation;
    const needed = (name: string, why: string): string => neededFlag(flags, name, why);
    const log = logOf(invocation);
    const vault = needed('vault', 'the folder of the vault part; without keys nothing of the log can be read.');
    const ledger = needed('ledger', 'without the purge ledger, what was erased after the backup would come back.');
    const ledgerHead = ledgerHeadOf(
      needed(
        'ledger-head',
        'it says that the ledger is whole. Take the one that was kept apart from the ledger; docs/backup-and-restore.md says how.',
      ),
    );
    const to = needed('to', 'the data folder to make.');
    const master = masterKeyOf(invocation);
    const { restoreStore } = await import('./restore-store.ts');
    const progress = new Progress(stderr, 'restore');
    const pausesPurge = flags['resume-purge'] !== true;
    const restored = await restoreStore({
      log,
      vault,
      ledger,
      ledgerHead,
      to,
      ...master,
      nowMs: systemClocks.wallMs(),
      allowLapsed: flags['allow-lapsed'] === true,
      acceptLost: flags['accept-lost'] === true,
      pausesPurge,
      onProgress: (what, done, total) => progress.update(done, total, what),
    });
    progress.end();
    const { keysDestroyed, livesEnded, report } = restored;
    const onServer = typeof log !== 'string';
    const keysLost = restored.lost.length;
    const answer = {
      folder: path.resolve(to),
      logPosition: restored.logPosition,
      backedUpAt: isoTime(restored.takenAtMs),
      keysDestroyed,
      ...(onServer ? { keysLost, containersOfLostNames: restored.namesLost.length } : {}),
      livesEnded,
      purgePaused: pausesPurge,
      items: report.items,
      problems: report.problems,
    };
    if (json) print(JSON.stringify(answer));
    else {
      const asOf = onServer ? `with the keys of ${answer.backedUpAt}` : `as of ${answer.backedUpAt}`;
      print(`Restored into ${answer.folder}: ${report.items} items, ${asOf}.`);
      print(`Erased again: ${keysDestroyed} lives whose keys were destroyed after the backup.`);
      if (onServer) {
        print(`Ended, because their keys are gone and the log did not say so: ${livesEnded} lives.`);
        if (keysLost > 0) {
          print(`Among them is what was written after the copy of the keys: ${keysLost} keys were lost.`);
        }
        if (restored.namesLost.length > 0) {
          print(
            `Containers whose names were lost with the keys: ${restored.namesLost.length}. What was written to them since can't be looked up by its id any more.`,
          );
        }
      } else {
        print(
          'What was written after the backup is lost: change feeds begin anew, and session tokens from then are void.',
        );
      }
      if (pausesPurge) print(PURGE_PAUSED);
      if (!report.ok) print(`fsck found ${report.problems.length} problems; --json has them.`);
    }
    return report.ok ? exitCodes.ok : exitCodes.problem;
  },
};

export const ledger: Command = {
  summary: 'Where the ledger of destroyed keys ends: of the running server, or of a file, which is checked.',
  operands: '[<file>]',
  operandCounts: [0, 1],
  flags: {},
  notes: 'Keep what it prints apart from the ledger: epitaph restore asks for it.',
  run: async ({ client, operands, json, print }) => {
    const [file] = operands;
    let head: string;
    if (file === undefined) ({ head } = await client.call<{ readonly head: string }>('GET', '/purge-ledger'));
    else {
      const { readPurgeLedger } = await import('@epitaph/storage/sqlite/purge-ledger.ts');
      let last: LedgerHead | undefined;
      for await (const line of readPurgeLedger(file)) last = line.head;
      head = formatLedgerHead(last!);
    }
    print(json ? JSON.stringify({ head }) : head);
    return exitCodes.ok;
  },
};

export const keys: Command = {
  summary: 'The master key: change it, put it into escrow, check one against the keys.',
  operands: 'rotate-master | export-master <file> | verify-master <file>',
  operandCounts: [1, 2],
  isLocal: true,
  flags: {
    ...dataFlag,
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
    'A master key that is given is EPITAPH_MASTER_KEY, and the one to come EPITAPH_NEW_MASTER_KEY. Life keys are never exported. verify-master takes the vault part of a backup for --data too.',
  run: async (invocation) => {
    const [action, file] = invocation.operands;
    if (action === 'rotate-master' && file === undefined) return rotate(invocation);
    if (action === 'export-master' && file !== undefined) return exportMaster(invocation, file);
    if (action === 'verify-master' && file !== undefined) return verifyMaster(invocation, file);
    throw new UsageError('keys takes rotate-master, export-master <file> or verify-master <file>.');
  },
};

/** Where the keys are in PostgreSQL: unless a data folder is named. */
function postgresOf({ flags, environment }: Pick<Invocation, 'flags' | 'environment'>): string | undefined {
  if (textFlag(flags, 'postgres') !== undefined) return textFlag(flags, 'postgres');
  return textFlag(flags, 'data') === undefined ? environment['EPITAPH_POSTGRES'] : undefined;
}

async function rotatePostgres({ environment, json, print }: Invocation, url: string): Promise<number> {
  const { EPITAPH_MASTER_KEY: current, EPITAPH_NEW_MASTER_KEY: next } = environment;
  if (current === undefined || next === undefined) {
    throw new UsageError(
      'Give the master key in force in EPITAPH_MASTER_KEY and the new one in EPITAPH_NEW_MASTER_KEY.',
    );
  }
  const { readMasterKey, SAME_KEY } = await import('@epitaph/storage/sqlite/master-key.ts');
  if (readMasterKey(current).equals(readMasterKey(next))) throw new UsageError(SAME_KEY);
  const { rotatePostgresMasterKey } = await import('@epitaph/storage/postgres/rotate-master-key.ts');
  const rewrapped = await rotatePostgresMasterKey({ url, current: readMasterKey(current), next: readMasterKey(next) });
  if (json) print(JSON.stringify({ rewrapped }));
  else {
    print(
      `Wrapped anew: the root of the keys and all secrets, ${rewrapped} in all. Start every node with the new master key.`,
    );
    print('Copies of the keys from before still need the old one. Put the new one into escrow now.');
  }
  return exitCodes.ok;
}

async function rotate(invocation: Invocation): Promise<number> {
  const postgres = postgresOf(invocation);
  if (postgres !== undefined) return rotatePostgres(invocation, postgres);
  const folder = dataOf(invocation);
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
      print(`Wrapped anew: ${rewrapped} keys and secrets. The old master key opens nothing in ${folder} any more.`);
      print('Backups of the keys from before still need the old one. Export the new one for escrow now.');
      const kept = path.join(folder, 'master.key');
      if (environment['EPITAPH_MASTER_KEY'] !== undefined && existsSync(kept)) {
        print(`${kept} is not the one in force any more: remove it, and go on giving the store its key.`);
      }
    }
    return exitCodes.ok;
  } finally {
    opened.close();
  }
}

/** Where the event log is of a folder that has it on a server, if that was said. */
async function eventStoreOf(invocation: Invocation, folder: string): Promise<string | undefined> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.log === undefined ? undefined : givenEventStore(invocation);
}

const givenEventStore = ({ flags, environment }: Invocation): string | undefined =>
  textFlag(flags, 'event-store') ?? environment['EPITAPH_EVENT_STORE'];

/** What a store is restored with: the log part of a backup, or else a log on a server. */
function logOf(invocation: Invocation): string | { readonly eventStore: string } {
  const { flags } = invocation;
  const part = textFlag(flags, 'log');
  if (part !== undefined && textFlag(flags, 'event-store') !== undefined) {
    throw new UsageError(
      '--log and --event-store exclude each other: a log that is on a server is no part of a backup.',
    );
  }
  const eventStore = part === undefined ? givenEventStore(invocation) : undefined;
  if (eventStore !== undefined) return { eventStore };
  const why = 'the folder of the log part of a backup; --event-store instead, for a log that is on a server.';
  return neededFlag(flags, 'log', why);
}

/** The event log of a folder that has it on a server. */
async function logElsewhereOf(invocation: Invocation, folder: string): Promise<OpenLogElsewhere | undefined> {
  const connectionString = await eventStoreOf(invocation, folder);
  if (connectionString === undefined) return undefined;
  const { openLogElsewhere } = await import('@epitaph/storage/eventstoredb/open-event-store-log.ts');
  return openLogElsewhere(connectionString);
}

async function exportMaster(invocation: Invocation, file: string): Promise<number> {
  const { flags, environment, print } = invocation;
  if (postgresOf(invocation) !== undefined) {
    throw new UsageError('The master key of keys in PostgreSQL is the one given to the nodes: put that into escrow.');
  }
  const folder = dataOf({ flags, environment });
  const source = path.join(folder, 'master.key');
  const given = environment['EPITAPH_MASTER_KEY'];
  if (given === undefined && !existsSync(source)) {
    throw new UsageError(`${source} is not there: the master key of this store is given to it, in EPITAPH_MASTER_KEY.`);
  }
  const text = (given ?? readText(source)).trim();
  const { checkMasterKey, readMasterKey } = await import('@epitaph/storage/sqlite/master-key.ts');
  // Nobody should find out years later that what lies in the safe opens nothing.
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
    print(`The master key of ${folder} is in ${file}, for its owner alone. It opens every key of this store.`);
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

function masterKeyOf({ flags, environment }: Invocation): {
  readonly masterKey: string;
  readonly keepMasterKey: boolean;
} {
  const file = textFlag(flags, 'master-key-file');
  const given = environment['EPITAPH_MASTER_KEY'];
  if (file !== undefined) return { masterKey: readText(file).trim(), keepMasterKey: true };
  if (given !== undefined) return { masterKey: given, keepMasterKey: false };
  throw new UsageError(
    'The master key is needed: no backup has it. Give it from escrow, by --master-key-file or in EPITAPH_MASTER_KEY.',
  );
}

function neededFlag(flags: FlagValues, name: string, why: string): string {
  const value = textFlag(flags, name);
  if (value === undefined) throw new UsageError(`--${name} is needed: ${why}`);
  return value;
}

function ledgerHeadOf(text: string): LedgerHead {
  const head = parseLedgerHead(existsSync(text) && statSync(text).isFile() ? readText(text) : text);
  if (head === undefined)
    throw new UsageError(
      `--ledger-head ${text}: neither a file, nor a number of lines and a hash as epitaph ledger prints them.`,
    );
  return head;
}

function ledgerOf({ flags, environment }: Invocation): string | undefined {
  return textFlag(flags, 'purge-ledger') ?? environment['EPITAPH_PURGE_LEDGER'];
}

function dataOf({ flags, environment }: Pick<Invocation, 'flags' | 'environment'>): string {
  return existingData(textFlag(flags, 'data') ?? environment['EPITAPH_DATA'] ?? './data');
}

/** Opening a folder makes it; a mistyped name must not. */
function existingData(folder: string): string {
  if (!existsSync(path.join(folder, 'vault.db'))) {
    throw new UsageError(
      `There is no key vault in ${path.resolve(folder)} that this user can see. Name the data folder with --data.`,
    );
  }
  return folder;
}

async function clockOf(folder: string): Promise<'system' | 'manual'> {
  const { readFacts } = await import('@epitaph/storage/sqlite/data-folder.ts');
  return readFacts(folder)?.clock ?? 'system';
}
