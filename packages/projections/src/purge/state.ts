/** What the log says of one purge run: frozen at its start, so that a resumed run does what it set out to do. */
export interface PurgeRunState {
  readonly status: 'started';
  readonly startedAtMs: number;
  /** Only what stood in the log at this position is a candidate. */
  readonly upToPosition: number;
  /** The time by which candidates are overdue. */
  readonly effectiveNowMs: number;
}
