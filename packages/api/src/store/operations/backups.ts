import { existsSync, realpathSync } from 'node:fs';
import path from 'node:path';
import {
  BackupFailed,
  BackupFolderTaken,
  type BackupSource,
  type FollowedCopy,
} from '@epitaph/core/backup/backup-source.ts';
import type { KeysOfLives, LedgerEntry, LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { RESTORE_ACTOR } from '@epitaph/core/history/explain.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { handleLife } from '@epitaph/core/item/handle.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedBackup, VaultCopies } from '@epitaph/projections/purge/vault-copies.ts';
import type { Caller } from '../api/common.ts';
import type { OperationsApi, TakenBackup } from '../api/operations-api.ts';
import { endWhatIsOver } from '../items/item-lives.ts';
import type { StoreParts } from '../parts.ts';

/** What backups need. Without a source, the store takes none. */
export interface BackupParts {
  readonly source: BackupSource | undefined;
  /** For a store without a source, whose log serves as the ledger: the end of what it says about destroyed keys. */
  readonly ledgerHead?: (() => Promise<LedgerHead>) | undefined;
  /** Where backups may be written: below one folder, or wherever a request says. No backups if not given. */
  readonly into?: { readonly below: string } | 'anywhere' | undefined;
}

/** Lives that were ended because their keys are destroyed. */
interface Ended {
  readonly livesEnded: number;
  /** Streams of the lives that ended with their containers. */
  readonly abandoned: readonly string[];
}

/** What a restored store has to know about its origin. */
export interface RestoredFrom {
  readonly logBackupId: string;
  readonly vaultBackupId: string;
  readonly logPosition: number;
  readonly ledgerHead: string;
  /** Destroyed keys, which the log may not know of, and the backups that existed; oldest line first. */
  readonly ledger: () => AsyncIterable<LedgerEntry>;
  /** Keys in the log that the copy of the keys never had: a log on a server may be newer than that copy. */
  readonly lost?: KeysOfLives;
  /** Containers in the log whose secret the copy never had. */
  readonly namesLost?: readonly string[];
  /** Streams of lives that are recorded as purged but whose writes are still in the log. */
  readonly unfinished?: readonly string[];
  /** Pauses the purge: nothing more is erased until an operator resumes it. */
  readonly pausesPurge?: boolean | undefined;
}

/** Names below the backup folder; none of them can lead out of it. */
const FOLDER = /^[\p{L}\p{N}_][\p{L}\p{N}_.-]*(?:\/[\p{L}\p{N}_][\p{L}\p{N}_.-]*)*$/u;
/** The caller under which a restore acts. */
export const RESTORE: Caller = { actor: RESTORE_ACTOR, correlationId: crypto.randomUUID() };

/** Takes backups of a running store, and makes a restored store agree with what was erased since the backup. */
export class Backups {
  readonly #parts: StoreParts;
  readonly #copies: VaultCopies;
  readonly #source: BackupSource | undefined;
  readonly #ledgerHead: BackupParts['ledgerHead'];
  readonly #into: BackupParts['into'];
  #running: AbortController | undefined;

  constructor(parts: StoreParts, copies: VaultCopies, { source, ledgerHead, into }: BackupParts) {
    this.#parts = parts;
    this.#copies = copies;
    this.#source = source;
    this.#ledgerHead = ledgerHead;
    this.#into = into;
  }

  list(): readonly RecordedBackup[] {
    return this.#copies.all();
  }

  /**
   * Describes damage in the ledger of destroyed keys. Undefined when it is whole, and when the log serves as the
   * ledger.
   */
  async ledgerDamage(signal?: AbortSignal): Promise<string | undefined> {
    return this.#source?.ledgerDamage(signal);
  }

  ledgerHead(): Promise<LedgerHead> {
    return this.#ledgerHead?.() ?? this.#found().ledgerHead();
  }

