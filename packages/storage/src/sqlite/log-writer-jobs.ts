import type { LedgerBackup } from '@epitaph/core/backup/purge-ledger.ts';
import type { AppendResult } from '@epitaph/core/log/event-log.ts';
import type { DestroyRequest, FloorKind, SetFloorOptions, VaultHold } from '@epitaph/core/vault/key-vault.ts';
import type { Job } from './writer.ts';

/** A word of the log: its number where that is known already, else the text. */
export type Word = string | number;

/** A key's number and its life's stream. */
export type KeyOfLife = readonly [id: number, stream: string];

/** An event as a flat row; its sealed body is a blob of the job. */
export type EventRow = readonly [
  id: string,
  type: Word,
  version: number,
  at: number,
  actor: Word,
  correlation: string,
  /** null: the same as correlation. */
  causation: string | null,
  /** The property names of the data as a JSON array. */
  shape: Word,
  /** The values as a JSON array. */
  data: string,
  hasBody: boolean,
];

export interface AppendJob extends Job {
  readonly kind: 'append';
  /** Keys that must be stored before: their numbers and lives; their bytes are the first blobs. */
  readonly keys?: readonly KeyOfLife[];
  /** Keys that are stored already, and have lives from now on. */
  readonly spareKeys?: readonly KeyOfLife[];
  /** Stream and expected revision, -1 for no stream. */
  readonly streams: readonly (readonly [stream: string, expected: number])[];
  /** For each stream its events. */
  readonly events: readonly (readonly EventRow[])[];
  /** The bodies of the events that have one, in order. */
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
  /** One: the key itself, 32 bytes. It is wrapped here, and overwritten. */
  readonly blobs: readonly Uint8Array[];
}

/** Says whose a spare key is, where no append does. */
export interface GiveKeyJob extends Job {
  readonly kind: 'give-key';
  readonly id: number;
  readonly stream: string;
}

/** Stores a batch of spare keys; the answer is the numbers of those given before that have rows of their own now. */
export interface AddSpareKeysJob extends Job {
  readonly kind: 'add-spare-keys';
  readonly first: number;
  /** One: the keys, one after the other. */
  readonly blobs: readonly Uint8Array[];
}

/** Destroys the spare keys that nobody has; answered as {@link AddSpareKeysJob} is. */
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

/** Asks where the ledger ends, after entering a backup of the keys if one is given. */
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

/** How an append went, and up to which position the table of streams is complete. */
export interface AppendOutcome {
  readonly result: AppendResult;
  readonly streamsAsOf: number;
}
