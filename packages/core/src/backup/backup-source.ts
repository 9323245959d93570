import type { LedgerBackup, LedgerHead } from './purge-ledger.ts';

/** Progress of one file: of its copy, in pages, or of the second reading of it that computes its digest, in bytes. */
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

/** A backup can't be written at the place that was asked for. The message is for the user. */
export class BackupFailed extends Error {
  override readonly name: string = 'BackupFailed';
}

/** There are files already at that place, and a backup overwrites nothing. */
export class BackupFolderTaken extends BackupFailed {
  override readonly name = 'BackupFolderTaken';
}

/**
 * Copies a store's log and its keys while the store keeps running. If the log is on a server, only the keys are copied:
 * the server has its own tools for backups of the log.
 *
 * An adapter MUST
 * - copy each of the two as it was at one instant, and have the copy on disk before it answers;
 * - put nothing into a copy of the log that can open a body, and the master key into neither copy;
 * - hold up an erasure no longer than it takes to copy the keys, and hold up no write at all;
 * - have the line of {@link record} on disk before it resolves;
 * - throw `BackupFailed` for whatever an operator can correct, and leave a partial copy for {@link discard}.
 */
export interface BackupSource {
  /** The present end of the ledger of destroyed keys. */
  ledgerHead(): Promise<LedgerHead>;
  /**
   * Reads the whole ledger up to its present end. No backup could be restored with a damaged ledger.
   *
   * @returns what is wrong with the ledger; undefined if it is intact
   */
  ledgerDamage(signal?: AbortSignal): Promise<string | undefined>;
  /** Records a backup of the keys in the ledger. */
  record(atMs: number, backup: LedgerBackup): Promise<LedgerHead>;
  /**
   * Makes the folders `log` and `vault` for the two parts. They must not exist yet, or must be empty.
   *
   * @throws BackupFailed; if files are there already, its subclass BackupFolderTaken
   */
  prepare(folder: string): Promise<void>;
  /** Absent if the log is not in the store's folder. */
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
      /** The copy has every key of the events up to this position. */
      readonly logPosition: number;
    },
    follow?: FollowedCopy,
  ): Promise<{ readonly bytes: number }>;
  /** Removes what was written into the folders of a failed backup. */
  discard(folder: string): Promise<void>;
  /**
   * Removes copies of keys in a folder that are kept for longer than they may be, or that are incomplete because of a
   * crash.
   *
   * @returns how many were removed
   */
  removeLapsed(root: string, nowMs: number): Promise<number>;
}
