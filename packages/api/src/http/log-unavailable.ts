import { systemClocks } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

const TOLD_EVERY_MS = 60_000;
/** The server's log, as far as failures of requests are told to it. */
export interface Log {
  error(fields: object, message: string): void;
}

/** By log, when a storage that is away is told of again. */
const silentUntilMs = new WeakMap<Log, number>();

/**
 * Logs why the storage does not do what a request needs, where that is why it failed. Of a server that is away that is said
 * once a minute: on a busy store thousands of requests a second meet it.
 */
export function logUnavailable(log: Log, failure: unknown, ids: Readonly<Record<string, string>> = {}): void {
  const error = failure instanceof Refusal ? failure.cause : failure;
  if (!(error instanceof StorageUnavailable)) return;
  if (!error.isForOperator) {
    const nowMs = systemClocks.monotonicMs();
    if (nowMs < (silentUntilMs.get(log) ?? 0)) return;
    silentUntilMs.set(log, nowMs + TOLD_EVERY_MS);
  }
  log.error(ids, error.message);
}
