import type { RecordedScope } from './events.ts';

/** Records a hold that is in the vault already. */
export interface PlaceHold {
  readonly type: 'PlaceHold';
  readonly holdId: string;
  readonly scope: RecordedScope;
  readonly reason: string;
  readonly tooLateFor: number;
}

export interface ReleaseHold {
  readonly type: 'ReleaseHold';
  readonly holdId: string;
  readonly reason: string;
}

export interface ChangeRetentionFloor {
  readonly type: 'ChangeRetentionFloor';
  readonly seconds: number;
  readonly reason: string;
}

export interface ChangeRecoveryWindow {
  readonly type: 'ChangeRecoveryWindow';
  readonly seconds: number;
  readonly reason: string;
}

export interface RequestErasure {
  readonly type: 'RequestErasure';
  readonly item: string;
  readonly requestedBy: string;
  readonly reason: string;
}

/** Records the outcome of a request: all lives are erased, or something keeps one of them. */
export interface SettleErasure {
  readonly type: 'SettleErasure';
  /** Position of the request's event. */
  readonly position: number;
  readonly erasedLives: number;
  readonly alreadyErasedLives: number;
  readonly kept?:
    | {
        readonly holds: readonly string[];
        readonly floorUntilMs: number | null;
        /**
         * True if the vault keeps the content although no hold or floor on record explains it. Otherwise nothing is
         * recorded when all of them are gone.
         */
        readonly isUnrecorded?: boolean | undefined;
      }
    | undefined;
}

export interface RequestRecovery {
  readonly type: 'RequestRecovery';
  readonly item?: string | undefined;
  readonly policyVersion?: number | undefined;
  readonly reason: string;
}

export interface RecordHeldContentRead {
  readonly type: 'RecordHeldContentRead';
  readonly life: string;
  readonly revision: number;
  readonly reason: string;
}

export type RetentionCommand =
  | PlaceHold
  | ReleaseHold
  | ChangeRetentionFloor
  | ChangeRecoveryWindow
  | RequestErasure
  | SettleErasure
  | RequestRecovery
  | RecordHeldContentRead;

const types: ReadonlySet<string> = new Set<RetentionCommand['type']>([
  'PlaceHold',
  'ReleaseHold',
  'ChangeRetentionFloor',
  'ChangeRecoveryWindow',
  'RequestErasure',
  'SettleErasure',
  'RequestRecovery',
  'RecordHeldContentRead',
]);

export function isRetentionCommand<Command extends { readonly type: string }>(
  command: Command,
): command is Extract<Command, { readonly type: RetentionCommand['type'] }> {
  return types.has(command.type);
}
