/** The data that every command carries beside its content: the time, the actor and the request. */
export interface CommandContext {
  /** The time of the command, read once, in milliseconds since the epoch. */
  readonly nowMs: number;
  /** Which key or part of the system acts: `key:primary`, `system:purge`, … Never a secret, never a person's data. */
  readonly actor: string;
  /** UUID of the request. */
  readonly correlationId: string;
  /** Makes a UUID. Passed in so that simulations replay. */
  readonly newId: () => string;
  /** Set for work that nobody waits for: the log may write what clients ask for first. */
  readonly background?: true;
}
