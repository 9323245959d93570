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
import { isItemWrite } from '@epitaph/core/item/events.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { sameJson } from '@epitaph/core/same-json.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { foldUniqueKey } from '@epitaph/core/unique-key/evolve.ts';
import { foldUser } from '@epitaph/core/user/evolve.ts';
import { parseUserStream, userStream } from '@epitaph/core/user/stream-name.ts';
import type { BodySealer } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { CatalogContainer } from '../catalog/catalog.ts';
import { type ClearCopy, type ClearEntry, clearValue } from '../items/clear-values.ts';
import type { CatalogEntry, ReadModelStore } from '../read-model-store.ts';

/** Events read at a time, without their bodies. */
const PAGE_EVENTS = 1_000;
/** Bodies that are held at a time. */
const BODIES_AT_ONCE = 16;

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

/** Problems listed at most; more than that are counted by the last one. */
const PROBLEM_LIMIT = 1_000;

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
  /** Of the copies in clear that the last write gives, as {@link clearSum} has it; undefined where it did not open. */
  clearSum: number | undefined;
}

/**
 * Derives from the log alone what the read model must hold, by other code than the projections', and compares. Every
 * item that is not there must have the event that says why; every key must be there or destroyed as the log says.
 */
export async function fsck(options: FsckOptions): Promise<FsckReport> {
  const { log, vault, sealer, store, signal } = options;
  const problems: FsckProblem[] = [];
  const report: Report = (code, subject, message) => {
    if (problems.length < PROBLEM_LIMIT) problems.push({ code, subject, message });
  };
  const lives = new Map<string, Life>();
  const clearPaths = new Map<string, readonly DocumentPath[]>();
  const states = new Map<string, ContainerState>();
  const entryEvents = new Map<string, RecordedEvent[]>();
  const partitionKeyDeletes = new Map<string, { readonly position: number; readonly atMs: number }[]>();
  const upTo = await store.checkpoint();
  const pace = new Pace();
  let position = 0;
  let events = 0;

  reading: for (;;) {
    signal?.throwIfAborted();
    const page = await log.readAll(position, PAGE_EVENTS, { withBodies: false });
    if (page.length === 0) break;
    for await (const event of withBodies(log, page)) {
      await pace.step();
      if (event.position > upTo) break reading;
      position = event.position;
      events += 1;
      try {
        const rid = parseContainerStream(event.stream);
        if (rid !== undefined) {
          const before = states.get(rid);
          const state = evolveContainer(before, event);
          states.set(rid, state);
          if (before === undefined) {
            const paths = state.definition.epitaph?.clearPaths ?? [];
            clearPaths.set(
              rid,
              paths.map((path) => parseDocumentPath(path) ?? []),
            );
          }
          if (event.type === 'PartitionKeyDeleted') {
            const key = partitionOf(rid, event.data['partitionKey'] as string);
            const entry = { position: event.position, atMs: event.occurredAtMs };
            partitionKeyDeletes.set(key, [...(partitionKeyDeletes.get(key) ?? []), entry]);
          }
        } else if (foldOfEntry(event.stream) !== undefined) {
          const list = entryEvents.get(event.stream);
          if (list === undefined) entryEvents.set(event.stream, [event]);
          else list.push(event);
        } else {
          const item = parseItemStream(event.stream);
          if (item === undefined) continue;
          const paths = clearPaths.get(item.containerRid) ?? [];
          await examine(event, paths, lives, partitionKeyDeletes, report, vault, sealer);
        }
      } catch (error) {
        report('unreadable-event', event.stream, (error as Error).message);
      }
    }
    options.onProgress?.(position, upTo);
  }

  const numbers = new Map<string, number>();
  for (const { number, state } of await store.containers()) numbers.set(state.rid, number);
  const expectedByContainer = new Map<number, Map<number, Life>>();
  const leftAfterPurge: string[] = [];
  const checkLife = async (stream: string, life: Life, report: Report): Promise<void> => {
    const { prefix, containerRid, life: number } = parseItemStream(stream)!;
    if (number > 0 && !lives.has(`${prefix}.${number - 1}`)) {
      report('gap-in-lives', stream, `life ${number} is there, life ${number - 1} is not`);
    }
    const state = states.get(containerRid);
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
      if (life.writesLeft) leftAfterPurge.push(stream);
    } else if (key === 'unknown') report('key-missing', stream, 'its key is unknown to the vault');
    else if (
      key === 'destroyed' &&
      isItemWrite({ type: life.lastType }) &&
      !(await isBeingErased(log, stream, state))
    ) {
      report('key-missing', stream, 'its key was destroyed, but nothing says why');
    }
    const container = numbers.get(containerRid);
    const row = container === undefined ? undefined : await store.findItem(container, life.partitionKey, life.id);
    const expiry = expiryOf(life, timeline);
    const left = partitionKeyDeletes
      .get(partitionOf(containerRid, life.partitionKey))
      ?.find(
        ({ position: at, atMs }) => at > life.lastPosition && !(expiry !== undefined && expiry.expiredAtMs <= atMs),
      );
    if (isItemWrite({ type: life.lastType }) && left === undefined) {
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
      if (container !== undefined) {
        let expected = expectedByContainer.get(container);
        if (expected === undefined) expectedByContainer.set(container, (expected = new Map()));
        expected.set(life.birth, life);
      }
    } else if (row !== undefined && row.life === number && row.position <= life.lastPosition) {
      // Written after that end, it is of another stream: its container's secret was lost in a restore since.
      const end = isItemWrite({ type: life.lastType }) ? 'the delete of its partition key' : life.lastType;
      report('shown-after-its-end', stream, `ended by ${end}, but still in the read model`);
    }
  };
  let checked = 0;
  for (const [stream, life] of lives) {
    const found: Parameters<Report>[] = [];
    await checkLife(stream, life, (...problem) => void found.push(problem));
    // What came after the log was read is not this examination's business.
    if (found.length > 0 && !(await hasGoneOn(log, stream, life, upTo)))
      for (const problem of found) report(...problem);
    checked += 1;
    if (checked % 500 === 0) signal?.throwIfAborted();
    await pace.step();
  }
  // A purge truncates a moment after its record: what it has under way is not a fault.
  if (leftAfterPurge.length > 0) await options.settled?.();
  for (const stream of leftAfterPurge) {
    const left = await log.readStream(stream, { withBodies: false });
    if (left.some(isItemWrite)) {
      report('writes-left-after-purge', stream, 'purged, but its sealed writes are still in the log');
    }
  }
  let items = 0;
  for (const { number, state } of await store.containers()) {
    let afterBirth = 0;
    for (;;) {
      const rows = await store.allItems(number, afterBirth, 1_000);
      if (rows.length === 0) break;
      afterBirth = rows.at(-1)!.birth;
      items += rows.length;
      for (const row of rows) {
        // What was written after the log was read is not this examination's business.
        if (row.birth <= upTo && row.position <= upTo && expectedByContainer.get(number)?.has(row.birth) !== true) {
          report(
            'row-without-item',
            state.rid,
            `the read model has an item of birth ${row.birth} that the log does not show as live`,
          );
        }
      }
      await pace.step();
    }
  }
  for (const { number, state } of await store.containers()) {
    const live = expectedByContainer.get(number) ?? new Map<number, Life>();
    await checkClearCopies({ number, state }, live, upTo, { ...options, pace }, report);
  }
  await checkEntries(entryEvents, upTo, log, await store.catalogEntries(), report);
  return { events, items, lives: lives.size, problems };
}

