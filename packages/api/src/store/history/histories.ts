import { leftWithPartitionKey } from '@epitaph/core/container/partition-key-deletes.ts';
import type { ContainerState, RecordedPolicy } from '@epitaph/core/container/state.ts';
import { WithdrawnLater } from '@epitaph/core/container/withdrawn-later.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { explainItem, type Explanation, type OtherLife } from '@epitaph/core/history/explain.ts';
import {
  type ErasureRequest,
  type LifeFacts,
  lifeFacts,
  withErasureRequest,
  withPartitionKeyEnd,
} from '@epitaph/core/history/life.ts';
import { decodeLedger, firstWriteMs } from '@epitaph/core/item/ledger.ts';
import { isItemWrite } from '@epitaph/core/item/events.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { assertEndNotLost, eventsLost, lifeTail, writeBy } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import { lastBy } from '@epitaph/core/log/last-by.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import { holdIdOf, withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import type { PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { leftWithContainer } from '@epitaph/projections/disappearances/disappearance.ts';
import { actionsOnStore } from '@epitaph/projections/operator-actions.ts';
import type { DisappearanceRow, ReadModelStore } from '@epitaph/projections/read-model-store.ts';
import type { HistoryApi, HistoryEntry, Period } from '../api/history-api.ts';
import {
  assertNoneBehind,
  isPurged,
  type ItemLife,
  itemLife,
  lastKnownLife,
  lastLifeOf,
  lifeLost,
  retentionUntil,
} from '../items/item-lives.ts';
import type { StoreParts } from '../parts.ts';

const LATEST_MS = Number.MAX_SAFE_INTEGER;
/** Events of a container that are read at a time. One event may name ten thousand lives. */
const EVENTS_AT_ONCE = 32;

/** Answers questions about the past from the log itself, so the answers do not depend on a projection. */
export class Histories {
  readonly #parts: StoreParts;

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  /** Every recorded fact of an item, over all its lives, in order. Truncated writes come from the ledger. */
  async history(container: ContainerState, givenId: string, givenKey: string): Promise<readonly HistoryEntry[]> {
    return (await this.historyPage(container, givenId, givenKey, {})).entries;
  }

  /**
   * A page of the history: at most `limit` facts after a place. No more is read, because an item may have been written
   * a million times.
   */
  readonly historyPage: HistoryApi['historyPage'] = async (container, givenId, givenKey, { after, limit }) => {
    const entries: HistoryEntry[] = [];
    const name = await this.#parts.recordedName(container, { id: givenId, partitionKey: givenKey });
    const prefix = await this.#parts.ports.naming.itemStreamPrefix(container.rid, name.partitionKey, name.id);
    // One fact more than wanted shows that there is another page.
    const wanted = limit === undefined ? Number.POSITIVE_INFINITY : limit + 1;
    const [firstLife, afterRevision] = after === undefined ? [0, -1] : readContinuation(after);
    const pace = new Pace();
    let last = '';
    for (let life = firstLife; entries.length < wanted; life += 1) {
      const fromRevision = life === firstLife ? afterRevision + 1 : 0;
      const part = { life, stream: itemStream(prefix, life), fromRevision };
      const found = await this.#lifeHistory(container, name, part, wanted - entries.length);
      if (found === undefined) {
        const within = this.#parts.catalog.containerByRid(container.rid);
        if (within !== undefined) await assertNoneBehind(this.#parts, within.number, name, prefix, life);
        break;
      }
      for (const [revision, entry] of found) {
        if (entries.length === limit) return { entries, continuation: last };
        entries.push(entry);
        last = `${life}.${revision}`;
      }
      await pace.step();
    }
    return { entries };
  };

  /**
   * At most `limit` recorded facts of a life from a revision on, with their places. Undefined for a life that never
   * existed.
   */
  async #lifeHistory(
    container: ContainerState,
    { id, partitionKey }: ItemName,
    { life, stream, fromRevision }: { readonly life: number; readonly stream: string; readonly fromRevision: number },
    most: number,
  ): Promise<(readonly [place: number, entry: HistoryEntry])[] | undefined> {
    const { log } = this.#parts.ports;
    const known = await log.readLast(stream);
    if (known === undefined) {
      await assertEndNotLost(log, stream);
      return undefined;
    }
    const toRevision = most === Number.POSITIVE_INFINITY ? undefined : fromRevision + most - 1;
    const part = known.type === 'ItemPurged' ? {} : { fromRevision, toRevision };
    let events = await log.readStream(stream, { ...part, withBodies: false });
    // The life was purged meanwhile. All of its stream is read, because little is left.
    const isCut = events[0]?.revision !== fromRevision && known.revision >= fromRevision;
    if (known.type !== 'ItemPurged' && isCut) events = await log.readStream(stream, { withBodies: false });
    const found: (readonly [number, HistoryEntry])[] = [];
    const purge = events.findLast((event) => event.type === 'ItemPurged');
    if (purge !== undefined) {
      const there = new Set(events.map((event) => event.revision));
      const event = readItemEvent(purge);
      if (event.type === 'ItemPurged') {
        decodeLedger(event.data.ledger).forEach((write, index) => {
          const revision = index === 0 ? 0 : index + (event.data.ledger.omitted ?? 0);
          if (there.has(revision)) return;
          const { atMs, ...facts } = write;
          const entry = {
            life,
            revision,
            type: write.operation === 'recover' ? 'ItemRecovered' : 'ItemUpserted',
            occurredAtMs: atMs,
            data: { id, partitionKey, ts: Math.floor(atMs / 1000), ...facts },
            fromLedger: true as const,
          };
          found.push([revision, entry]);
        });
      }
    }
    for (const event of events) found.push([event.revision, entryOf(event, life)]);
    const last = events.at(-1) ?? known;
    const state = this.#parts.catalog.containerByRid(container.rid)?.state ?? container;
    const left =
      last.revision < known.revision ? undefined : await leftWithPartitionKey(log, state, partitionKey, last);
    // Until the purge records the end in the life's own stream, only the container's stream has it.
    if (left !== undefined && lastsUntil(last, left.atMs, state.timeline)) {
      const event = await log.readAt(left.position);
      if (event !== undefined) {
        const { revision: _, ...entry } = entryOf(event, life);
        found.push([last.revision + 1, entry]);
      }
    }
    return found.filter(([place]) => place >= fromRevision).slice(0, most);
  }

  async containerHistory(container: ContainerState, afterRevision = -1, limit?: number): Promise<HistoryEntry[]> {
    const part = { fromRevision: afterRevision + 1, toRevision: limit && afterRevision + limit };
    const events = await this.#parts.ports.log.readStream(containerStream(container.rid), part);
    return events.map((event) => entryOf(event, 0));
  }

  readonly deletionWithDatabase: HistoryApi['deletionWithDatabase'] = async ({ rid, databaseRid }) => {
    const { catalog } = this.#parts;
    if (catalog.containerByRid(rid)?.state.status === 'deleted') return undefined;
    if (catalog.databaseByRid(databaseRid)?.status === 'live') return undefined;
    const { log } = this.#parts.ports;
    const stream = containerStream(rid);
    const [deletion, last] = [await log.readLast(databaseStream(databaseRid)), await log.readLast(stream)];
    if (deletion?.type !== 'DatabaseDeleted' || last === undefined) return undefined;
    // Holds and floors of a deleted container can still change. If some of its facts are lost, the place is not known.
    const before = await lastBy(log, stream, last.revision, ({ position }) => position < deletion.position);
    const { revision } = before === undefined || before === 'truncated' ? last : before;
    const { revision: _, ...entry } = entryOf(deletion, 0);
    return { afterRevision: revision, entry };
  };

  async actionsOnStore(): Promise<HistoryEntry[]> {
    return (await actionsOnStore(this.#parts.ports.log)).map((event) => entryOf(event, 0));
  }

  async explain(container: ContainerState, id: string, key: string, atMs?: number): Promise<Explanation> {
    const found = this.#parts.catalog.containerByRid(container.rid);
    if (found === undefined) throw new Refusal('container-not-found');
    const name = await this.#parts.recordedName(container, { id, partitionKey: key });
    const { log, naming, vault } = this.#parts.ports;
    const prefix = await naming.itemStreamPrefix(container.rid, name.partitionKey, name.id);
    const known = await lastKnownLife(this.#parts, found.number, name, prefix);
    const last = await lastLifeOf(log, prefix, known?.life);
    await assertNoneBehind(this.#parts, found.number, name, prefix, last === undefined ? 0 : last.life + 1);
    const lives = last === undefined ? [] : await this.#livesAt(prefix, last, atMs);
    const facts = new Map<ItemLife, LifeFacts>();
    for (const life of lives) facts.set(life, await this.#factsAt(life, atMs));
    const [about] = lives;
    // An erased life has nothing to keep, whatever scope it is in.
    const kept = about === undefined || isPurged(about) ? undefined : about;
    const holds =
      kept === undefined
        ? []
        : (await vault.holdsOn([kept.stream]))[0]!.map((holdId) => holdIdOf(container.rid, holdId));
    const floors = (await vault.floors()).get(container.rid) ?? {};
    const requests = await this.#erasureRequests(container.rid, lives);
    const { state, nowMs: toldMs } = await this.#parts.told(container);
    const gone = this.#parts.catalog.gone(state);
    const left = await Promise.all(
      lives.map(({ events }) => leftWithPartitionKey(log, state, name.partitionKey, events.at(-1)!)),
    );
    const recordedMs = [...lives.flatMap(({ events }) => events.map((event) => event.occurredAtMs)), gone?.atMs ?? 0];
    // Another node's clock may be ahead of this one's, and what that node has recorded has happened all the same.
    const nowMs = Math.max(toldMs, ...recordedMs, ...left.map((end) => end?.atMs ?? 0));
    return explainItem({
      id,
      partitionKey: key,
      container: state,
      withdrawnLater: atMs === undefined || atMs >= nowMs ? undefined : await this.#withdrawnLater(state, atMs),
      gone,
      renamed: await this.#renamed([...facts.values()]),
      lives: lives.map((life, index) =>
        withErasureRequest(withPartitionKeyEnd(facts.get(life)!, left[index], state.timeline), requests.get(life)),
      ),
      atMs: atMs ?? nowMs,
      holds,
      floorUntilMs: kept === undefined ? null : retentionUntil(floors, kept, nowMs),
      feedFloorSeconds: kept === undefined ? undefined : floors['change-feed'],
      endRecordedAtMs: kept === undefined ? undefined : endRecordedAtMs(kept),
      nowMs,
    });
  }

  /** The lives that continue others under another id, by their streams. */
  async #renamed(ended: readonly LifeFacts[]): Promise<ReadonlyMap<string, OtherLife>> {
    const found = new Map<string, OtherLife>();
    for (const { end } of ended) {
      const last = end?.renamedTo === undefined ? undefined : await this.#parts.ports.log.readLast(end.renamedTo);
      if (last === undefined || whyUnreadable(last) !== undefined) continue;
      const { id } = readItemEvent(last).data;
      found.set(last.stream, { id, life: parseItemStream(last.stream)!.life });
    }
    return found;
  }

  async #withdrawnLater({ rid, withdrawnVersion }: ContainerState, atMs: number): Promise<RecordedPolicy | undefined> {
    if (withdrawnVersion === undefined) return undefined;
    const found = new WithdrawnLater(atMs);
    for await (const page of streamPages(this.#parts.ports.log, containerStream(rid))) {
      for (const event of page) found.take(event);
      if (found.isKnown) break;
    }
    return found.policy;
  }

  /** The lives that matter for an instant: the last one that had begun by then, and the last of all. */
  async #livesAt(prefix: string, last: ItemLife, atMs = Number.POSITIVE_INFINITY): Promise<readonly ItemLife[]> {
    let begun: ItemLife | undefined;
    for (let [low, high, life] = [0, last.life, last]; low <= high;) {
      if (await this.#hadBegun(life, atMs)) {
        begun = life;
        low = life.life + 1;
      } else {
        high = life.life - 1;
      }
      const middle = Math.floor((low + high) / 2);
      if (low > high) break;
      const inMiddle = await itemLife(this.#parts.ports.log, prefix, middle);
      if (inMiddle === undefined) throw lifeLost(prefix, middle);
      life = inMiddle;
    }
    return begun === undefined || begun === last ? [last] : [begun, last];
  }

  async #hadBegun({ stream, events }: ItemLife, atMs: number): Promise<boolean> {
    const { log } = this.#parts.ports;
    // The first event that is left was recorded by then, so the life had begun.
    if (events[0]!.occurredAtMs <= atMs) return true;
    const [first] = await log.readStream(stream, { toRevision: 0, withBodies: false });
    if (first?.revision === 0) return first.occurredAtMs <= atMs;
    const end = (await log.readLast(stream)) ?? events.at(-1)!;
    const purge = readItemEvent(end);
    if (purge.type !== 'ItemPurged') throw eventsLost(end);
    return firstWriteMs(purge.data.ledger) <= atMs;
  }

  /**
   * The facts of a life that matter for an instant and for now. If the life has many writes, all others are left out.
   */
  async #factsAt({ life, stream, events }: ItemLife, atMs = Number.POSITIVE_INFINITY): Promise<LifeFacts> {
    const { log } = this.#parts.ports;
    const [write] = events;
    if (isPurged({ events }) || write!.occurredAtMs <= atMs) return lifeFacts(life, events);
    const earlier = await writeBy(log, stream, write!.revision - 1, atMs);
    if (earlier === 'truncated') {
      const now = await lifeTail(log, stream);
      if (now.at(-1)?.type !== 'ItemPurged') throw eventsLost(write!);
      return lifeFacts(life, now);
    }
    return lifeFacts(life, earlier === undefined ? events : [earlier, ...events]);
  }

  /** The request for each life that was erased on request: the last one recorded before the erasure. */
  async #erasureRequests(rid: string, lives: readonly ItemLife[]): Promise<ReadonlyMap<ItemLife, ErasureRequest>> {
    const requests = new Map<ItemLife, ErasureRequest>();
    let found: PlacedRequest | undefined;
    for (const life of lives.toReversed()) {
      const erased = erasedOnRequest(life.events);
      if (erased === undefined) continue;
      // One request may have erased many lives.
      if (found === undefined || found.position > erased.position) found = await this.#requestBefore(rid, erased);
      if (found !== undefined) requests.set(life, found.request);
    }
    return requests;
  }

  /** Searches backwards: mostly the request was recorded just before the erasure, however many others there are. */
  async #requestBefore(rid: string, erased: RecordedEvent): Promise<PlacedRequest | undefined> {
    const { log } = this.#parts.ports;
    const item = withoutContainer(rid, parseItemStream(erased.stream)!.prefix);
    const stream = containerStream(rid);
    const last = await log.readLast(stream);
    const before = last && (await lastBy(log, stream, last.revision, ({ position }) => position < erased.position));
    // The log has lost some of the events, so the remaining ones are searched.
    const isDamaged = before === 'truncated';
    const pace = new Pace();
    for (let toRevision = (isDamaged ? last : before)?.revision ?? -1; toRevision >= 0; toRevision -= EVENTS_AT_ONCE) {
      const fromRevision = Math.max(0, toRevision - EVENTS_AT_ONCE + 1);
      const page = await log.readStream(stream, { fromRevision, toRevision });
      for (const recorded of page.toReversed()) {
        if (recorded.type !== 'ErasureRequested' || recorded.position >= erased.position) continue;
        const event = readContainerEvent(recorded);
        if (event.type !== 'ErasureRequested' || event.data.item !== item) continue;
        const { requestedBy, reason } = event.data;
        const request = { requestedAtMs: recorded.occurredAtMs, requestedBy, reason };
        return { position: recorded.position, request };
      }
      await pace.step();
    }
    if (isDamaged) throw eventsLost(last!);
    return undefined;
  }

  readonly disappearances: HistoryApi['disappearances'] = async (container, filter) => {
    const found = this.#parts.catalog.containerByRid(container.rid);
    if (found === undefined) throw new Refusal('container-not-found');
    const { fromMs = 0, toMs = LATEST_MS, cause, limit } = filter;
    const place = filter.after === undefined ? undefined : readContinuation(filter.after);
    const after = place && { atMs: place[0], position: place[1] };
    const page = { fromMs, toMs, cause, after, limit };
    // Those that are not erased are read first. A life that is erased between the two reads is then in both, and not in
    // neither.
    const unerased = await this.#leftWithContainer(found, page);
    const recorded = await this.#parts.readModel.disappearances(found.number, page);
    const known = new Set(recorded.map(({ position }) => position));
    const rows = [...recorded, ...unerased.filter(({ position }) => !known.has(position))]
      .toSorted((left, right) => left.atMs - right.atMs || left.position - right.position)
      .slice(0, limit);
    const last = rows.at(-1);
    return rows.length < limit || last === undefined
      ? { rows }
      : { rows, continuation: `${last.atMs}.${last.position}` };
  };

  /**
   * How many items expired in a period without a record of their expiry yet, so that they are not among the
   * disappearances.
   */
  async unrecordedExpiries(container: ContainerState, { fromMs = 0, toMs = LATEST_MS }: Period): Promise<number> {
    const { state, nowMs } = await this.#parts.told(container);
    const { number } = this.#parts.catalog.containerByRid(state.rid)!;
    const goneAtMs = this.#parts.catalog.goneAtMs(state) ?? LATEST_MS;
    const expiredBy = async (atMs: number): Promise<number> => {
      const marks = watermarks(state.timeline, Math.min(atMs, nowMs, goneAtMs - 1));
      return (await this.#parts.readModel.overdueStatistics(number, marks)).count;
    };
    return (await expiredBy(toMs - 1)) - (await expiredBy(fromMs - 1));
  }

  /**
   * Items that ended with their container and are not erased yet. Their rows are still among the read model's items.
   */
  async #leftWithContainer(
    { number, state }: CatalogContainer,
    { fromMs, toMs, cause, after, limit }: Parameters<ReadModelStore['disappearances']>[1],
  ): Promise<DisappearanceRow[]> {
    const gone = this.#parts.catalog.gone(state);
    if (gone === undefined || gone.atMs < fromMs || gone.atMs >= toMs) return [];
    if ((cause !== undefined && cause !== 'container-deleted') || (after !== undefined && after.atMs > gone.atMs))
      return [];
    const rows = await this.#parts.readModel.scanItems(number, {
      afterBirth: after?.atMs === gone.atMs ? after.position : 0,
      limit,
      // Items that had expired by then did not end with the container.
      marks: watermarks(state.timeline, gone.atMs - 1),
    });
    return rows.map((row) => leftWithContainer(row, row.birth, gone));
  }
}

