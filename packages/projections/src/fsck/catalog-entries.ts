import { foldClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import {
  clientEncryptionKeyStream,
  parseClientEncryptionKeyStream,
} from '@epitaph/core/client-encryption-key/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { foldUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import type { CatalogEntry } from '../read-model-store.ts';
import type { Examination } from './examination.ts';

/** What folds a stream whose state is an entry of the catalog; undefined for any other stream. */
export function foldOfEntry(stream: string): ((events: readonly RecordedEvent[]) => unknown) | undefined {
  if (parseUserStream(stream) !== undefined) return foldUser;
  if (parseClientEncryptionKeyStream(stream) !== undefined) return foldClientEncryptionKey;
  return undefined;
}

export const streamOfEntry = ({ kind, state }: CatalogEntry): string =>
  kind === 'user' ? userStream(state.rid) : clientEncryptionKeyStream(state.rid);

/** Checks that a user or client encryption key is in the catalog as its stream says. */
export async function checkEntry(
  stream: string,
  entry: CatalogEntry | undefined,
  { log, upTo, report }: Examination,
): Promise<void> {
  const events = await log.readStream(stream);
  const read = events.findLastIndex(({ position }) => position <= upTo) + 1;
  // It may have changed since the log was read: then what is shown is what a longer part of the stream says.
  for (let length = read; length <= events.length; length += 1) {
    if (sameJson(shownOf(stream, events.slice(0, length)), entry?.state)) return;
  }
  report('entry-differs', stream, entry === undefined ? 'not in the catalog' : 'the catalog has it otherwise');
}

/** What of a stream the catalog must show: nothing for a deleted user, or a name that another stream's user took. */
function shownOf(stream: string, events: readonly RecordedEvent[]): unknown {
  const state = foldOfEntry(stream)!(events);
  const { status } = state as { readonly status?: string };
  return status === 'deleted' || status === 'taken' ? undefined : state;
}
