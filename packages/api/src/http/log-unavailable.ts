import { systemClocks } from '@epitaph/core/clock.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';

const TOLD_EVERY_MS = 60_000;
/** The part of the server's log to which failures of requests are written. */
export interface Log {
  error(fields: object, message: string): void;
}

/** For each log, when the next message about an unavailable storage is due. */
const silentUntilMs = new WeakMap<Log, number>();

/**
 * Logs why a request failed, if the storage was the reason. A server that is away is logged once a minute: on a busy
 * store thousands of requests a second fail because of it.
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
