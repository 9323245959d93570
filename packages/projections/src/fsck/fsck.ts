import { isoTime } from '@epitaph/core/clock.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { containerStream, parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import { lifeTail } from '@epitaph/core/item/read-life.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { UnreadableSecret } from '@epitaph/core/vault/key-vault.ts';
import { readUniqueKeyEvent } from '@epitaph/core/unique-key/upcast.ts';
import { parseUniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import { unlessDamaged, UnreadableEvent, whyUnreadable } from '@epitaph/core/upcast.ts';
import { isPurgeRunStream, readPurgeRunEvent } from '../purge/events.ts';
import { BACKUPS_STREAM, namesLost, readBackupEvent } from '../purge/vault-copies.ts';
import { checkContainers, checkDatabases, checkEntry, foldOfEntry, streamOfEntry } from './catalog-entries.ts';
import {
  BODIES_AT_ONCE,
  END_LOST,
  type Container,
  type Examination,
  type FsckOptions,
  type FsckProblem,
  readContainer,
  type Report,
} from './examination.ts';
import { checkLeft, checkLostDeletes } from './left.ts';
import { checkWrite, examineLife } from './lives.ts';
import { checkRetention } from './retention.ts';
import { checkRows } from './rows.ts';

/** How many events are read at a time, without their bodies. */
const PAGE_EVENTS = 1_000;

export interface FsckReport {
  readonly events: number;
  readonly items: number;
  readonly lives: number;
  readonly problems: readonly FsckProblem[];
}

/** How many problems are listed at most. Beyond that, more of them say nothing new. */
const PROBLEM_LIMIT = 1_000;

/**
 * Derives from the log alone what must be in the read model, with other code than that of the projections, and
 * compares. For every item that is not there, an event must say why. Every key must be there, or be destroyed according
 * to the log.
 *
 * A life is examined when its last event is read, so that only one life at a time is in memory, however many there are.
 */
export async function fsck(options: FsckOptions): Promise<FsckReport> {
  const { log, store, signal, onProgress } = options;
  const problems: FsckProblem[] = [];
  const damaged = new Set<string>();
  const report: Report = (code, subject, message) => {
    if (code === 'unreadable-event' || code === 'writes-missing') {
      // The same problem may be found when the log is read through, and when a single stream is read.
      if (damaged.has(`${subject} ${message}`)) return;
      damaged.add(`${subject} ${message}`);
    }
    if (problems.length < PROBLEM_LIMIT) problems.push({ code, subject, message });
  };
  const upTo = await store.checkpoint();
  const inCatalog = new Map((await store.containers()).map((container) => [container.state.rid, container]));
  const containers = new Map<string, Promise<Container>>();
  const containerOf = (rid: string): Promise<Container> => {
    let container = containers.get(rid);
    if (container === undefined) {
      container = readContainer(log, rid, upTo, report, inCatalog.get(rid)?.state.partitionKeyDeletes);
      containers.set(rid, container);
    }
    return container;
  };
  const numbers = new Map([...inCatalog].map(([rid, { number }]) => [rid, number]));
  const shownAfterEnd = new Set<number>();
  const examination: Examination = {
    ...options,
    upTo,
    pace: new Pace(),
    report,
    containerOf,
    numbers,
    // A damaged event is reported when the log is read through.
    namesLost: (await namesLost(log).catch(unlessDamaged)) ?? new Map<string, number>(),
    deletesByLives: new Map(),
    shownAfterEnd,
    onRowsChecked: (rows) => {
      // There may be thousands of containers, most of them without rows.
      if (rows === 0) return;
      rowsChecked += rows;
      onProgress?.(upTo + Math.floor(upTo * Math.min(1, rowsChecked / Math.max(lives, 1))), total);
    },
  };
  const shown = new Map((await store.catalogEntries()).map((entry) => [streamOfEntry(entry), entry]));
  const unread = new Set(shown.keys());
  /** Streams with events after `upTo`, so that none of the events read here is their last one. */
  const goneOn = new Set<string>();
  const databases = new Set<string>();
  /** Containers that have items in the log. */
  const named = new Set<string>();
  /** For streams that are never truncated: the next revision, and the time of the event before it. */
  const nextRevision = new Map<string, { readonly revision: number; readonly afterMs: number }>();
  const leftAfterPurge: string[] = [];
  let position = 0;
  let events = 0;
  let lives = 0;
  /**
   * The total for the progress: the log is read up to `upTo`, and then the rows, which are counted as the same amount.
   * Each life has a row, as an item or as a disappearance.
   */
  const total = 2 * upTo;
  let rowsChecked = 0;

  reading: for (;;) {
    signal?.throwIfAborted();
    const page = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (page.length === 0) break;
    for await (const { event, last, isEndLost } of inFull(log, page)) {
      await examination.pace.step();
      if (event.position > upTo) break reading;
      position = event.position;
      events += 1;
      const { stream } = event;
      const isLast = last === position;
      const place = parseItemStream(stream);
      const isItem = place !== undefined;
      if (isItem) named.add(place.containerRid);
      if (last !== undefined && last > upTo && !goneOn.has(stream)) {
        goneOn.add(stream);
        if (isItem) lives += 1;
      }
      if (isEndLost) {
        report(isItem ? 'writes-missing' : 'unreadable-event', stream, END_LOST);
      }
      try {
        const containerRid = parseContainerStream(stream);
        if (containerRid !== undefined || isNeverCut(stream)) {
          const next = nextRevision.get(stream);
          if (event.revision !== (next?.revision ?? 0)) {
            report('unreadable-event', stream, lostBefore(event, next));
          }
          // There are more and more runs of the purge, so completed ones are dropped.
          if (isLast) nextRevision.delete(stream);
          else nextRevision.set(stream, { revision: event.revision + 1, afterMs: event.occurredAtMs });
        }
        if (containerRid !== undefined) await containerOf(containerRid);
        else if (parseDatabaseStream(stream) !== undefined) databases.add(stream);
        else if (foldOfEntry(stream) !== undefined) {
          unread.delete(stream);
          if (isLast) await checkEntry(stream, shown.get(stream), examination);
        } else if (isItem) {
          if (isLast) lives += 1;
          await checkWrite(event, examination);
          if (isLast && (await examineLife(event, examination)).hasWritesAfterPurge) leftAfterPurge.push(stream);
        } else readOther(event);
      } catch (error) {
        // An error of a server that can't be reached at present says nothing about the data.
        if (error instanceof StorageUnavailable && !error.isForOperator) throw error;
        report('unreadable-event', stream, (error as Error).message);
      }
    }
    onProgress?.(position, total);
  }
  for (const stream of goneOn) {
    if (foldOfEntry(stream) !== undefined) await checkEntry(stream, shown.get(stream), examination);
  }
  for (const stream of unread) {
    if (shown.get(stream)!.number <= upTo) {
      report('entry-without-reason', stream, 'in the catalog, but never created by the log');
    }
  }
  // A purge truncates shortly after its record, so a truncation in progress is no problem.
  if (leftAfterPurge.length > 0) await options.settled?.();
  for (const stream of leftAfterPurge) {
    if ((await lifeTail(log, stream)).some(isItemWrite)) {
      report('writes-left-after-purge', stream, 'purged, but its sealed writes are still in the log');
    }
  }
  for (const rid of named) {
    await examination.pace.step();
    await checkSecret(rid, examination);
  }
  await checkDatabases(databases, examination);
  await checkContainers([...containers.keys()], examination);
  await checkLostDeletes(containers.keys(), examination);
  await checkRetention(containers.keys(), examination);
  let items = 0;
  for (const container of await store.containers()) {
    await examination.pace.step();
    items += await checkRows(container, examination);
    await checkLeft(container, examination);
  }
  onProgress?.(total, total);
  return { events, items, lives, problems };
}

/**
 * The events with their bodies, a few at a time, because the bodies of a page may be gigabytes. For an event that is
 * the last of its stream on the page, `last` is the position of the stream's last event, or `isEndLost` says that it is
 * lost.
 */
async function* inFull(
  log: EventLog,
  page: readonly RecordedEvent[],
): AsyncGenerator<{ readonly event: RecordedEvent; readonly last: number | undefined; readonly isEndLost: boolean }> {
  const lastOnPage = new Map(page.map(({ stream, position }) => [stream, position]));
  for (let start = 0; start < page.length; start += BODIES_AT_ONCE) {
    const read = page.slice(start, start + BODIES_AT_ONCE).map(async (event) => {
      const isLastOnPage = lastOnPage.get(event.stream) === event.position;
      const [full, last] = await Promise.all([
        isItemWrite(event) && whyUnreadable(event) === undefined ? log.readBody(event.position) : undefined,
        isLastOnPage ? log.readLast(event.stream) : undefined,
      ]);
      const isEndLost = isLastOnPage && (last === undefined || last.othersBehind === true);
      return { event: full === undefined ? event : { ...event, body: full.body }, last: last?.position, isEndLost };
    });
    yield* await Promise.all(read);
  }
}

/** The message for a stream that lacks events before an existing one. */
function lostBefore(
  { revision, occurredAtMs }: RecordedEvent,
  { revision: next, afterMs }: { readonly revision: number; readonly afterMs?: number } = { revision: 0 },
): string {
  const events = revision === next + 1 ? `event of revision ${next}` : `events of revision ${next} to ${revision - 1}`;
  const since = afterMs === undefined ? '' : `from ${isoTime(afterMs)} `;
  return `the log does not have its ${events} any more, recorded ${since}to ${isoTime(occurredAtMs)}`;
}

/** True for other streams that are never truncated, and in which nothing is appended after an event of another program. */
const isNeverCut = (stream: string): boolean =>
  parseDatabaseStream(stream) !== undefined || foldOfEntry(stream) !== undefined || isPurgeRunStream(stream);

/** Reads an event of a stream that no part of the examination reads as a whole. */
function readOther(event: RecordedEvent): void {
  if (parseUniqueKeyStream(event.stream) !== undefined) readUniqueKeyEvent(event);
  else if (isPurgeRunStream(event.stream)) readPurgeRunEvent(event);
  else if (event.stream === BACKUPS_STREAM) readBackupEvent(event);
  else {
    const why = whyUnreadable(event);
    if (why !== undefined) throw new UnreadableEvent(why);
  }
}

/** Checks that the vault has the secret which names the streams of a container's items. */
async function checkSecret(rid: string, { vault, report }: Examination): Promise<void> {
  try {
    await vault.containerSecret(rid);
  } catch (error) {
    if (!(error instanceof UnreadableSecret)) throw error;
    report('key-missing', containerStream(rid), error.message);
  }
}
