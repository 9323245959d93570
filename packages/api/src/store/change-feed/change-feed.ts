import { keptVersions, LOG_TIME_SLACK_SECONDS, type KeptVersions } from '@epitaph/core/container/change-feed.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { isItemWrite, type ItemEvent, type ItemWritten } from '@epitaph/core/item/events.ts';
import { lifeTail } from '@epitaph/core/item/read-life.ts';
import { containerPrefix, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { isInScope } from '@epitaph/core/partition-key/scope.ts';
import { isExpired } from '@epitaph/core/ttl/watermarks.ts';
import { turn } from '@epitaph/core/turn.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import type { ChangeFeedPage, ChangeFeedRequest, FeedChange } from '../api/change-feed-api.ts';
import type { ShownItem } from '../api/items-api.ts';
import { isDamage, PartUnreadable } from '../damage.ts';
import { MAX_PAGE_CHARACTERS } from '../document-limits.ts';
import type { Documents } from '../items/documents.ts';
import { lastWriteOf } from '../items/item-lives.ts';
import { rowBornAt } from '../items/scans.ts';
import type { Moment, StoreParts } from '../parts.ts';
import { ChangesLeft } from './changes-left.ts';

/** How many events are scanned at a time. Other requests get a turn between two scans. */
const SCAN_SIZE = 2_000;
/** The most events, and milliseconds, that one page may take. After that, the page is returned with the changes found so far. */
const MAX_EXAMINED = 200_000;
const MAX_PAGE_MS = 2_000;
/** How many changes are prepared concurrently. Their documents may have to be fetched from other machines. */
const AT_ONCE = 16;
/** The number of lives whose first position is cached. */
const BIRTHS = 20_000;

const SLACK_MS = LOG_TIME_SLACK_SECONDS * 1000;
/** Start times are in whole seconds, so a start time may mean any instant of its second. */
const SECOND_MS = 1_000;

/** Clients recognize by this text that they read too late, or ask for changes that were never retained. */
const OUTSIDE_RETENTION = 'You must read the change feed from within the retention period.';

interface Look extends ChangeFeedPage {
  /** The scan has found no change up to and including this position; the first change, if there is one, comes after it. */
  readonly quietUpTo: number;
}

/**
 * Change feeds, read from the log itself. A page is a scan of the events after a position, and its continuation is the
 * position that the scan has reached. So a feed neither misses nor repeats a change, however much is written or purged
 * meanwhile, and it continues after a restart.
 */
export class ChangeFeeds {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  readonly #left: ChangesLeft;
  /** The first position of each life, by stream, for lives that have no row any more. */
  readonly #births = new GenerationCache<string, number>(BIRTHS);
  /** Cached by the definition, which alone determines the value. Commands that don't change the definition keep the same object. */
  readonly #kept = new WeakMap<ContainerDefinition, KeptVersions>();

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
    this.#left = new ChangesLeft(parts.ports.log);
  }

  async read(container: ContainerState, request: ChangeFeedRequest): Promise<ChangeFeedPage> {
    await this.#reached(request);
    const moment = await this.#parts.moment(container);
    // The read model has applied all events up to this position. It may have applied more by the time a row is looked up.
    const upTo = this.#parts.projector.position;
    const after = await this.#start(moment, request, upTo);
    if (request.start.kind === 'now') return { changes: [], position: upTo, reachedEnd: true, examined: 0 };
    const scope = await this.#parts.recordedScope(moment.within.state, request.scope);
    const feed = { ...request, scope };
    const begin = request.countsLeft === true ? this.#left.start(moment, feed, after) : after;
    const { quietUpTo, ...page } = await this.#page(moment, feed, begin, upTo);
    if (request.countsLeft !== true) return page;
    this.#left.foundNothing(moment, feed, after, quietUpTo);
    if (page.changes.length === 0) return page;
    const left = await this.#left.count(moment, feed, after, upTo);
    return { ...page, left: Math.max(0, left - page.changes.length) };
  }

  /** Waits until the read model has all that the client has seen before. A continuation beyond the log's end is of another log. */
  async #reached({ atLeast, start }: ChangeFeedRequest): Promise<void> {
    await this.#parts.seen(atLeast);
    if (start.kind !== 'after' || start.position <= this.#parts.projector.position) return;
    if (start.position > (await this.#parts.ports.log.head())) {
      throw new Refusal('bad-request', 'Invalid Continuation Token: it lies beyond the end of the log.');
    }
    await this.#parts.seen(start.position);
  }

  /** The position after which a page begins. */
  async #start(
    { within, nowMs }: Moment,
    { mode, start }: Pick<ChangeFeedRequest, 'mode' | 'start'>,
    upTo: number,
  ): Promise<number> {
    // A container's number is the position of its creation, so it has no events before that.
    const first = within.number;
    const kept = mode === 'all-versions' ? await this.#keptVersions(within.state) : undefined;
    // Older versions may be purged. Latest versions are always there, even for clients that start at the year 1.
    const keptFromMs = kept === undefined ? Number.NEGATIVE_INFINITY : startOf(kept, nowMs);
    switch (start.kind) {
      case 'now':
        return upTo;
      case 'beginning':
        if (kept !== undefined) throw outsideRetention();
        return first;
      case 'time': {
        if (start.atMs + SECOND_MS <= keptFromMs) throw outsideRetention();
        const position = await this.#parts.readModel.logMarkBefore(start.atMs);
        return Math.max(position, kept?.sincePosition ?? first);
      }
      case 'after': {
        const position = Math.max(first, start.position);
        if (kept === undefined) return position;
        if (position < kept.sincePosition) throw outsideRetention();
        // The event that ends a life stays in the log after a purge. So the time of the next event limits how old the start
        // can be.
        const [next] = await this.#parts.ports.log.readAll(position, 1, { withBodies: false });
        if (next !== undefined && next.position <= upTo && next.occurredAtMs + SLACK_MS < keptFromMs) {
          throw outsideRetention();
        }
        return position;
      }
    }
  }

  async #keptVersions(container: ContainerState): Promise<KeptVersions> {
    let kept = this.#kept.get(container.definition);
    if (kept === undefined) {
      kept = keptVersions(await this.#parts.ports.log.readStream(containerStream(container.rid)));
      if (kept === undefined) {
        throw new Refusal(
          'bad-request',
          'The container does not keep versions and deletes for its change feed: set its changeFeedPolicy with a retentionDuration (in minutes) first.',
        );
      }
      this.#kept.set(container.definition, kept);
    }
    return kept;
  }

  async #page(moment: Moment, request: ChangeFeedRequest, after: number, upTo: number): Promise<Look> {
    const { log, monotonicMs } = this.#parts.ports;
    const { maxItemCount, signal } = request;
    const prefix = containerPrefix(moment.within.state.rid);
    const changes: FeedChange[] = [];
    const untilMs = monotonicMs() + MAX_PAGE_MS;
    let characters = 0;
    let examined = 0;
    let position = after;
    let quietUpTo: number | undefined;
    const look = (reachedEnd: boolean): Look => ({
      changes,
      position,
      reachedEnd,
      examined,
      quietUpTo: quietUpTo ?? position,
    });
    // The last change of a full page. The page also takes the changes that were written together with it.
    let last: RecordedEvent | undefined;
    // A full page takes at least this many events. The number doubles with each scan, since most events may be of other
    // containers.
    let scanned = Math.min(SCAN_SIZE, Math.max(AT_ONCE, maxItemCount + 1));
    while (position < upTo && examined < MAX_EXAMINED && monotonicMs() < untilMs) {
      signal?.throwIfAborted();
      // A truncated write belongs to a purged life, so it is not the latest version of any item.
      const part = await log.scan(position, scanned, prefix, { mayBeTruncated: request.mode === 'latest' });
      examined += scanned;
      scanned = Math.min(SCAN_SIZE, scanned * 2);
      const events = part.events.filter((event) => event.position <= upTo);
      if (last !== undefined && events.length === 0) return look(false);
      for (let next = 0; next < events.length;) {
        if (last !== undefined && !areOfOneRequest(last, events[next]!)) return look(false);
        const room = last === undefined ? maxItemCount - changes.length : 1;
        const group = events.slice(next, next + Math.min(AT_ONCE, room));
        next += group.length;
        const made = await Promise.all(
          group.map((event) => this.#change(moment, request, event).catch((error: unknown) => damaged(event, error))),
        );
        for (const [index, change] of made.entries()) {
          if (change instanceof PartUnreadable) {
            // The reader gets the changes before the unreadable one, and the error with the request for the next page.
            if (changes.length > 0) return look(false);
            throw change;
          }
          if (change !== undefined) quietUpTo ??= position;
          position = group[index]!.position;
          if (change === undefined) continue;
          changes.push(change);
          characters += sizeOf(change);
          if (characters >= MAX_PAGE_CHARACTERS || monotonicMs() > untilMs) return look(false);
          if (changes.length >= maxItemCount) last = group[index]!;
        }
      }
      // The read model may contain another node's events that this node's log does not have yet. The next page shows them.
      if (part.position <= position && part.events.length === 0) return look(true);
      position = Math.min(upTo, Math.max(position, part.position));
      await turn();
    }
    return look(last === undefined && position >= upTo);
  }

  async #change(
    moment: Moment,
    { mode, notBeforeMs, scope }: ChangeFeedRequest,
    recorded: RecordedEvent,
  ): Promise<FeedChange | undefined> {
    if (notBeforeMs !== undefined && recorded.occurredAtMs < notBeforeMs) return undefined;
    let event: ItemEvent;
    try {
      // Only a purge on demand can end a life. All other purges come after the end.
      if (recorded.type === 'ItemPurged' && recorded.data['cause'] !== 'erasure') return undefined;
      event = readItemEvent(recorded);
    } catch (error) {
      if (!isDamage(error)) throw error;
      return this.#unreadable(moment, { mode, scope }, recorded, error);
    }
    if (!isInScope(moment.within.state.definition, scope, event.data.partitionKey)) return undefined;
    if (mode === 'latest') return isItemWrite(event) ? this.#latest(moment, recorded, event.data) : undefined;
    return this.#version(moment, recorded, event);
  }

  /**
   * The change to show for an event that can't be read. It is derived from the other events and the row of the same life.
   *
   * @throws the given error if they do not determine the change
   */
  async #unreadable(
    moment: Moment,
    { mode, scope }: Pick<ChangeFeedRequest, 'mode' | 'scope'>,
    recorded: RecordedEvent,
    error: Error,
  ): Promise<FeedChange | undefined> {
    const { log } = this.#parts.ports;
    const [before, last] = [await log.readBefore(recorded), await log.readLast(recorded.stream)];
    const birth = await this.#birthIn(recorded);
    const row = birth === undefined ? undefined : await rowBornAt(moment.items, moment.within.number, birth);
    const named = row ?? (before && readIfWhole(before)?.data) ?? (last && readIfWhole(last)?.data);
    if (named !== undefined && !isInScope(moment.within.state.definition, scope, named.partitionKey)) return undefined;
    const isEnd = (event: RecordedEvent | undefined) => event !== undefined && !isItemWrite(event);
    if (mode === 'latest') {
      if (row !== undefined) return this.#latest(moment, recorded, row);
      // The life's first position or its end is known, and it has no row: so the item does not exist any more.
      if (birth !== undefined || isEnd(before) || isEnd(last)) return undefined;
      throw error;
    }
    // The only event after the end of a life is its purge, which is not shown.
    if (isEnd(before)) return undefined;
    throw error;
  }

  /** The first position of an event's life. Only the stream is read, not the event's data. */
  async #birthIn({ stream, revision, position }: RecordedEvent): Promise<number | undefined> {
    if (revision === 0) return position;
    const [first] = await this.#parts.ports.log.readStream(stream, { toRevision: 0, withBodies: false });
    return first?.position;
  }

  /**
   * The write, if it is the latest of its item and the item is visible. An item that was written again later appears in the
   * feed at its latest write.
   */
  async #latest(
    { within, marks }: Moment,
    recorded: RecordedEvent,
    data: Pick<ItemWritten, 'partitionKey' | 'id'>,
  ): Promise<FeedChange | undefined> {
    const row = await this.#parts.rows.find(within.number, data.partitionKey, data.id);
    if (row === undefined || row.position !== recorded.position || isExpired(row, marks)) return undefined;
    const item = await this.#documents.show(within.state, row);
    return item && { kind: 'written', item, position: row.position, created: recorded.revision === 0 };
  }

  async #version(moment: Moment, recorded: RecordedEvent, event: ItemEvent): Promise<FeedChange | undefined> {
    const { position, revision, occurredAtMs } = recorded;
    switch (event.type) {
      case 'ItemUpserted':
      case 'ItemRecovered': {
        if (await this.#wasInVain(moment, recorded)) return undefined;
        const birth = revision === 0 ? position : await this.#birth(moment, recorded, event.data);
        const item = await this.#show(moment, recorded, event.data, birth);
        if (item === undefined) {
          await this.#assertErasedOnDemand(moment, recorded);
          return undefined;
        }
        if (revision === 0) return { kind: 'written', item, position, created: true };
        const previous = await this.#parts.ports.log.readBefore(recorded);
        return { kind: 'written', item, position, created: false, ...at(previous) };
      }
      case 'ItemDeleted':
      case 'ItemExpired': {
        const { log } = this.#parts.ports;
        const before = await log.readBefore(recorded);
        const last =
          before && ((await lastWriteOf(log, moment.within.state, { events: [before, recorded] })) ?? before);
        const written = last === undefined ? undefined : readItemEvent(last);
        let previous: ShownItem | undefined;
        if (last !== undefined && written !== undefined && isItemWrite(written)) {
          previous = await this.#show(moment, last, written.data, await this.#birth(moment, last, written.data));
        }
        if (previous === undefined) await this.#assertErasedOnDemand(moment, recorded);
        // The event may contain a pseudonym. The document, if it can still be read, has the real id and partition key.
        const { id, partitionKey } = previous ?? event.data;
        const expired = event.type === 'ItemExpired';
        // An item that was deleted with its partition key was deleted at that time, even if its own delete is recorded much later.
        const atMs = (event.type === 'ItemDeleted' ? event.data.withPartitionKey?.atMs : undefined) ?? occurredAtMs;
        return {
          kind: 'deleted',
          id,
          partitionKey,
          position,
          atMs,
          expired,
          ...(previous === undefined ? {} : { previous }),
          ...at(last),
        };
      }
      case 'ItemPurged': {
        // If the life was live until its erasure, the purge is its delete. Otherwise the feed has shown its end before.
        const end = await this.#parts.ports.log.readBefore(recorded);
        if (end !== undefined && !isItemWrite(end)) return undefined;
        const { id, partitionKey } = event.data;
        return { kind: 'deleted', id, partitionKey, position, atMs: occurredAtMs, expired: false };
      }
    }
  }

  /**
   * True for a write by a node that did not know yet that the item had been deleted with its partition key. Such a write
   * changed nothing, and was not acknowledged as a write of that life.
   */
  async #wasInVain({ within }: Moment, { stream, revision, position }: RecordedEvent): Promise<boolean> {
    const { log, nodes } = this.#parts.ports;
    if (nodes === undefined || revision === 0) return false;
    // Before the log is asked, which has the end of each life when a delete is no longer under way.
    const { state } = this.#parts.catalog.containerByNumber(within.number)!;
    const stood = await lastWriteOf(log, state, { events: await lifeTail(log, stream) });
    return stood !== undefined && position > stood.position;
  }

  /**
   * Checks that missing content was erased on demand. A change feed does not prevent such an erasure, so the change is left
   * out. But if the retention period of the change is over, maybe since the page began, the reader is told: otherwise it
   * would miss the change without notice.
   */
  async #assertErasedOnDemand({ within }: Moment, { occurredAtMs }: RecordedEvent): Promise<void> {
    const { catalog, ports } = this.#parts;
    const { state } = catalog.containerByNumber(within.number)!;
    if (occurredAtMs < startOf(await this.#keptVersions(state), ports.clock.now())) throw outsideRetention();
  }

  #show(
    { within }: Moment,
    { position }: RecordedEvent,
    { id, partitionKey, ts, key }: ItemWritten,
    birth: number,
  ): MaybePromise<ShownItem | undefined> {
    return this.#documents.show(within.state, { birth, id, partitionKey, ts, key, position });
  }

  /** Position of a life's first event: from the row while the life is the current one, else from its stream. */
  async #birth({ within }: Moment, { stream }: RecordedEvent, data: ItemWritten): Promise<number> {
    const known = this.#births.get(stream);
    if (known !== undefined) return known;
    const row = await this.#parts.rows.find(within.number, data.partitionKey, data.id);
    if (row !== undefined && row.life === parseItemStream(stream)?.life) return row.birth;
    const { log } = this.#parts.ports;
    // Only the first event is read, since a life may have many. If the first was truncated meanwhile, few events are left.
    const [begun] = await log.readStream(stream, { toRevision: 0, withBodies: false });
    const first = begun ?? (await log.readStream(stream, { withBodies: false }))[0];
    invariant(first !== undefined, `a stream with an event has a first one: ${stream}`);
    this.#births.set(stream, first.position);
    return first.position;
  }
}

