import { HoldRegister } from './hold-register.ts';

/** A request of which it is not on record what became of it. */
export interface PendingErasure {
  /** Of the `ErasureRequested` in the log. */
  readonly position: number;
  readonly item: string;
  readonly by: string;
}

/** What a container's stream says of keeping content. */
export interface Retention {
  readonly holds: HoldRegister;
  /** 0 for none. */
  readonly floorSeconds: number;
  /** 0 for none. */
  readonly recoveryWindowSeconds: number;
  readonly erasures: readonly PendingErasure[];
}

export const initialRetention: Retention = {
  holds: HoldRegister.empty,
  floorSeconds: 0,
  recoveryWindowSeconds: 0,
  erasures: [],
};

/** Whether an item's erasure was asked for, and it is not on record yet what became of that. */
export const isBeingErased = ({ erasures }: Pick<Retention, 'erasures'>, item: string): boolean =>
  erasures.some((pending) => pending.item === item);
