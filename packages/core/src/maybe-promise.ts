/**
 * The answer of a port's look-up: a value if the adapter can answer at once (SQLite, memory), a promise if it must ask
 * over a network. Callers await both.
 */
export type MaybePromise<T> = T | Promise<T>;