/** The start of the retention period at an instant, in milliseconds: all versions since then are kept. */
const startOf = ({ sinceMs, retentionSeconds }: KeptVersions, nowMs: number): number =>
  Math.max(sinceMs, nowMs - retentionSeconds * 1000);

/**
 * Whether two successive events are of one request: of a batch or a script, whose events are recorded together, or of a
 * bulk request, which wrote them one by one in the same millisecond. Items that expire together are not of one request.
 */
const areOfOneRequest = (one: RecordedEvent, next: RecordedEvent): boolean =>
  one.correlationId === next.correlationId &&
  one.occurredAtMs === next.occurredAtMs &&
  !one.actor.startsWith('system:');

function readIfWhole(event: RecordedEvent): ItemEvent | undefined {
  try {
    return readItemEvent(event);
  } catch (error) {
    return unlessDamaged(error);
  }
}

/**
 * The error for a reader that has reached a change that can't be shown. It says how to skip the change, since each further
 * page would begin with it.
 *
 * @throws the given error if it is not about damaged data
 */
function damaged({ position }: RecordedEvent, error: unknown): PartUnreadable {
  if (!isDamage(error)) throw error;
  return new PartUnreadable(
    `The change at ${position} can not be shown, because its data in the store is damaged. To skip it, continue after "${position}", and read the container to find what it may have changed.`,
    { cause: error instanceof PartUnreadable ? error.cause : error },
  );
}

const outsideRetention = (): Refusal => new Refusal('bad-request', OUTSIDE_RETENTION);

const at = (previous: RecordedEvent | undefined): { readonly previousPosition?: number } =>
  previous === undefined ? {} : { previousPosition: previous.position };

function sizeOf(change: FeedChange): number {
  return change.kind === 'written' ? change.item.json.length : (change.previous?.json.length ?? 0);
}