  readonly take: OperationsApi['backup'] = async (caller, { folder, vaultKeptSeconds }, follow = {}) => {
    const source = this.#found();
    const target = this.#target(folder);
    this.#parts.command(caller);
    if (this.#running !== undefined) throw new Refusal('busy', 'Another backup is running.');
    const running = (this.#running = new AbortController());
    try {
      const signal = follow.signal === undefined ? running.signal : AbortSignal.any([running.signal, follow.signal]);
      return await this.#copy(source, target, caller, vaultKeptSeconds, { ...follow, signal });
    } finally {
      this.#running = undefined;
    }
  };

  /** Cancels the backup under way because the store closes. */
  cancel(): void {
    this.#running?.abort(new Refusal('busy', 'The store is closing.'));
  }

  async #copy(
    source: BackupSource,
    target: string,
    caller: Caller,
    vaultKeptSeconds: number,
    follow: FollowedCopy,
  ): Promise<TakenBackup> {
    const id = this.#parts.ports.newId();
    const takenAtMs = this.#parts.command(caller).nowMs;
    let isRecorded = false;
    try {
      if (typeof this.#into === 'object') await source.removeLapsed(this.#into.below, takenAtMs);
      await source.prepare(target);
    } catch (error) {
      throw asRefusal(error);
    }
    try {
      const log = await source.copyLog?.(target, { id, takenAtMs }, follow);
      follow.signal?.throwIfAborted();
      const context = this.#parts.command(caller);
      const vaultLapsesAtMs = context.nowMs + vaultKeptSeconds * 1000;
      // Recorded before the first key is copied: from here on, every purge records until when the copy can open what it
      // erased.
      isRecorded = true;
      await this.#copies.started(context, { backupId: id, vaultLapsesAtMs });
      const ledgerHead = await source.record(context.nowMs, { id, vaultLapsesAtMs });
      const logPosition = await this.#parts.ports.log.head();
      const vault = await source.copyVault(target, { id, takenAtMs, lapsesAtMs: vaultLapsesAtMs, logPosition }, follow);
      const position = log?.position ?? logPosition;
      const bytes = (log?.bytes ?? 0) + vault.bytes;
      await this.#copies.completed(this.#parts.command(caller), { backupId: id, logPosition: position, bytes });
      const parts = log === undefined ? (['vault'] as const) : (['log', 'vault'] as const);
      return { id, folder: target, parts, takenAtMs, logPosition: position, vaultLapsesAtMs, bytes, ledgerHead };
    } catch (error) {
      await source.discard(target).catch(() => {});
      const cancelled = follow.signal?.aborted === true;
      if (isRecorded) {
        const { clock, newId } = this.#parts.ports;
        const context = { nowMs: clock.now(), actor: caller.actor, correlationId: caller.correlationId, newId };
        await this.#copies.failed(context, { backupId: id, why: cancelled ? 'cancelled' : 'failed' }).catch(() => {});
      }
      if (cancelled) throw new Refusal('backup-failed', 'The backup was cancelled; its files were removed.');
      throw asRefusal(error);
    }
  }

  /**
   * Records the backups that are in the ledger but not in the older log: a purge must record until when they can open
   * what it erases.
   */
  async recordCopies(ledger: AsyncIterable<LedgerEntry>): Promise<void> {
    const known = new Set(this.#copies.all().map(({ id }) => id));
    for await (const entry of ledger) {
      if (!('backup' in entry) || known.has(entry.backup.id)) continue;
      const { id: backupId, vaultLapsesAtMs } = entry.backup;
      await this.#copies.started(this.restoring(), { backupId, vaultLapsesAtMs });
    }
  }

  /**
   * Records that the store was restored, and ends the lives that the ledger says were erased; see {@link endKeyless}.
   */
  async settleRestored(
    { ledger, namesLost = [], logBackupId, vaultBackupId, logPosition, ledgerHead }: RestoredFrom,
    alreadyEnded: number,
  ): Promise<Ended> {
    let livesEnded = alreadyEnded;
    const abandoned: string[] = [];
    for await (const entry of ledger()) {
      if ('backup' in entry) continue;
      const ended = await this.endKeyless(entry.keys);
      livesEnded += ended.livesEnded;
      abandoned.push(...ended.abandoned);
    }
    const facts = { logBackupId, vaultBackupId, logPosition, ledgerHead, livesEnded };
    const names = namesLost.length === 0 ? {} : { namesLost: [...namesLost] };
    await this.#copies.restored(this.restoring(), { ...facts, ...names });
    return { livesEnded, abandoned };
  }

  /**
   * Ends every life whose key is destroyed although the log, which may be older, has it as live, so that no client sees
   * it again. A life that had ended already, but whose end was not recorded because of a pause, gets its own end.
   */
  async endKeyless(keys: KeysOfLives): Promise<Ended> {
    const { log, vault } = this.#parts.ports;
    let livesEnded = 0;
    const abandoned: string[] = [];
    let position = 0;
    for (const [keyId, stream] of keys) {
      const last = await log.readLast(stream);
      const event = last === undefined ? undefined : readItemEvent(last);
      if (event === undefined || !isItemWrite(event) || event.data.key !== keyId) continue;
      if ((await vault.findKey(keyId, stream)).status !== 'destroyed') continue;
      const { containerRid, life } = parseItemStream(stream)!;
      const { catalog } = this.#parts;
      const container = catalog.containerByRid(containerRid)?.state;
      if (container === undefined) continue;
      const { timeline } = container;
      const at = this.restoring();
      const over = await endWhatIsOver(this.#parts, at, container, { stream, life, write: last! });
      position = Math.max(position, over ?? 0);
      if (catalog.goneAtMs(container) !== null) {
        abandoned.push(stream);
        continue;
      }
      livesEnded += 1;
      if (over !== undefined) continue;
      const handled = await handleLife(this.#parts.ports, at, stream, life, () => ({
        kind: 'command',
        command: { type: 'DeleteItem', nowMs: at.nowMs, timeline },
      }));
      position = Math.max(position, handled.position ?? 0);
    }
    if (position > 0) await this.#parts.projected(position);
    return { livesEnded, abandoned };
  }

  /** The context for what a restore records, whether or not the clock is trusted. */
  restoring(): CommandContext {
    const { clock, newId } = this.#parts.ports;
    return { ...RESTORE, nowMs: clock.now(), newId };
  }

  #found(): BackupSource {
    if (this.#source !== undefined) return this.#source;
    throw new Refusal(
      'not-supported',
      'The event log and the keys of this store are on servers: back them up with their own tools. docs/backup-and-restore.md says how.',
    );
  }

  #target(folder: string): string {
    if (this.#into === 'anywhere') return path.resolve(folder);
    if (this.#into === undefined) {
      throw new Refusal('not-supported', 'This server takes no backups: it was started without a --backup-folder.');
    }
    const { below } = this.#into;
    if (!FOLDER.test(folder) || folder.length > 200) {
      throw new Refusal(
        'bad-request',
        `The folder of a backup must be a name of letters, digits, ".", "_" and "-", or several names with "/" between them. It is created below the server's --backup-folder.`,
      );
    }
    const target = path.resolve(below, folder);
    if (!existsSync(below)) {
      throw new Refusal('backup-failed', 'The --backup-folder of the server does not exist. Is its disk mounted?');
    }
    // A symbolic link must not lead out of the folder.
    let above = target;
    while (!existsSync(above)) above = path.dirname(above);
    const root = realpathSync(below);
    if (!`${realpathSync(above)}${path.sep}`.startsWith(`${root}${path.sep}`)) {
      throw new Refusal('bad-request', 'The folder of a backup must be below the --backup-folder of the server.');
    }
    return target;
  }
}

function asRefusal(error: unknown): unknown {
  if (!(error instanceof BackupFailed)) return error;
  return new Refusal(error instanceof BackupFolderTaken ? 'already-exists' : 'backup-failed', error.message);
}
