import type { CommandContext } from '@epitaph/core/command-context.ts';

/** Who asks, for which request. The store adds the time, read once per command. */
export type Caller = Pick<CommandContext, 'actor' | 'correlationId'>;

export interface Precondition {
  readonly ifMatch?: string | undefined;
}

/** Of a write that may find nothing, an upsert, and of a read in a batch. */
export interface UpsertPrecondition extends Precondition {
  readonly ifNoneMatch?: string | undefined;
}

export interface Written<T> {
  readonly resource: T;
  /** Log position to put into the session token. */
  readonly position: number;
  /** True when a create or upsert began a new life, rather than replacing. */
  readonly created: boolean;
}

/**
 * What a read waits for: a position of the log, or `head`: everything that the log holds when it is asked, which on a
 * log that nodes share is what every node has written.
 */
export type AtLeast = number | 'head';
