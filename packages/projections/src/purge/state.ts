/** What the log says of one purge run. It is fixed at the run's start, so that a resumed run does what it set out to do. */
export interface PurgeRunState {
  readonly status: 'started';
  readonly startedAtMs: number;
  /** Only what was in the log up to this position is a candidate. */
  readonly upToPosition: number;
  /** The time by which candidates are overdue. */
  readonly effectiveNowMs: number;
}
