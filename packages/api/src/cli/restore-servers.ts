import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { formatLedgerHead, type LedgerEntry, type LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import { systemClocks } from '@epitaph/core/clock.ts';
import { UnreadableEvent, WHEN_DAMAGED } from '@epitaph/core/upcast.ts';
import { Destructions } from '@epitaph/projections/purge/destructions.ts';
import { GcmBodySealer } from '@epitaph/storage/crypto/gcm-body-sealer.ts';
import { UnusableServer } from '@epitaph/storage/postgres/database.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import {
  finishRestoredVault,
  prepareRestoredVault,
  type RestoredVault,
} from '@epitaph/storage/postgres/restored-vault.ts';
import { readMasterKey } from '@epitaph/storage/sqlite/master-key.ts';
import { openEmbeddedStore } from '../compose.ts';
import { type Invocation, secondsFlag, textFlag, wholeSeconds } from './command.ts';
import { counted } from './counted.ts';
import { exitCodes, UsageError } from './exit-codes.ts';
import { Progress } from './progress.ts';
import { namesAreLost, PURGE_PAUSED } from './restored-words.ts';

/** The default for nodes. No policy changes while this runs. */
const POLICY_DELAY_MS = 4_000;

/**
 * Makes a log and keys that were restored on their servers agree. Destroys again what the log records as erased, ends
 * lives that are live in the log but whose key is destroyed, and checks everything. No node opens log and keys before
 * that is done.
 */
export async function restoreServers(invocation: Invocation, servers: RestoredServers): Promise<number> {
  try {
    return await makeGoTogether(invocation, servers);
  } catch (error) {
    if (!(error instanceof UnreadableEvent)) throw error;
    const fault = error.message.replace(` ${WHEN_DAMAGED}`, '');
    throw new UnusableServer(
      `The restore failed, because the event log can't be read: ${fault} No node can start before a restore has succeeded. An older copy of the log may be undamaged: restore that, and run this command again.`,
      { cause: error },
    );
  }
}

interface RestoredServers {
  readonly postgres: string;
  readonly ledgerHead: LedgerHead;
  readonly masterKey: string;
}

async function makeGoTogether(
  { flags, environment, json, print, stderr }: Invocation,
  { postgres: url, ledgerHead, masterKey }: RestoredServers,
): Promise<number> {
  const eventStore = textFlag(flags, 'event-store') ?? environment['EPITAPH_EVENT_STORE'];
  if (eventStore === undefined)
    throw new UsageError('--event-store is needed: the log records which keys were destroyed.');
  const copiesKeptSeconds =
    secondsFlag(flags, 'vault-copies-kept') ??
    wholeSeconds(environment['EPITAPH_VAULT_COPIES_KEPT'], 'EPITAPH_VAULT_COPIES_KEPT');
  const pausesPurge = flags['resume-purge'] !== true;
  const progress = new Progress(stderr, 'restore');
  const onProgress = (what: string, done: number, total: number) => progress.update(done, total, what);

  const log = await openEventStoreLog({ connectionString: eventStore });
  let restored: RestoredVault;
  let logPosition: number;
  try {
    const destructions = new Destructions(log, new GcmBodySealer());
    restored = await prepareRestoredVault({
      url,
      master: readMasterKey(masterKey),
      copiesKeptSeconds,
      log,
      logId: await log.id(),
      recordedDestructions: await destructions.recorded(),
      logReachesHead: await destructions.reaches(ledgerHead),
      notedDestructions: ledgerHead.lines,
      acceptLost: flags['accept-lost'] === true,
      onProgress,
    });
    logPosition = await log.head();
  } finally {
    await log.close();
  }

  // A temporary node: its clock's mark and its tree of proofs are made again wherever they are missing.
  const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-restore-'));
  let livesEnded: number;
  let report: { readonly ok: boolean; readonly items: number; readonly problems: readonly unknown[] };
  try {
    const store = await openEmbeddedStore({
      folder,
      clock: 'system',
      masterKey,
      eventStore,
      restoring: true,
      onLoss: (what) => void stderr.write(`epitaph: ${what}\n`),
      automaticPurge: false,
      // No requests are served, so the purge need not leave request units to users.
      serverless: true,
      shared: {
        url,
        copiesKeptSeconds,
        restoring: true,
        roles: new Set(['project', 'purge']),
        policyDelayMs: POLICY_DELAY_MS,
      },
    });
    try {
      livesEnded = await store.settleRestored({
        logBackupId: 'event-store',
        vaultBackupId: 'postgresql',
        logPosition,
        ledgerHead: formatLedgerHead(ledgerHead),
        ledger: () => ledgerOf(restored),
        lost: restored.lost,
        namesLost: restored.namesLost,
        unfinished: restored.unfinished,
        pausesPurge,
      });
      report = await store.fsck((done, total) => onProgress('fsck', done, total));
    } finally {
      await store.close();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  await finishRestoredVault(url);
  progress.end();

  const { keysDestroyed } = restored;
  const keysLost = restored.lost.length;
  const containersOfLostNames = restored.namesLost.length;
  if (json) {
    const { items, problems } = report;
    const gone = { keysDestroyed, keysLost, containersOfLostNames, livesEnded };
    print(JSON.stringify({ ...gone, purgePaused: pausesPurge, items, problems }));
  } else {
    print(`Log and keys match again: ${counted(report.items, 'item')}.`);
    print(
      `Erased again: ${counted(keysDestroyed, 'life', 'lives')} whose keys are in the copy, but are destroyed according to the log.`,
    );
    print(
      `Ended, because their keys are gone but the log did not record that: ${counted(livesEnded, 'life', 'lives')}.`,
    );
    if (keysLost > 0)
      print(
        `This includes what was written after the copy of the keys was made: ${counted(keysLost, 'key was', 'keys were')} lost.`,
      );
    if (containersOfLostNames > 0) print(namesAreLost(containersOfLostNames));
    if (pausesPurge) print(PURGE_PAUSED);
    if (!report.ok) print(`fsck found ${counted(report.problems.length, 'problem')}; --json lists them.`);
  }
  return report.ok ? exitCodes.ok : exitCodes.problem;
}

async function* ledgerOf({ unrecorded }: RestoredVault): AsyncGenerator<LedgerEntry> {
  yield { atMs: systemClocks.wallMs(), keys: unrecorded };
}
