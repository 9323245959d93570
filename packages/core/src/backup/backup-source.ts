import type { LedgerBackup, LedgerHead } from './purge-ledger.ts';

/** How far the copying of one file has come, in pages; or the reading of it once more, in bytes. */
export interface CopyProgress {
  readonly phase: 'log' | 'vault' | 'digest';
  readonly done: number;
  readonly total: number;
}

export interface FollowedCopy {
  readonly onProgress?: ((progress: CopyProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface CopiedLog {
  /** Position of the last event that is in the copy. */
  readonly position: number;
  readonly bytes: number;
}

/** A backup can't be written where it was asked for. The message is for whoever asked. */
export class BackupFailed extends Error {
  override readonly name: string = 'BackupFailed';
}

/** Something is there already, which a backup does not overwrite. */
export class BackupFolderTaken extends BackupFailed {
  override readonly name = 'BackupFolderTaken';
}

/**
 * Copies a store's log and its keys while the store goes on; the keys alone where the log is on a server, which has
 * tools of its own for that.
 *
 * An adapter MUST
 * - copy each as it stood at one instant, and have it on disk before it answers;
 * - put into a copy of the log nothing that opens a body, and into neither copy the master key;
 * - hold no erasure up for longer than it takes to copy the keys, and no write at all;
 * - put the line of {@link record} on disk before it resolves;
 * - throw `BackupFailed` for whatever an operator can put right, and leave a partial copy for {@link discard}.
 */
export interface BackupSource {
  /** Where the ledger of destroyed keys ends now. */
  ledgerHead(): Promise<LedgerHead>;
  /**
   * Reads the ledger from its first line to where it ends now: with one that is damaged no backup can be restored.
   *
   * @returns what is wrong with it; undefined for one that is whole
   */
  ledgerDamage(signal?: AbortSignal): Promise<string | undefined>;
  /** Puts a backup of the keys into the ledger. */
  record(atMs: number, backup: LedgerBackup): Promise<LedgerHead>;
  /**
   * Makes the folders for the parts, `log` and `vault`, which must not be there yet or be empty.
   *
   * @throws BackupFailed; of these, BackupFolderTaken where something is there
   */
  prepare(folder: string): Promise<void>;
  /** Absent where the log is not in the store's folder. */
  copyLog?(
    folder: string,
    about: { readonly id: string; readonly takenAtMs: number },
    follow?: FollowedCopy,
  ): Promise<CopiedLog>;
  copyVault(
    folder: string,
    about: {
      readonly id: string;
      readonly takenAtMs: number;
      readonly lapsesAtMs: number;
      /** Every key of an event up to there is in the copy. */
      readonly logPosition: number;
    },
    follow?: FollowedCopy,
  ): Promise<{ readonly bytes: number }>;
  /** Removes what was written into the folders of a backup that came to nothing. */
  discard(folder: string): Promise<void>;
  /**
   * Removes copies of keys below a folder whose time has passed, or that a crash has cut short, as far as they still lie
   * there. @returns how many
   */
  removeLapsed(root: string, nowMs: number): Promise<number>;
}
