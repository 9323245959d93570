/** The default number of events behind the log from which the store reports that it isn't ready. */
export const DEFAULT_READY_LAG_EVENTS = 10_000;
