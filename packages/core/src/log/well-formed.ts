import { invariant } from '../invariant.ts';
import type { StreamAppend } from './event-log.ts';

/**
 * What every adapter checks of an append before anything else: at least one stream, no stream twice, and at least one
 * event for each stream.
 *
 * @throws {InvariantViolation} for a mistake of the caller. The log must not have written anything by then.
 */
export function assertWellFormed(appends: readonly StreamAppend[]): void {
  invariant(appends.length > 0, 'an append names at least one stream');
  invariant(
    appends.every((append) => append.events.length > 0),
    'an append has at least one event for each stream',
  );
  invariant(
    appends.length === 1 || new Set(appends.map((append) => append.stream)).size === appends.length,
    'an append names each stream once',
  );
}
