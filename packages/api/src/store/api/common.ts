import type { CommandContext } from '@epitaph/core/command-context.ts';

/** Who calls, and for which request. The store adds the time, which it reads once per command. */
export type Caller = Pick<CommandContext, 'actor' | 'correlationId'>;

export interface Precondition {
  readonly ifMatch?: string | undefined;
}

/** The precondition of a write that may find no item, such as an upsert, and of a read in a batch. */
export interface UpsertPrecondition extends Precondition {
  readonly ifNoneMatch?: string | undefined;
}

export interface Written<T> {
  readonly resource: T;
  /** The log position for the session token. */
  readonly position: number;
  /** True when a create or upsert began a new life instead of replacing an item. */
  readonly created: boolean;
}

/**
 * What a read waits for: a position of the log, or `head`, which is everything in the log when it is asked. On a log
 * that several nodes share, that includes what every node has written.
 */
export type AtLeast = number | 'head';

/** A container's items at one moment, for reads that must agree with each other. */
export interface ItemSnapshot {
  /** False once a read has left an item out because its content has been erased since that moment. */
  readonly isWhole: boolean;
  /** Must be called within seconds, because until then the store can't remove data that newer versions replace. */
  close(): Promise<void>;
}
