/** Events behind the log from which on the store says that it isn't ready, unless it is told otherwise. */
export const DEFAULT_READY_LAG_EVENTS = 10_000;
