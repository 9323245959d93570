import { HoldRegister } from './hold-register.ts';

/** A request for an erasure whose outcome is not recorded yet. */
export interface PendingErasure {
  /** Position of the `ErasureRequested`. */
  readonly position: number;
  readonly item: string;
  readonly by: string;
}

/** What the container's events say about keeping content. */
export interface Retention {
  readonly holds: HoldRegister;
  /** 0 for no floor. */
  readonly floorSeconds: number;
  /** 0 for no window. */
  readonly recoveryWindowSeconds: number;
  readonly erasures: readonly PendingErasure[];
}

export const initialRetention: Retention = {
  holds: HoldRegister.empty,
  floorSeconds: 0,
  recoveryWindowSeconds: 0,
  erasures: [],
};

/** Whether the erasure of an item was requested and its outcome is not recorded yet. */
export const isBeingErased = ({ erasures }: Pick<Retention, 'erasures'>, item: string): boolean =>
  erasures.some((pending) => pending.item === item);
