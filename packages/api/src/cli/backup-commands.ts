import path from 'node:path';
import { isoTime } from '@epitaph/core/clock.ts';
import { formatLedgerHead, type LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { Answer } from './answer.ts';
import { secondsFlag, textFlag, type Command, type Invocation } from './command.ts';
import { clockOf, eventStoreOf, existingData } from './data-folder.ts';
import { exitCodes } from './exit-codes.ts';
import { follow } from './follow.ts';
import { Progress } from './progress.ts';

/** How long the copy of the keys is kept by default: a week. */
const VAULT_KEPT_SECONDS = 7 * 86_400;

type BackupAnswer = Omit<Answer<'takenBackup'>, 'takenAt' | 'takenAtMs' | 'vaultLapsesAtMs'>;

export const backup: Command = {
  summary:
    'Copies the log and the keys of a running store, or of a stopped one (--data). If the log is on a server, only the keys are copied.',
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
      description: 'The data folder of a stopped store to back up. Without it the running server backs up its own.',
    },
    'event-store': {
      type: 'string',
      placeholder: '<esdb://…>',
      description: 'With --data, for a folder whose event log is on a server; EPITAPH_EVENT_STORE.',
    },
    'purge-ledger': {
      type: 'string',
      placeholder: '<file>',
      description: 'The purge ledger, if it is not in the data folder; EPITAPH_PURGE_LEDGER.',
    },
  },
  notes:
    'A running server creates the folder below its --backup-folder. It contains log/ and vault/: store them apart. If the event log is on a server, it contains only vault/: back up the log with the tools of that server. Ctrl-C cancels.',
  run: async (invocation) => {
    const { flags, json, print, operands } = invocation;
    const vaultKeptSeconds = secondsFlag(flags, 'vault-kept') ?? VAULT_KEPT_SECONDS;
    const request = { folder: operands[0]!, vaultKeptSeconds };
    const taken =
      textFlag(flags, 'data') === undefined
        ? await follow<BackupAnswer>(invocation, { method: 'POST', path: '/backups', body: request, label: 'backup' })
        : await offline(invocation, request);
    if (json) print(JSON.stringify(taken));
    else printTaken(print, taken);
    return exitCodes.ok;
  },
};

function printTaken(print: Invocation['print'], taken: BackupAnswer): void {
  const log = taken.parts.includes('log')
    ? path.join(taken.folder, 'log')
    : 'none: back up the event log with the tools of its server';
  print(`Backup ${taken.id}: ${taken.bytes} bytes, up to position ${taken.logPosition} of the log.`);
  print(`  log    ${log}`);
  print(`  vault  ${path.join(taken.folder, 'vault')}: store it apart, and destroy it by ${taken.vaultLapsesAt}`);
  print(`  ledger head ${taken.ledgerHead}`);
}

interface Requested {
  readonly folder: string;
  readonly vaultKeptSeconds: number;
}

/** Backs up a stopped store: starts it for the duration of the backup, without a port and without its purge. */
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
    purgeLedger: textFlag(flags, 'purge-ledger') ?? environment['EPITAPH_PURGE_LEDGER'],
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
      parts: [...parts],
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

export const ledger: Command = {
  summary:
    'Prints the head of the ledger of destroyed keys: of the running server, or of a file, which is also checked.',
  operands: '[<file>]',
  operandCounts: [0, 1],
  flags: {},
  notes: 'Keep what it prints apart from the ledger: epitaph restore asks for it.',
  run: async ({ client, operands, json, print }) => {
    const [file] = operands;
    let head: string;
    if (file === undefined) ({ head } = await client.call<Answer<'ledgerHead'>>('GET', '/purge-ledger'));
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