/** A request and its position in the log. */
interface PlacedRequest {
  readonly position: number;
  readonly request: ErasureRequest;
}

/**
 * The event of a life's erasure on request. If the life had ended with its container, that is recorded as the cause of
 * the erasure.
 */
const erasedOnRequest = (events: readonly RecordedEvent[]): RecordedEvent | undefined =>
  events.findLast(
    ({ type, actor, data }) =>
      type === 'ItemPurged' &&
      (data['cause'] === 'erasure' || (data['cause'] === 'container-deleted' && !actor.startsWith('system:'))),
  );

/** When the end of a life that is not erased was recorded in its own stream. */
function endRecordedAtMs({ events }: ItemLife): number | undefined {
  const last = events.at(-1)!;
  return isItemWrite(last) ? undefined : last.occurredAtMs;
}

/** Whether a life's last event is a write that had not expired at an instant. */
function lastsUntil(last: RecordedEvent, atMs: number, timeline: PolicyTimeline): boolean {
  const event = readItemEvent(last);
  if (!isItemWrite(event)) return false;
  const expiry = expiryOf(event.data, timeline);
  return expiry === undefined || expiry.expiredAtMs > atMs;
}

/** The two numbers of the place at which a page ended. */
function readContinuation(text: string): readonly [number, number] {
  const [first, second] = text.split('.').map(Number);
  if (!Number.isSafeInteger(first) || !Number.isSafeInteger(second)) {
    throw new Refusal('bad-request', 'The continuation is not one that this server returned.');
  }
  return [first!, second!];
}

function entryOf(event: RecordedEvent, life: number): HistoryEntry {
  // Unique keys are left out: which writes share a value says something about their content.
  const { uniqueKeys: _, ...data } = event.data;
  return {
    life,
    revision: event.revision,
    type: event.type,
    occurredAtMs: event.occurredAtMs,
    actor: event.actor,
    position: event.position,
    eventId: event.id,
    correlationId: event.correlationId,
    ...(event.causationId === event.correlationId ? {} : { causationId: event.causationId }),
    data,
  };
}
