import { hash } from 'node:crypto';
import { foldClientEncryptionKey } from '@epitaph/core/client-encryption-key/evolve.ts';
import {
  clientEncryptionKeyStream,
  parseClientEncryptionKeyStream,
} from '@epitaph/core/client-encryption-key/stream-name.ts';
import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream, parseContainerStream } from '@epitaph/core/container/stream-name.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { type DocumentPath, parseDocumentPath, valueAt } from '@epitaph/core/document-path.ts';
import { isItemWrite, type ItemEvent, type ItemWritten } from '@epitaph/core/item/events.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import { lifeTail, readLife } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import type { PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';
import { foldUniqueKey } from '@epitaph/core/unique-key/evolve.ts';
import { foldUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import type { BodySealer } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import { type ClearCopy, type ClearEntry, clearValue } from '../items/clear-values.ts';
import type { CatalogEntry, ItemRow, ReadModelStore } from '../read-model-store.ts';

/** Events read at a time, without their bodies. */
const PAGE_EVENTS = 1_000;
/** Bodies that are held at a time. */
const BODIES_AT_ONCE = 16;
/** Rows of the read models read at a time. */
const ROWS_AT_ONCE = 1_000;
/** Items whose values in clear are looked for at a time: each time all of their container are gone through. */
const COPIES_OF_AT_ONCE = 200_000;

export interface FsckProblem {
  readonly code:
    | 'missing-without-reason'
    | 'shown-after-its-end'
    | 'row-differs'
    | 'row-without-item'
    | 'clear-copies-differ'
    | 'clear-copies-left'
    | 'entry-differs'
    | 'entry-without-reason'
    | 'key-missing'
    | 'key-not-destroyed'
    | 'body-unreadable'
    | 'writes-left-after-purge'
    | 'wrong-deadline'
    | 'gap-in-lives'
    | 'unique-key-not-held'
    | 'event-after-end'
    | 'unreadable-event';
  readonly subject: string;
  readonly message: string;
}

export interface FsckReport {
  readonly events: number;
  readonly items: number;
  readonly lives: number;
  readonly problems: readonly FsckProblem[];
}

export interface FsckOptions {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly store: ReadModelStore;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Resolves when the purge has truncated what it has recorded as purged. */
  readonly settled?: () => Promise<void>;
}

type Report = (code: FsckProblem['code'], subject: string, message: string) => void;

/** Problems listed at most. With so many the rest would say no more. */
const PROBLEM_LIMIT = 1_000;

/** A life as its events say, up to where the log is read. */
interface Life {
  lastType: string;
  lastPosition: number;
  birth: number;
  ts: number;
  ttl: number | null;
  key: number;
  id: string;
  partitionKey: string;
  writesLeft: boolean;
  purged: boolean;
  expiredAtMs: number | null;
  uniqueKeys: readonly string[];
}

/** A container as its stream says, up to where the log is read. */
interface Container {
  /** Undefined where none of its events could be read. */
  readonly state: ContainerState | undefined;
  readonly clearPaths: readonly DocumentPath[];
  /** By partition key. */
  readonly partitionKeyDeletes: ReadonlyMap<string, readonly { readonly position: number; readonly atMs: number }[]>;
}

/** What the parts of an examination share. */
interface Examination extends FsckOptions {
  /** Where in the log it ends. */
  readonly upTo: number;
  readonly pace: Pace;
  readonly report: Report;
  readonly containerOf: (rid: string) => Promise<Container>;
}

/**
 * Derives from the log alone what the read model must hold, by other code than the projections', and compares. Every
 * item that is not there must have the event that says why; every key must be there or destroyed as the log says.
 *
 * A life is examined when its last event is met, so that one is in memory at a time, however many there are.
 */
export async function fsck(options: FsckOptions): Promise<FsckReport> {
  const { log, store, signal, onProgress } = options;
  const problems: FsckProblem[] = [];
  const report: Report = (code, subject, message) => {
    if (problems.length < PROBLEM_LIMIT) problems.push({ code, subject, message });
  };
  const upTo = await store.checkpoint();
  const containers = new Map<string, Promise<Container>>();
  const containerOf = (rid: string): Promise<Container> => {
    let container = containers.get(rid);
    if (container === undefined) containers.set(rid, (container = readContainer(log, rid, upTo, report)));
    return container;
  };
  const examination: Examination = { ...options, upTo, pace: new Pace(), report, containerOf };
  const numbers = new Map<string, number>();
  for (const { number, state } of await store.containers()) numbers.set(state.rid, number);
  const shown = new Map((await store.catalogEntries()).map((entry) => [streamOfEntry(entry), entry]));
  const unread = new Set(shown.keys());
  /** Streams that have gone on since: of these no event is the last one. */
  const goneOn = new Set<string>();
  const leftAfterPurge: string[] = [];
  let position = 0;
  let events = 0;
  let lives = 0;

  reading: for (;;) {
    signal?.throwIfAborted();
    const page = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (page.length === 0) break;
    for await (const { event, last } of inFull(log, page)) {
      await examination.pace.step();
      if (event.position > upTo) break reading;
      position = event.position;
      events += 1;
      const { stream } = event;
      const isLast = last === position;
      const isItem = parseItemStream(stream) !== undefined;
      if (last !== undefined && last > upTo && !goneOn.has(stream)) {
        goneOn.add(stream);
        if (isItem) lives += 1;
      }
      try {
        const containerRid = parseContainerStream(stream);
        if (containerRid !== undefined) await containerOf(containerRid);
        else if (foldOfEntry(stream) !== undefined) {
          unread.delete(stream);
          if (isLast) await checkEntry(stream, shown.get(stream), examination);
        } else if (isItem) {
          if (isLast) lives += 1;
          await checkWrite(event, examination);
          if (isLast) await examineLife(event, numbers, leftAfterPurge, examination);
        }
      } catch (error) {
        report('unreadable-event', stream, (error as Error).message);
      }
    }
    onProgress?.(position, upTo);
  }
  for (const stream of goneOn) {
    if (foldOfEntry(stream) !== undefined) await checkEntry(stream, shown.get(stream), examination);
  }
  for (const stream of unread) {
    if (shown.get(stream)!.number <= upTo) {
      report('entry-without-reason', stream, 'in the catalog, but never created by the log');
    }
  }
  // A purge truncates a moment after its record: what it has under way is not a fault.
  if (leftAfterPurge.length > 0) await options.settled?.();
  for (const stream of leftAfterPurge) {
    if ((await lifeTail(log, stream)).some(isItemWrite)) {
      report('writes-left-after-purge', stream, 'purged, but its sealed writes are still in the log');
    }
  }
  let items = 0;
  for (const container of await store.containers()) items += await checkRows(container, examination);
  return { events, items, lives, problems };
}

/** What a container's stream says; of an event that can't be read, what is left without it. */
async function readContainer(log: EventLog, rid: string, upTo: number, report: Report): Promise<Container> {
  const stream = containerStream(rid);
  const partitionKeyDeletes = new Map<string, { readonly position: number; readonly atMs: number }[]>();
  let state: ContainerState | undefined;
  for (const event of await log.readStream(stream)) {
    if (event.position > upTo) break;
    try {
      state = evolveContainer(state, event);
    } catch (error) {
      report('unreadable-event', stream, (error as Error).message);
      continue;
    }
    if (event.type === 'PartitionKeyDeleted') {
      const partitionKey = event.data['partitionKey'] as string;
      const left = { position: event.position, atMs: event.occurredAtMs };
      const known = partitionKeyDeletes.get(partitionKey);
      if (known === undefined) partitionKeyDeletes.set(partitionKey, [left]);
      else known.push(left);
    }
  }
  const paths = state?.definition.epitaph?.clearPaths ?? [];
  return { state, clearPaths: paths.map((path) => parseDocumentPath(path) ?? []), partitionKeyDeletes };
}

/**
 * The events with their bodies, of which few are held at a time: a page of them may be gigabytes. With each that may be
 * the last of its stream, for no later one is on the page, where that one is.
 */
async function* inFull(
  log: EventLog,
  page: readonly RecordedEvent[],
): AsyncGenerator<{ readonly event: RecordedEvent; readonly last: number | undefined }> {
  const lastOnPage = new Map(page.map(({ stream, position }) => [stream, position]));
  for (let start = 0; start < page.length; start += BODIES_AT_ONCE) {
    const read = page.slice(start, start + BODIES_AT_ONCE).map(async (event) => {
      const [full, last] = await Promise.all([
        isItemWrite(event) ? log.readBody(event.position) : undefined,
        lastOnPage.get(event.stream) === event.position ? log.readLast(event.stream) : undefined,
      ]);
      return { event: full === undefined ? event : { ...event, body: full.body }, last: last?.position };
    });
    yield* await Promise.all(read);
  }
}

/** What a write has sealed opens, as long as its key is there. */
async function checkWrite(recorded: RecordedEvent, { vault, sealer, report }: Examination): Promise<void> {
  const event = readItemEvent(recorded);
  if (event.type !== 'ItemUpserted' && event.type !== 'ItemRecovered') return;
  const { stream, revision, body } = recorded;
  const found = await vault.findKey(event.data.key, stream);
  if (found.status !== 'there') return;
  try {
    sealer.open(found.key, stream, revision, body ?? new Uint8Array());
  } catch (error) {
    report('body-unreadable', stream, (error as Error).message);
  }
}

/** A life whose last event this is. */
async function examineLife(
  last: RecordedEvent,
  numbers: ReadonlyMap<string, number>,
  leftAfterPurge: string[],
  examination: Examination,
): Promise<void> {
  const { log, upTo, report } = examination;
  const { stream } = last;
  const container = await examination.containerOf(parseItemStream(stream)!.containerRid);
  const begin = () => new GrowingLife(stream, container);
  const take = (growing: GrowingLife, events: readonly RecordedEvent[]) =>
    events.forEach((event) => growing.add(event));
  const growing = last.revision === 0 ? begin() : await readLife(log, stream, begin, take);
  if (last.revision === 0) growing?.add(last);
  const life = growing?.life;
  if (growing === undefined || life === undefined) return;
  const { found } = growing;
  const told: Report = (...problem) => void found.push(problem);
  await checkLife(stream, life, container, numbers, { ...examination, report: told });
  if (life.purged && life.writesLeft) leftAfterPurge.push(stream);
  // What came after the log was read is not this examination's business.
  if (found.length > 0 && !(await hasGoneOn(log, stream, life, upTo))) for (const problem of found) report(...problem);
}

async function checkLife(
  stream: string,
  life: Life,
  { state, partitionKeyDeletes }: Container,
  numbers: ReadonlyMap<string, number>,
  { log, vault, store, report }: Examination,
): Promise<void> {
  const { prefix, containerRid, life: number } = parseItemStream(stream)!;
  if (number > 0 && (await log.readLast(itemStream(prefix, number - 1))) === undefined) {
    report('gap-in-lives', stream, `life ${number} is there, life ${number - 1} is not`);
  }
  if (state === undefined) {
    report('row-without-item', stream, 'the container of this item was never created');
    return;
  }
  const { timeline, definition } = state;
  if (isItemWrite({ type: life.lastType })) {
    for (const name of life.uniqueKeys) {
      const last = await log.readLast(name);
      try {
        const { holder } = foldUniqueKey(last === undefined ? [] : [last]);
        // Whoever takes the value of an item that has met its end puts that end on record in the same append.
        if (holder !== stream) {
          report('unique-key-not-held', stream, `live, but ${name} is held by ${holder ?? 'nobody'}`);
        }
      } catch (error) {
        report('unreadable-event', name, (error as Error).message);
      }
    }
    if (life.uniqueKeys.length !== (definition.uniqueKeyPolicy?.uniqueKeys?.length ?? 0)) {
      report(
        'unique-key-not-held',
        stream,
        `live, but its last write names ${life.uniqueKeys.length} values of unique keys`,
      );
    }
  }
  if (life.expiredAtMs !== null) {
    const oracle = expiryOf(life, timeline);
    if (oracle?.expiredAtMs !== life.expiredAtMs) {
      report(
        'wrong-deadline',
        stream,
        `recorded as expired at ${life.expiredAtMs}, but its times and policies say ${oracle?.expiredAtMs ?? 'never'}`,
      );
    }
  }
  const key = (await vault.findKey(life.key, stream)).status;
  if (life.purged) {
    if (key !== 'destroyed') report('key-not-destroyed', stream, `purged, but its key is ${key}`);
  } else if (key === 'unknown') report('key-missing', stream, 'its key is unknown to the vault');
  else if (key === 'destroyed' && isItemWrite({ type: life.lastType }) && !(await isBeingErased(log, stream, state))) {
    report('key-missing', stream, 'its key was destroyed, but nothing says why');
  }
  const container = numbers.get(containerRid);
  const row = container === undefined ? undefined : await store.findItem(container, life.partitionKey, life.id);
  if (isItemWrite({ type: life.lastType }) && !leftWithPartitionKey(life, timeline, partitionKeyDeletes)) {
    if (row === undefined || row.life < number) {
      report('missing-without-reason', stream, 'live by the log, but not in the read model');
    } else if (
      row.position !== life.lastPosition ||
      row.ts !== life.ts ||
      row.ttl !== life.ttl ||
      row.birth !== life.birth
    ) {
      report('row-differs', stream, `the read model has it at ${row.position}, the log at ${life.lastPosition}`);
    }
  } else if (row !== undefined && row.life === number && row.position <= life.lastPosition) {
    // Written after that end, it is of another stream: its container's secret was lost in a restore since.
    const end = isItemWrite({ type: life.lastType }) ? 'the delete of its partition key' : life.lastType;
    report('shown-after-its-end', stream, `ended by ${end}, but still in the read model`);
  }
}

/** True for a life that its partition key took with it: it was visible then. */
function leftWithPartitionKey(
  life: Pick<Life, 'partitionKey' | 'lastPosition' | 'ts' | 'ttl'>,
  timeline: PolicyTimeline,
  deletes: Container['partitionKeyDeletes'],
): boolean {
  const expiredAtMs = expiryOf(life, timeline)?.expiredAtMs ?? Number.POSITIVE_INFINITY;
  return (
    deletes.get(life.partitionKey)?.some(({ position, atMs }) => position > life.lastPosition && expiredAtMs > atMs) ===
    true
  );
}

/** True for a life that was written, has ended or was erased since the log was read up to a position. */
async function hasGoneOn(log: EventLog, stream: string, life: Life, upTo: number): Promise<boolean> {
  if ((await log.readLast(stream))?.position !== life.lastPosition) return true;
  // Its own stream says of what befalls it from outside only when the purge comes to it.
  const { containerRid, prefix } = parseItemStream(stream)!;
  return (await log.readStream(containerStream(containerRid))).some(({ type, position, data }) => {
    if (position <= upTo) return false;
    if (type === 'PartitionKeyDeleted') return data['partitionKey'] === life.partitionKey;
    if (type === 'ErasureRequested') return data['item'] === withoutContainer(containerRid, prefix);
    return type === 'ContainerDeleted';
  });
}

/** True for an item that is erased on request or goes with its container: of these nothing is on record before the key's end. */
async function isBeingErased(
  log: EventLog,
  stream: string,
  { rid, databaseRid, deletedAtMs, retention }: ContainerState,
): Promise<boolean> {
  const item = withoutContainer(rid, parseItemStream(stream)!.prefix);
  if (deletedAtMs !== null || retention.erasures.some((pending) => pending.item === item)) return true;
  return (await log.readLast(databaseStream(databaseRid)))?.type === 'DatabaseDeleted';
}

/**
 * Every row of a container is of an item that the log shows as live, and what is in clear of it is what its document
 * says; of what is not live nothing is in clear.
 *
 * @returns how many rows there are
 */
async function checkRows({ number, state: { rid } }: CatalogContainer, examination: Examination): Promise<number> {
  const { store, upTo, report, pace, signal } = examination;
  const container = await examination.containerOf(rid);
  const hasCopies = container.clearPaths.length > 0 || (await store.clearCopies(number, undefined, 1)).length > 0;
  let items = 0;
  let expected = new Map<number, ExpectedCopies>();
  let from = 0;
  for (let afterBirth = 0; ;) {
    signal?.throwIfAborted();
    const rows = await store.allItems(number, afterBirth, ROWS_AT_ONCE);
    for (let start = 0; start < rows.length; start += BODIES_AT_ONCE) {
      const some = rows.slice(start, start + BODIES_AT_ONCE);
      const found = await Promise.all(some.map((row) => liveByLog(row, rid, container, examination)));
      for (const [index, row] of some.entries()) {
        const live = found[index]!;
        if (live === 'no') {
          report(
            'row-without-item',
            rid,
            `the read model has an item of birth ${row.birth} that the log does not show as live`,
          );
        } else if (hasCopies) {
          const { birth } = row;
          expected.set(birth, {
            row,
            sum: live === 'unknown' ? undefined : await clearSumOf(live, container, examination),
          });
        }
      }
      await pace.step();
    }
    items += rows.length;
    const last = rows.at(-1);
    if (hasCopies && (last === undefined || expected.size >= COPIES_OF_AT_ONCE)) {
      const births = { after: from, upTo: last?.birth ?? upTo };
      await checkClearCopies({ number, rid }, births, expected, examination);
      from = births.upTo;
      expected = new Map();
    }
    if (last === undefined) return items;
    afterBirth = last.birth;
  }
}

/** The write that a row is of, where the log shows it as live; unknown for what has changed since the log was read. */
async function liveByLog(
  row: ItemRow,
  rid: string,
  { state, partitionKeyDeletes }: Container,
  { log, store, upTo }: Examination,
): Promise<RecordedEvent | 'no' | 'unknown'> {
  if (row.birth > upTo || row.position > upTo) return 'unknown';
  const write = await log.readAt(row.position);
  if (write !== undefined && isItemWrite(write) && state !== undefined) {
    const item = parseItemStream(write.stream);
    const { id, partitionKey } = write.data;
    if (item?.containerRid === rid && item.life === row.life && id === row.id && partitionKey === row.partitionKey) {
      const last = await log.readLast(write.stream);
      if (last === undefined || last.position > upTo) return 'unknown';
      if (isItemWrite(last)) {
        const { ts, ttl } = readItemWrite(last);
        const life = { ts, ttl, partitionKey: row.partitionKey, lastPosition: last.position };
        // That it stands at an earlier write is told where its life is examined.
        if (!leftWithPartitionKey(life, state.timeline, partitionKeyDeletes))
          return write.position === last.position ? write : 'unknown';
      }
    }
  }
  const now = await store.findItem(row.container, row.partitionKey, row.id);
  return now?.birth === row.birth && now.position === row.position ? 'no' : 'unknown';
}

/** Of the copies in clear that a write gives, as {@link clearSum} has it; undefined where it does not open. */
async function clearSumOf(
  write: RecordedEvent,
  { clearPaths }: Container,
  { vault, sealer }: Examination,
): Promise<number | undefined> {
  if (clearPaths.length === 0) return 0;
  const { stream, revision, body = new Uint8Array() } = write;
  const found = await vault.findKey(readItemWrite(write).key, stream);
  if (found.status !== 'there') return undefined;
  try {
    return clearSum(copiesOf(sealer.open(found.key, stream, revision, body), clearPaths));
  } catch {
    // Told where the write itself is examined.
    return undefined;
  }
}

/** What there must be in clear of an item; undefined where that is not known. */
interface ExpectedCopies {
  readonly row: ItemRow;
  readonly sum: number | undefined;
}

/** What is in clear of live items is what their documents give, and of others nothing is: of items born in a part of the log. */
async function checkClearCopies(
  { number, rid }: { readonly number: number; readonly rid: string },
  births: { readonly after: number; readonly upTo: number },
  expected: ReadonlyMap<number, ExpectedCopies>,
  { store, signal, pace, report }: Examination,
): Promise<void> {
  const sums = new Map<number, number>();
  const left = new Set<number>();
  for (let after: ClearCopy | undefined; ;) {
    const copies = await store.clearCopies(number, after, ROWS_AT_ONCE);
    for (const copy of copies) {
      const { birth } = copy;
      if (birth <= births.after || birth > births.upTo) continue;
      if (expected.has(birth)) sums.set(birth, plus(sums.get(birth) ?? 0, clearSum([copy])));
      else left.add(birth);
    }
    after = copies.at(-1);
    if (after === undefined) break;
    signal?.throwIfAborted();
    await pace.step();
  }
  for (const birth of left) {
    report(
      'clear-copies-left',
      rid,
      `values in clear of an item of birth ${birth}, which the log does not show as live`,
    );
  }
  for (const [birth, { sum, row }] of expected) {
    await pace.step();
    if (sum === undefined || (sums.get(birth) ?? 0) === sum) continue;
    // It may have been written, or have left, since the log was read.
    const now = await store.findItem(number, row.partitionKey, row.id);
    if (now?.position !== row.position) continue;
    report('clear-copies-differ', rid, `what is in clear of the item of birth ${birth} is not what its document says`);
  }
}

/** One number for what is in clear of an item, in whatever order that comes: 48 bits of a hash of each value, added up. */
function clearSum(copies: readonly ClearEntry[]): number {
  return copies
    .map(({ path, value }) => hash('sha256', Buffer.from(`${path} ${value}`, 'utf16le'), 'buffer').readUIntBE(0, 6))
    .reduce(plus, 0);
}

function copiesOf(body: Uint8Array, paths: readonly DocumentPath[]): ClearEntry[] {
  const document: unknown = JSON.parse(Buffer.from(body).toString('utf8'));
  return paths.flatMap((path, index) => {
    const value = clearValue(valueAt(document, path));
    return value === undefined ? [] : [{ path: index, value }];
  });
}

const plus = (left: number, right: number): number => (left + right) % 2 ** 48;

/** What folds a stream whose state is an entry of the catalog. */
function foldOfEntry(stream: string): ((events: readonly RecordedEvent[]) => unknown) | undefined {
  if (parseUserStream(stream) !== undefined) return foldUser;
  if (parseClientEncryptionKeyStream(stream) !== undefined) return foldClientEncryptionKey;
  return undefined;
}

const streamOfEntry = ({ kind, state }: CatalogEntry): string =>
  kind === 'user' ? userStream(state.rid) : clientEncryptionKeyStream(state.rid);

/** A user or client encryption key is in the catalog as its stream says. */
async function checkEntry(
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

/** A life by its events, of those that can be read, and what is wrong with their order. */
class GrowingLife {
  readonly #stream: string;
  readonly #container: Container;
  readonly found: Parameters<Report>[] = [];
  /** Undefined while none could be read. */
  life: Life | undefined;

  constructor(stream: string, container: Container) {
    this.#stream = stream;
    this.#container = container;
  }

  add(recorded: RecordedEvent): void {
    let event: ItemEvent;
    try {
      event = readItemEvent(recorded);
    } catch {
      // Told when it was met.
      return;
    }
    const { position } = recorded;
    const report = (text: string) => void this.found.push(['event-after-end', this.#stream, text]);
    const life = (this.life ??= {
      lastType: event.type,
      lastPosition: position,
      birth: position,
      ts: 0,
      ttl: null,
      key: 0,
      id: event.data.id,
      partitionKey: event.data.partitionKey,
      writesLeft: false,
      purged: false,
      expiredAtMs: null,
      uniqueKeys: [],
    });
    const { lastPosition, lastType } = life;
    if (life.purged) report(`${event.type} at ${position} follows the purge`);
    if (position > lastPosition && isItemWrite(event)) {
      if (!isItemWrite({ type: lastType })) {
        report(`a write at ${position} follows ${lastType}`);
      } else if (
        this.#container.partitionKeyDeletes
          .get(life.partitionKey)
          ?.some((left) => left.position > lastPosition && left.position < position) === true
      ) {
        report(`a write at ${position} follows the delete of its partition key`);
      }
    }
    life.lastType = event.type;
    life.lastPosition = position;
    switch (event.type) {
      case 'ItemUpserted':
      case 'ItemRecovered':
        life.ts = event.data.ts;
        life.ttl = event.data.ttl;
        life.key = event.data.key;
        life.uniqueKeys = event.data.uniqueKeys ?? [];
        life.writesLeft = true;
        break;
      case 'ItemExpired':
        life.expiredAtMs = event.data.expiredAtMs;
        life.ts = event.data.ts;
        break;
      case 'ItemPurged': {
        const last = decodeLedger(event.data.ledger).at(-1)!;
        life.ts = Math.floor(last.atMs / 1000);
        life.ttl = last.ttl;
        life.key = event.data.key;
        life.purged = true;
        break;
      }
      default:
        break;
    }
  }
}

function readItemWrite(recorded: RecordedEvent): ItemWritten {
  const event = readItemEvent(recorded);
  invariant(isItemWrite(event), 'asked for writes alone');
  return event.data;
}