/** The events with their bodies, of which few are held at a time: a page of them may be gigabytes. */
async function* withBodies(log: EventLog, page: readonly RecordedEvent[]): AsyncGenerator<RecordedEvent> {
  for (let start = 0; start < page.length; start += BODIES_AT_ONCE) {
    const events = page.slice(start, start + BODIES_AT_ONCE);
    const bodies = await Promise.all(
      events.map(async (event) => (isItemWrite(event) ? log.readBody(event.position) : undefined)),
    );
    for (const [index, event] of events.entries()) {
      const body = bodies[index]?.body;
      yield body === undefined ? event : { ...event, body };
    }
  }
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

/** What is in clear of live items is what their documents give, and of others nothing is. */
async function checkClearCopies(
  { number, state }: CatalogContainer,
  live: ReadonlyMap<number, Life>,
  upTo: number,
  { store, signal, pace }: FsckOptions & { readonly pace: Pace },
  report: Report,
): Promise<void> {
  const sums = new Map<number, number>();
  const left = new Set<number>();
  for (let after: ClearCopy | undefined; ;) {
    const copies = await store.clearCopies(number, after, 1_000);
    for (const copy of copies) {
      const { birth } = copy;
      if (live.has(birth)) sums.set(birth, plus(sums.get(birth) ?? 0, clearSum([copy])));
      // What was written after the log was read is not this examination's business.
      else if (birth <= upTo) left.add(birth);
    }
    after = copies.at(-1);
    if (after === undefined) break;
    signal?.throwIfAborted();
    await pace.step();
  }
  for (const birth of left) {
    report(
      'clear-copies-left',
      state.rid,
      `values in clear of an item of birth ${birth}, which the log does not show as live`,
    );
  }
  for (const [birth, { clearSum: expected, partitionKey, id, lastPosition }] of live) {
    await pace.step();
    if (expected === undefined || (sums.get(birth) ?? 0) === expected) continue;
    // It may have been written, or have left, since the log was read.
    const row = await store.findItem(number, partitionKey, id);
    if (row?.position !== lastPosition) continue;
    report(
      'clear-copies-differ',
      state.rid,
      `what is in clear of the item of birth ${birth} is not what its document says`,
    );
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

/** Every user and client encryption key is in the catalog as its stream says, and nothing else is. */
async function checkEntries(
  streams: ReadonlyMap<string, readonly RecordedEvent[]>,
  upTo: number,
  log: EventLog,
  entries: readonly CatalogEntry[],
  report: Report,
): Promise<void> {
  const shown = new Map(entries.map((entry) => [streamOfEntry(entry), entry]));
  for (const [stream, events] of streams) {
    const actual = shown.get(stream)?.state;
    try {
      if (sameJson(shownOf(stream, events), actual)) continue;
      // It may have changed since the log was read: then what is shown is what a longer part of the stream says.
      const now = await log.readStream(stream);
      const later = now.slice(events.length).map((_, index) => now.slice(0, events.length + index + 1));
      if (later.some((longer) => sameJson(shownOf(stream, longer), actual))) continue;
    } catch (error) {
      report('unreadable-event', stream, (error as Error).message);
      continue;
    }
    report('entry-differs', stream, actual === undefined ? 'not in the catalog' : 'the catalog has it otherwise');
  }
  for (const [stream, { number }] of shown) {
    if (number <= upTo && !streams.has(stream)) {
      report('entry-without-reason', stream, 'in the catalog, but never created by the log');
    }
  }
}

/** What of a stream the catalog must show: nothing for a deleted user, or a name that another stream's user took. */
function shownOf(stream: string, events: readonly RecordedEvent[]): unknown {
  const state = foldOfEntry(stream)!(events);
  const { status } = state as { readonly status?: string };
  return status === 'deleted' || status === 'taken' ? undefined : state;
}
const partitionOf = (rid: string, partitionKey: string): string => `${rid}\n${partitionKey}`;

async function examine(
  recorded: RecordedEvent,
  clearPaths: readonly DocumentPath[],
  lives: Map<string, Life>,
  partitionKeyDeletes: ReadonlyMap<string, readonly { readonly position: number }[]>,
  report: Report,
  vault: KeyVault,
  sealer: BodySealer,
): Promise<void> {
  const event = readItemEvent(recorded);
  const { stream, position } = recorded;
  let life = lives.get(stream);
  if (life?.purged === true) report('event-after-end', stream, `${event.type} at ${position} follows the purge`);
  if (life !== undefined && isItemWrite(event) && !isItemWrite({ type: life.lastType })) {
    report('event-after-end', stream, `a write at ${position} follows ${life.lastType}`);
  }
  if (life !== undefined && isItemWrite({ type: life.lastType }) && isItemWrite(event)) {
    const { containerRid } = parseItemStream(stream)!;
    const { lastPosition } = life;
    const deletes = partitionKeyDeletes.get(partitionOf(containerRid, life.partitionKey));
    if (deletes?.some((left) => left.position > lastPosition) === true) {
      report('event-after-end', stream, `a write at ${position} follows the delete of its partition key`);
    }
  }
  if (life === undefined) {
    life = {
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
      clearSum: undefined,
    };
    lives.set(stream, life);
  }
  life.lastType = event.type;
  life.lastPosition = position;
  switch (event.type) {
    case 'ItemUpserted':
    case 'ItemRecovered': {
      life.ts = event.data.ts;
      life.ttl = event.data.ttl;
      life.key = event.data.key;
      life.uniqueKeys = event.data.uniqueKeys ?? [];
      life.writesLeft = true;
      life.clearSum = undefined;
      const found = await vault.findKey(event.data.key, stream);
      if (found.status === 'there') {
        try {
          const body = sealer.open(found.key, stream, recorded.revision, recorded.body ?? new Uint8Array());
          life.clearSum = clearPaths.length === 0 ? 0 : clearSum(copiesOf(body, clearPaths));
        } catch (error) {
          report('body-unreadable', stream, (error as Error).message);
        }
      }
      return;
    }
    case 'ItemExpired':
      life.expiredAtMs = event.data.expiredAtMs;
      life.ts = event.data.ts;
      return;
    case 'ItemPurged': {
      const last = decodeLedger(event.data.ledger).at(-1)!;
      life.ts = Math.floor(last.atMs / 1000);
      life.ttl = last.ttl;
      life.key = event.data.key;
      life.purged = true;
      return;
    }
    default:
      return;
  }
}
