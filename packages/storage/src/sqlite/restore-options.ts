import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { OpenLogElsewhere } from './data-folder.ts';
import type { StepHook } from './placed-crash.ts';

export interface RestoreOptions {
  /** The `log` part of a backup, or the event log itself where it is on a server. */
  readonly log: string | ServerLog;
  /** The `vault` part of the same backup, or of a later one of the same store. */
  readonly vault: string;
  readonly ledger: string;
  /** A head that the ledger must reach at least: by it the ledger is known to be whole. */
  readonly ledgerHead: LedgerHead;
  /** The new data folder; not there yet, or empty. */
  readonly to: string;
  /** 32 bytes in base64. */
  readonly masterKey: string;
  /** Puts the master key into the new folder, as in a store that is started without giving one. */
  readonly keepMasterKey: boolean;
  readonly nowMs: number;
  /** Restores from a copy of the keys that should be gone by now. */
  readonly allowLapsed: boolean;
  /**
   * Goes on although keys are lost for good: those of what was written after the keys were copied. That can be only
   * with a log on a server.
   */
  readonly acceptLost?: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
  readonly onStep?: StepHook;
}

/** An event log that no backup has, because it is on a server. */
export type ServerLog = Pick<OpenLogElsewhere, 'id' | 'name' | 'log'>;
