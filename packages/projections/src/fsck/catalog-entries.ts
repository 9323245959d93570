import { evolveDatabase } from '@epitaph/core/database/evolve.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { foldClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import {
  clientEncryptionKeyStream,
  parseClientEncryptionKeyStream,
} from '@epitaph/core/client-encryption-key/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { foldScript } from '@epitaph/core/script/evolve.ts';
import { parseScriptStream, scriptStream } from '@epitaph/core/script/stream-name.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { foldUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import type { CatalogEntry } from '../read-model-store.ts';
import { type Container, type Examination, readContainer } from './examination.ts';

/** The function that folds a stream whose state is an entry of the catalog. Undefined for any other stream. */
export function foldOfEntry(stream: string): ((events: readonly RecordedEvent[]) => unknown) | undefined {
  if (parseUserStream(stream) !== undefined) return foldUser;
  if (parseClientEncryptionKeyStream(stream) !== undefined) return foldClientEncryptionKey;
  if (parseScriptStream(stream) !== undefined) return foldScript;
  return undefined;
}

const streams = {
  user: userStream,
  'client-encryption-key': clientEncryptionKeyStream,
  script: scriptStream,
} satisfies Record<CatalogEntry['kind'], (rid: string) => string>;

export const streamOfEntry = ({ kind, state }: CatalogEntry): string => streams[kind](state.rid);

/** Checks that the catalog's state of a user, client encryption key or script agrees with its stream. */
export async function checkEntry(
  stream: string,
  entry: CatalogEntry | undefined,
  { log, upTo, report }: Examination,
): Promise<void> {
  const events = await log.readStream(stream);
  const read = events.findLastIndex(({ position }) => position <= upTo) + 1;
  // The entry may have changed since the log was read. Then the catalog's state is that of a longer part of the stream.
  for (let length = read; length <= events.length; length += 1) {
    if (sameJson(shownOf(stream, events.slice(0, length)), entry?.state)) return;
  }
  report('entry-differs', stream, entry === undefined ? 'not in the catalog' : 'the catalog has it otherwise');
}

/**
 * What the catalog must have of a stream: nothing for a deleted user or script, or for a name that a user of another
 * stream took.
 */
function shownOf(stream: string, events: readonly RecordedEvent[]): unknown {
  const state = foldOfEntry(stream)!(events);
  const { status } = state as { readonly status?: string };
  return status === 'deleted' || status === 'taken' ? undefined : state;
}

/**
 * Checks that the catalog's states of all databases agree with their streams.
 *
 * @param met the streams of databases that have an event in the log
 */
export async function checkDatabases(
  met: Iterable<string>,
  { log, store, upTo, report, pace }: Examination,
): Promise<void> {
  const unshown = new Set(met);
  for (const { number, state } of await store.databases()) {
    await pace.step();
    const stream = databaseStream(state.rid);
    unshown.delete(stream);
    if (number > upTo) continue;
    const events = await log.readStream(stream);
    if (events.length === 0) {
      report('entry-without-reason', stream, 'in the catalog, but never created by the log');
      continue;
    }
    try {
      let recorded: DatabaseState | undefined;
      let isShown = false;
      for (const [index, event] of events.entries()) {
        recorded = evolveDatabase(recorded, event);
        // The database may have changed since the log was read. So the catalog may have the state at that time, or any later one.
        const isLater = (events[index + 1]?.position ?? Number.POSITIVE_INFINITY) > upTo;
        isShown ||= isLater && sameJson(recorded, state);
      }
      if (!isShown) report('entry-differs', stream, 'the catalog has it otherwise');
    } catch (error) {
      report('unreadable-event', stream, (error as Error).message);
    }
  }
  for (const stream of unshown) report('entry-differs', stream, 'not in the catalog');
}

/**
 * Checks that the catalog's states of all containers agree with their streams.
 *
 * @param met the rids of containers that have an event in the log
 */
export async function checkContainers(met: readonly string[], examination: Examination): Promise<void> {
  const { log, store, upTo, report, containerOf, numbers, pace } = examination;
  for (const { number, state } of await store.containers()) {
    await pace.step();
    if (number > upTo) continue;
    const known = await containerOf(state.rid);
    const stream = containerStream(state.rid);
    if (!known.isWhole) continue;
    if (known.state === undefined) {
      report('entry-without-reason', stream, 'in the catalog, but never created by the log');
      continue;
    }
    // Items without a name are reported themselves.
    const { hasNameless: _, ...own } = state;
    const shown = asJson(own);
    const isOf = (read: Container) =>
      [read.state, ...read.later].some((one) => one !== undefined && sameJson(asJson(one), shown));
    // The container may have changed since the log was read, since its stream was read, and since the catalog was read.
    if (isOf(known) || isOf(await readContainer(log, state.rid, upTo, () => {}))) continue;
    report('entry-differs', stream, 'the catalog has it otherwise');
  }
  for (const rid of met) {
    await pace.step();
    const { state } = await containerOf(rid);
    if (state === undefined) continue;
    if (!numbers.has(rid)) report('entry-differs', containerStream(rid), 'not in the catalog');
    const database = databaseStream(state.databaseRid);
    if ((await log.readLast(database)) === undefined) {
      report(
        'unreadable-event',
        database,
        `the log does not have the events of this database any more, which contains ${state.name}`,
      );
    }
  }
}

/** With the holds as a list, because a state has them in a register. */
function asJson(state: ContainerState): unknown {
  return JSON.parse(JSON.stringify({ ...state, retention: { ...state.retention, holds: [...state.retention.holds] } }));
}
