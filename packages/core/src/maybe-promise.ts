/**
 * What a port's look-up answers: at once where the adapter can (SQLite, memory), later where it must ask over a
 * network. Callers await it either way.
 */
export type MaybePromise<T> = T | Promise<T>;
