import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { isoTime, systemClocks } from '@epitaph/core/clock.ts';
import { type LedgerHead, parseLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { textFlag, type Command, type FlagValues, type Invocation } from './command.ts';
import { givenEventStore } from './data-folder.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { Progress } from './progress.ts';
import { readText } from './read-text.ts';
import { namesAreLost, PURGE_PAUSED } from './restored-words.ts';
import type { RestoredStore } from './restore-store.ts';

export const restore: Command = {
  summary: 'Makes a data folder from a backup, and erases in it again what was erased since the backup.',
  operands: '',
  operandCounts: [0, 0],
  flags: {
    log: {
      type: 'string',
      placeholder: '<folder>',
      description: 'The log part of a backup. Leave it out if the event log is on a server (--event-store).',
    },
    vault: {
      type: 'string',
      placeholder: '<folder>',
      description: 'The vault part of the same backup, or of a later one.',
    },
    ledger: { type: 'string', placeholder: '<file>', description: 'The purge ledger, the newest copy that there is.' },
    'ledger-head': {
      type: 'string',
      placeholder: '<head or file>',
      description:
        'The ledger’s head that was kept apart from it: lines:hash, or a file with that. The ledger must go at least that far.',
    },
    to: { type: 'string', placeholder: '<folder>', description: 'The new data folder.' },
    'master-key-file': {
      type: 'string',
      placeholder: '<file>',
      description: 'The master key from escrow, which the new folder then keeps; or give it in EPITAPH_MASTER_KEY.',
    },
    'allow-lapsed': {
      type: 'boolean',
      description: 'Restores although the copy of the keys has lapsed and should be destroyed by now.',
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
        'For keys in PostgreSQL that were put back there, instead of a folder: makes keys and log go together again.',
    },
    'vault-copies-kept': {
      type: 'string',
      placeholder: '<seconds>',
      description: 'With --postgres: the same as the nodes are given; EPITAPH_VAULT_COPIES_KEPT.',
    },
    'accept-lost': {
      type: 'boolean',
      description: 'With --event-store: gives up what was written after the copy of the keys was made.',
    },
  },
  isLocal: true,
  notes:
    'Ends with 1 if the restored store does not agree with its log. Nothing is served before everything is applied.',
  run: async (invocation) => {
    const postgres = textFlag(invocation.flags, 'postgres');
    return postgres === undefined ? restoreFolder(invocation) : restorePostgres(invocation, postgres);
  },
};

/** The keys and the log are already restored on their servers. This only makes them agree. */
async function restorePostgres(invocation: Invocation, postgres: string): Promise<number> {
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

async function restoreFolder(invocation: Invocation): Promise<number> {
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
  const folder = path.resolve(to);
  const onServer = typeof log !== 'string';
  if (json) print(JSON.stringify(answerOf(restored, { folder, onServer, pausesPurge })));
  else printRestored(print, restored, { folder, onServer, pausesPurge });
  return restored.report.ok ? exitCodes.ok : exitCodes.problem;
}

/** What the output of a restore depends on. */
interface Restoring {
  readonly folder: string;
  /** True if the event log is on a server and not part of the backup. */
  readonly onServer: boolean;
  readonly pausesPurge: boolean;
}

function answerOf(restored: RestoredStore, { folder, onServer, pausesPurge }: Restoring): object {
  const { logPosition, takenAtMs, keysDestroyed, livesEnded, lost, namesLost, report } = restored;
  return {
    folder,
    logPosition,
    backedUpAt: isoTime(takenAtMs),
    keysDestroyed,
    ...(onServer ? { keysLost: lost.length, containersOfLostNames: namesLost.length } : {}),
    livesEnded,
    purgePaused: pausesPurge,
    items: report.items,
    problems: report.problems,
  };
}

function printRestored(
  print: Invocation['print'],
  { takenAtMs, keysDestroyed, livesEnded, lost, namesLost, report }: RestoredStore,
  { folder, onServer, pausesPurge }: Restoring,
): void {
  const backedUpAt = isoTime(takenAtMs);
  const asOf = onServer ? `with the keys of ${backedUpAt}` : `as of ${backedUpAt}`;
  print(`Restored into ${folder}: ${counted(report.items, 'item')}, ${asOf}.`);
  print(`Erased again: ${counted(keysDestroyed, 'life', 'lives')} whose keys were destroyed after the backup.`);
  if (onServer) {
    print(`Ended, because their keys are gone and the log did not say so: ${counted(livesEnded, 'life', 'lives')}.`);
    if (lost.length > 0) {
      print(
        `Among them is what was written after the copy of the keys: ${counted(lost.length, 'key was', 'keys were')} lost.`,
      );
    }
    if (namesLost.length > 0) print(namesAreLost(namesLost.length));
  } else {
    print('What was written after the backup is lost: change feeds begin anew, and session tokens from then are void.');
  }
  if (pausesPurge) print(PURGE_PAUSED);
  if (!report.ok) print(`fsck found ${counted(report.problems.length, 'problem')}; --json lists them.`);
}

/** The log to restore with: the log part of a backup, or a log on a server. */
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
