import type { LedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { OpenLogElsewhere } from './data-folder.ts';
import type { StepHook } from './placed-crash.ts';

export interface RestoreOptions {
  /** The `log` part of a backup; or the event log itself, if it is on a server. */
  readonly log: string | ServerLog;
  /** The `vault` part of the same backup, or of a later one of the same store. */
  readonly vault: string;
  readonly ledger: string;
  /** A head that the ledger must contain. It shows that the ledger is complete. */
  readonly ledgerHead: LedgerHead;
  /** The new data folder. It must not exist yet, or be empty. */
  readonly to: string;
  /** 32 bytes in base64. */
  readonly masterKey: string;
  /** Whether to store the master key in the new folder, as a store does that is started without a given key. */
  readonly keepMasterKey: boolean;
  readonly nowMs: number;
  /** Whether to restore from a copy of the keys that has lapsed. */
  readonly allowLapsed: boolean;
  /**
   * Whether to continue although the keys of writes after the copy of the keys are lost for good. That can only happen with a log on a
   * server.
   */
  readonly acceptLost?: boolean;
  readonly onProgress?: (what: string, done: number, total: number) => void;
  readonly onStep?: StepHook;
}

/** An event log on a server, which backups don't contain. */
export type ServerLog = Pick<OpenLogElsewhere, 'id' | 'name' | 'log'>;
