import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type EventOf, parseEvent, unlessDamaged, UnreadableEvent, versionsOf } from '@epitaph/core/upcast.ts';
import { z } from 'zod';

export const BACKUPS_STREAM = 'backups';

/** How long a backup's copy of the keys may be kept at most, in seconds: ten years. */
export const LONGEST_VAULT_KEPT_SECONDS = 10 * 366 * 86_400;

const started = z.object({
  backupId: z.string(),
  /** When the copy of the keys must be gone, in milliseconds. Until then it can open what is purged in the meantime. */
  vaultLapsesAtMs: z.int(),
});
const completed = z.object({
  backupId: z.string(),
  /** Position of the last event that is in the copy of the log. */
  logPosition: z.int(),
  bytes: z.int(),
});
const failed = z.object({ backupId: z.string(), why: z.enum(['failed', 'cancelled']) });
const restored = z.object({
  /** The backups that the log and the keys were restored from. */
  logBackupId: z.string(),
  vaultBackupId: z.string(),
  /** Position of the last event in the backup. Events after it are lost. */
  logPosition: z.int(),
  /** Where the purge ledger that was applied ended. */
  ledgerHead: z.string(),
  /** How many lives were live in the backup although their content had been erased since. */
  livesEnded: z.int(),
  /** Containers whose secret is lost, so that nobody can tell which items their streams up to this position belong to. */
  namesLost: z.array(z.string()).optional(),
});

const schemas = { BackupStarted: started, BackupCompleted: completed, BackupFailed: failed, StoreRestored: restored };
const versions = versionsOf(schemas);
type BackupEvent = EventOf<typeof schemas>;

/** @throws {UnreadableEvent} */
export const readBackupEvent = (event: RecordedEvent): BackupEvent => parseEvent(event, schemas, versions);

/** The record of a restore in the log, and the position up to which the log continues the former one. */
export interface RecordedRestore {
  readonly recorded: RecordedEvent;
  readonly logPosition: number;
  readonly namesLost: readonly string[];
}

/** All restores that can be read, oldest first. */
export async function readableRestores(log: EventLog): Promise<RecordedRestore[]> {
  const restores: RecordedRestore[] = [];
  for (const recorded of await restoresIn(log)) {
    try {
      restores.push(restoreIn(recorded));
    } catch (error) {
      unlessDamaged(error);
    }
  }
  return restores;
}

const restoresIn = async (log: EventLog): Promise<RecordedEvent[]> =>
  (await log.readStream(BACKUPS_STREAM)).filter(({ type }) => type === 'StoreRestored');

function restoreIn(recorded: RecordedEvent): RecordedRestore {
  const { data } = readBackupEvent(recorded) as Extract<BackupEvent, { type: 'StoreRestored' }>;
  return { recorded, logPosition: data.logPosition, namesLost: data.namesLost ?? [] };
}

/**
 * For some containers, the position up to which the names of items can't be computed any more.
 *
 * @throws {UnreadableEvent} if the record of a restore can't be read, because it may name more containers
 */
export async function namesLost(log: EventLog): Promise<ReadonlyMap<string, number>> {
  const lost = new Map<string, number>();
  for (const { recorded, namesLost } of (await restoresIn(log)).map(restoreIn)) {
    for (const rid of namesLost) lost.set(rid, recorded.position);
  }
  return lost;
}

/** What is recorded of one backup. */
export interface RecordedBackup {
  readonly id: string;
  readonly startedAtMs: number;
  readonly by: string;
  /** `unfinished`: the store was stopped while the backup ran. */
  readonly state: 'completed' | 'failed' | 'cancelled' | 'unfinished';
  readonly vaultLapsesAtMs: number;
  readonly logPosition: number | null;
  readonly bytes: number | null;
}

/**
 * The recorded backups of the keys. Until a copy of the keys has lapsed, somebody who has it, a copy of the log and the
 * master key could open what is purged now, and the purge says so.
 */
export class VaultCopies {
  readonly #log: EventLog;
  readonly #backups = new Map<string, RecordedBackup>();
  /** When the last backup lapses whose record can't be read, as far as that can be told; in milliseconds. */
  #unreadableUntilMs = 0;

  private constructor(log: EventLog) {
    this.#log = log;
  }

  static async open(log: EventLog): Promise<VaultCopies> {
    const copies = new VaultCopies(log);
    for (const event of await log.readStream(BACKUPS_STREAM)) {
      try {
        copies.#evolve(readBackupEvent(event), event);
      } catch (error) {
        if (!(error instanceof UnreadableEvent)) throw error;
        if (event.type !== 'BackupStarted') continue;
        const latestMs = event.occurredAtMs + LONGEST_VAULT_KEPT_SECONDS * 1000;
        copies.#unreadableUntilMs = Math.max(copies.#unreadableUntilMs, latestMs);
      }
    }
    return copies;
  }

  /** When the last backup lapses, in milliseconds. Null if none is left. A failed backup counts, too, because it was written. */
  recoverableUntilMs(nowMs: number): number | null {
    let lastMs = this.#unreadableUntilMs;
    for (const { vaultLapsesAtMs } of this.#backups.values()) lastMs = Math.max(lastMs, vaultLapsesAtMs);
    return lastMs > nowMs ? lastMs : null;
  }

  /** Oldest first. */
  all(): readonly RecordedBackup[] {
    return [...this.#backups.values()];
  }

  /** Must be recorded before the first key is copied. From then on the backup counts. */
  started(context: CommandContext, data: z.infer<typeof started>): Promise<void> {
    return this.#record(context, { type: 'BackupStarted', data });
  }

  completed(context: CommandContext, data: z.infer<typeof completed>): Promise<void> {
    return this.#record(context, { type: 'BackupCompleted', data });
  }

  failed(context: CommandContext, data: z.infer<typeof failed>): Promise<void> {
    return this.#record(context, { type: 'BackupFailed', data });
  }

  restored(context: CommandContext, data: z.infer<typeof restored>): Promise<void> {
    return this.#record(context, { type: 'StoreRestored', data });
  }

  async #record(context: CommandContext, event: BackupEvent): Promise<void> {
    const recorded = newEvent(context, event, versions[event.type]);
    await appendNext(this.#log, BACKUPS_STREAM, () => recorded);
    this.#evolve(event, recorded);
  }

  #evolve({ type, data }: BackupEvent, { occurredAtMs, actor }: Pick<RecordedEvent, 'occurredAtMs' | 'actor'>): void {
    if (type === 'StoreRestored') return;
    const known = this.#backups.get(data.backupId);
    if (type === 'BackupStarted') {
      this.#backups.set(data.backupId, {
        id: data.backupId,
        startedAtMs: occurredAtMs,
        by: actor,
        state: 'unfinished',
        vaultLapsesAtMs: data.vaultLapsesAtMs,
        logPosition: null,
        bytes: null,
      });
    } else if (known !== undefined) {
      this.#backups.set(
        data.backupId,
        type === 'BackupFailed'
          ? { ...known, state: data.why }
          : { ...known, state: 'completed', logPosition: data.logPosition, bytes: data.bytes },
      );
    }
  }
}
