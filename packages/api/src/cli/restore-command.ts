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
  summary: 'Creates a data folder from a backup, and erases in it what was erased since the backup.',
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
    ledger: { type: 'string', placeholder: '<file>', description: 'The newest copy of the purge ledger.' },
    'ledger-head': {
      type: 'string',
      placeholder: '<head or file>',
      description:
        'The head of the ledger, which you have kept apart from it: lines:hash, or a file with that. The ledger must reach at least this far.',
    },
    to: { type: 'string', placeholder: '<folder>', description: 'The new data folder.' },
    'master-key-file': {
      type: 'string',
      placeholder: '<file>',
      description:
        'File with the master key from escrow; the new folder keeps the key. Or give it in EPITAPH_MASTER_KEY.',
    },
    'allow-lapsed': {
      type: 'boolean',
      description: 'Restores even if the copy of the keys has lapsed, so that it should have been destroyed.',
    },
    'event-store': {
      type: 'string',
      placeholder: '<esdb://…>',
      description: 'Connection string of the event log, in place of --log; EPITAPH_EVENT_STORE.',
    },
    'resume-purge': {
      type: 'boolean',
      description:
        'At once erases what is due by the backup. By default the purge is paused, so that you can set lost holds and policies again.',
    },
    postgres: {
      type: 'string',
      placeholder: '<postgresql://…>',
      description: 'If the keys are in PostgreSQL and were restored there: makes keys and log match again.',
    },
    'vault-copies-kept': {
      type: 'string',
      placeholder: '<seconds>',
      description: 'With --postgres: the same value as the nodes have; EPITAPH_VAULT_COPIES_KEPT.',
    },
    'accept-lost': {
      type: 'boolean',
      description: 'With --event-store: accepts the loss of what was written after the copy of the keys was made.',
    },
  },
  isLocal: true,
  notes:
    "Exits with 1 if the restored store does not agree with its log. The store can't be started before the restore is complete.",
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
        'it says which keys are known to be destroyed. Give the one that epitaph ledger printed last, which you have kept apart from both servers.',
      ),
    ),
    masterKey: masterKeyOf(invocation).masterKey,
  });
}

async function restoreFolder(invocation: Invocation): Promise<number> {
  const { flags, json, print, stderr } = invocation;
  const needed = (name: string, why: string): string => neededFlag(flags, name, why);
  const log = logOf(invocation);
  const vault = needed('vault', 'the folder of the vault part. Without keys, nothing in the log can be read.');
  const ledger = needed('ledger', 'without the purge ledger, what was erased after the backup would come back.');
  const ledgerHead = ledgerHeadOf(
    needed(
      'ledger-head',
      'it shows whether the ledger is complete. Give the one that you have kept apart from the ledger; docs/backup-and-restore.md says how.',
    ),
  );
  const to = needed('to', 'the data folder to create.');
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
    print(
      `Ended, because their keys are gone but the log did not record that: ${counted(livesEnded, 'life', 'lives')}.`,
    );
    if (lost.length > 0) {
      print(
        `This includes what was written after the copy of the keys was made: ${counted(lost.length, 'key was', 'keys were')} lost.`,
      );
    }
    if (namesLost.length > 0) print(namesAreLost(namesLost.length));
  } else {
    print(
      'What was written after the backup is lost: change feeds start again from the beginning, and session tokens from that time are invalid.',
    );
  }
  if (pausesPurge) print(PURGE_PAUSED);
  if (!report.ok) print(`fsck found ${counted(report.problems.length, 'problem')}; --json lists them.`);
}

/** The log to restore with: the log part of a backup, or a log on a server. */
function logOf(invocation: Invocation): string | { readonly eventStore: string } {
  const { flags } = invocation;
  const part = textFlag(flags, 'log');
  if (part !== undefined && textFlag(flags, 'event-store') !== undefined) {
    throw new UsageError('--log and --event-store exclude each other: a log on a server is not part of a backup.');
  }
  const eventStore = part === undefined ? givenEventStore(invocation) : undefined;
  if (eventStore !== undefined) return { eventStore };
  const why = 'the folder of the log part of a backup. If the log is on a server, give --event-store instead.';
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
    'The master key is needed: backups do not contain it. Give the one from escrow, with --master-key-file or in EPITAPH_MASTER_KEY.',
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
      `--ledger-head ${text}: neither a file, nor a ledger head (lines:hash) as epitaph ledger prints it.`,
    );
  return head;
}
