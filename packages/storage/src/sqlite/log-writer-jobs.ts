import type { LedgerBackup } from '@epitaph/core/backup/purge-ledger.ts';
import type { AppendResult } from '@epitaph/core/log/event-log.ts';
import type { DestroyRequest, FloorKind, SetFloorOptions, VaultHold } from '@epitaph/core/vault/key-vault.ts';
import type { Job } from './writer.ts';

/** A word of the log: its number if it is known already, otherwise the text. */
export type Word = string | number;

/** The id of a key, and the stream of its life. */
export type KeyOfLife = readonly [id: number, stream: string];

/** An event as a flat row. Its sealed body is a blob of the job. */
export type EventRow = readonly [
  id: string,
  type: Word,
  version: number,
  at: number,
  actor: Word,
  correlation: string,
  /** null if it is the same as the correlation id. */
  causation: string | null,
  /** The property names of the data as a JSON array. */
  shape: Word,
  /** The values as a JSON array. */
  data: string,
  hasBody: boolean,
];

export interface AppendJob extends Job {
  readonly kind: 'append';
  /** Keys that must be stored before the events. Their bytes are the first blobs. */
  readonly keys?: readonly KeyOfLife[];
  /** Spare keys, stored already, that are given to lives by this append. */
  readonly spareKeys?: readonly KeyOfLife[];
  /** Stream and expected revision, -1 for no stream. */
  readonly streams: readonly (readonly [stream: string, expected: number])[];
  /** The events of each stream. */
  readonly events: readonly (readonly EventRow[])[];
  /** The bytes of the keys, then the bodies of the events that have one, in order. */
  readonly blobs: readonly Uint8Array[];
}

export interface TruncateJob extends Job {
  readonly kind: 'truncate';
  readonly stream: string;
  readonly before: number;
}

export interface AddKeyJob extends Job {
  readonly kind: 'add-key';
  readonly id: number;
  readonly stream: string;
  /** One blob: the key itself, 32 bytes. The writer wraps it, and overwrites these bytes. */
  readonly blobs: readonly Uint8Array[];
}

/** Gives a spare key to a life, if no append does so. */
export interface GiveKeyJob extends Job {
  readonly kind: 'give-key';
  readonly id: number;
  readonly stream: string;
}

/** Stores a batch of spare keys. The outcome is the ids of earlier spare keys that have rows of their own now. */
export interface AddSpareKeysJob extends Job {
  readonly kind: 'add-spare-keys';
  readonly first: number;
  /** One blob: the keys, one after the other. */
  readonly blobs: readonly Uint8Array[];
}

/** Destroys the spare keys that belong to no life. The outcome is that of {@link AddSpareKeysJob}. */
export interface RemoveSpareKeysJob extends Job {
  readonly kind: 'remove-spare-keys';
}

export interface DestroyJob extends Job {
  readonly kind: 'destroy';
  readonly requests: readonly DestroyRequest[];
}

export interface VaultWriteJob extends Job {
  readonly kind: 'vault-write';
  readonly write:
    | { readonly what: 'place-hold'; readonly hold: VaultHold; readonly isNew: boolean }
    | { readonly what: 'release-hold'; readonly holdId: string; readonly placedAtMs?: number | undefined }
    | {
        readonly what: 'set-floor';
        readonly containerRid: string;
        readonly floor: FloorKind;
        readonly seconds: number;
        readonly options: SetFloorOptions;
      }
    /** The wrapped secret is the job's blob. */
    | { readonly what: 'add-secret'; readonly name: string };
}

/** Enters a backup of the keys into the ledger, if one is given. The outcome is the ledger's head. */
export interface LedgerJob extends Job {
  readonly kind: 'ledger';
  readonly atMs: number;
  readonly backup?: LedgerBackup;
}

export type LogWriterJob =
  | AppendJob
  | TruncateJob
  | AddKeyJob
  | GiveKeyJob
  | AddSpareKeysJob
  | RemoveSpareKeysJob
  | DestroyJob
  | VaultWriteJob
  | LedgerJob;

/** The result of an append, and the position up to which the table of streams is complete. */
export interface AppendOutcome {
  readonly result: AppendResult;
  readonly streamsAsOf: number;
}
