import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { etagOf, isItemWrite } from '@epitaph/core/item/events.ts';
import { eventsLost, lifeTail, writeBy, writeOf } from '@epitaph/core/item/read-life.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { isWhole } from '@epitaph/core/partition-key/scope.ts';
import { isExpired, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { ContainerNumber } from '@epitaph/projections/read-model-store.ts';
import type { HistoryApi } from '../api/history-api.ts';
import type { AtLeast, ItemSnapshot } from '../api/common.ts';
import type { FoundItem, ItemsApi, ShownItem } from '../api/items-api.ts';
import { MAX_PAGE_CHARACTERS } from '../document-limits.ts';
import type { StoreParts } from '../parts.ts';
import type { Documents } from './documents.ts';
import { momentOf, snapshotOf } from './item-snapshot.ts';
import { assertNotNameless, namelessIn, namelessUnreadable } from './nameless.ts';
import { rowBornAt, scanScope } from './scans.ts';

/** Rows that are examined for one page of a feed before it is returned with what it has. */
const MAX_SCANNED = 20_000;

/** Reads of items: one item by its name, its content at an earlier time, or all items of a container. */
export class ItemReads {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  readonly #counts = new GenerationCache<ContainerNumber, { readonly count: number; readonly untilMs: number }>(1_000);

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
  }

  /**
   * Nothing is awaited that is available synchronously, here and on the rest of a request's path: awaits are a tenth of
   * the time of a read.
   */
  async read(
    container: ContainerState,
    id: string,
    partitionKey: string,
    from?: AtLeast | ItemSnapshot,
  ): Promise<FoundItem> {
    const [atLeast, snapshot] = typeof from === 'object' ? [undefined, from] : [from, undefined];
    const askedMs = atLeast === 'head' ? this.#parts.ports.clock.now() : undefined;
    const seen = this.#parts.seen(atLeast);
    if (seen !== undefined) await seen;
    const named = this.#parts.recordedName(container, { id, partitionKey });
    const name = named instanceof Promise ? await named : named;
    const taken = momentOf(this.#parts, container, snapshot);
    const moment = taken instanceof Promise ? await taken : taken;
    const { within, items, marks } = moment;
    const found = items.rows.find(within.number, name.partitionKey, name.id);
    const row = found instanceof Promise ? await found : found;
    if (row === undefined) await assertNotNameless(this.#parts, moment, name);
    if (row !== undefined && askedMs !== undefined && isExpired(row, marks)) {
      // The deadline passed while the read waited for the head of the log. Another node may have written the item in
      // time, and after that head.
      const hadExpired = isExpired(row, watermarks(within.state.timeline, askedMs));
      if (!hadExpired) return this.read(container, id, partitionKey, from);
    }
    if (row === undefined || isExpired(row, marks)) throw new Refusal('item-not-found');
    const showing = this.#documents.show(within.state, row);
    const shown = showing instanceof Promise ? await showing : showing;
    if (shown === undefined) {
      items.erased?.();
      throw new Refusal('item-not-found');
    }
    return shown;
  }

  /** The content of a visible item at an instant or at a revision of its life. Its key exists for as long as the item is visible. */
  readonly contentAt: HistoryApi['contentAt'] = async (
    container,
    id,
    partitionKey,
    { atMs = Number.POSITIVE_INFINITY, revision },
  ) => {
    const name = await this.#parts.recordedName(container, { id, partitionKey });
    const moment = await this.#parts.moment(container);
    const { within, marks } = moment;
    const row = await this.#parts.rows.find(within.number, name.partitionKey, name.id);
    if (row === undefined) await assertNotNameless(this.#parts, moment, name);
    if (row === undefined || isExpired(row, marks)) throw new Refusal('item-not-found');
    const prefix = await this.#parts.ports.naming.itemStreamPrefix(container.rid, name.partitionKey, name.id);
    const write = await this.#writeAt(itemStream(prefix, row.life), atMs, revision);
    if (write === undefined) {
      throw new Refusal('item-not-found', 'The current life of the item has no such write.');
    }
    return {
      life: row.life,
      revision: write.revision,
      writtenAtMs: write.occurredAtMs,
      etag: etagOf(write.id),
      json: await this.#documents.openAt(write),
    };
  };

  /** One write of a life. The life may have been written a million times. */
  async #writeAt(stream: string, atMs: number, revision: number | undefined): Promise<RecordedEvent | undefined> {
    const { log } = this.#parts.ports;
    if (revision !== undefined) {
      const write = await writeOf(log, stream, revision);
      return write !== undefined && write.occurredAtMs <= atMs ? write : undefined;
    }
    const [last] = await lifeTail(log, stream);
    if (last === undefined || !isItemWrite(last)) return undefined;
    if (last.occurredAtMs <= atMs) return last;
    const write = await writeBy(log, stream, last.revision - 1, atMs);
    if (write !== 'truncated') return write;
    // The life may have been purged meanwhile.
    if ((await log.readLast(stream))?.position === last.position) throw eventsLost(last);
    return undefined;
  }

  readonly byBirth: ItemsApi['itemByBirth'] = async (container, birth, isWanted = () => true, snapshot) => {
    const { within, items, marks } = await momentOf(this.#parts, container, snapshot);
    const row = await rowBornAt(items, within.number, birth);
    if (row === undefined || isExpired(row, marks) || !isWanted(row)) return undefined;
    const shown = await this.#documents.show(within.state, row);
    if (shown === undefined) items.erased?.();
    return shown;
  };

  snapshot(container: ContainerState): Promise<ItemSnapshot> {
    return snapshotOf(this.#parts, container);
  }

  /**
   * Counting takes time in proportion to the items, so a count is reused for twenty times as long as it took. A client
   * that asks all the time then takes at most a twentieth of the time of others.
   */
  async count(container: ContainerState): Promise<number> {
    const { monotonicMs } = this.#parts.ports;
    const { within, marks } = await this.#parts.moment(container);
    const known = this.#counts.get(within.number);
    const startedMs = monotonicMs();
    if (known !== undefined && startedMs < known.untilMs) return known.count;
    const count = await this.#parts.readModel.countVisible(within.number, marks);
    const tookMs = monotonicMs() - startedMs;
    // Small containers are counted every time.
    if (tookMs >= 1) this.#counts.set(within.number, { count, untilMs: startedMs + 20 * tookMs });
    return count;
  }

  readonly list: ItemsApi['listItems'] = async (container, page) => {
    await this.#parts.seen(page.atLeast);
    const moment = await momentOf(this.#parts, container, page.snapshot);
    const { continuation } = page;
    const scope = await this.#parts.recordedScope(container, page);
    if (!isWhole(scope)) {
      const [nameless] = await namelessIn(moment);
      if (nameless !== undefined) throw namelessUnreadable(nameless);
    }
    const start = continuation?.kind === 'after' ? continuation.birth : 0;
    const items: ShownItem[] = [];
    let scannedRows = 0;
    let characters = 0;
    for await (const piece of scanScope(moment, scope, start, { wanted: page.maxItemCount })) {
      await this.#documents.prefetch(piece.rows);
      for (const [index, row] of piece.rows.entries()) {
        const shown = await this.#documents.show(moment.within.state, row);
        if (shown === undefined) {
          moment.items.erased?.();
          continue;
        }
        items.push(shown);
        characters += shown.json.length;
        if (items.length < page.maxItemCount && characters < MAX_PAGE_CHARACTERS) continue;
        return piece.isLast && index === piece.rows.length - 1
          ? { items }
          : { items, continuation: { kind: 'after', birth: row.birth } };
      }
      scannedRows += piece.scanned;
      if (scannedRows >= MAX_SCANNED && !piece.isLast) {
        return { items, continuation: { kind: 'after', birth: piece.through } };
      }
    }
    return { items };
  };
}
