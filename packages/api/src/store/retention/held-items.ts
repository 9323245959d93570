import { isWithin, type TimeSpan } from '@epitaph/core/history/preview.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { HoldScope } from '@epitaph/core/vault/key-vault.ts';
import type { ContainerNumber, ItemRow } from '@epitaph/projections/read-model-store.ts';
import type { Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { BoundedCount } from '../api/catalog-api.ts';
import type { StoreParts } from '../parts.ts';

/** How many items, or names in holds, are examined to count what is held. They take a few milliseconds. */
const LOOKED_AT = 500;

/** Current items of a container whose times are in some spans. */
export interface ItemsByTimes {
  readonly rid: string;
  readonly container: ContainerNumber;
  readonly spans: readonly TimeSpan[];
  /** Which of the items are visible. */
  readonly marks: Watermarks;
  readonly items: number;
}

/**
 * How many of some items holds cover. Holds name streams by hashes, but items are counted by their times, so one must
 * be looked up for the other. The count is exact when there are few items or few names, or when a hold is on the whole
 * container. Otherwise only the first names of the holds are looked up, and the count is a bound.
 */
export async function countHeld(
  parts: StoreParts,
  among: ItemsByTimes,
  scopes: readonly HoldScope[],
): Promise<BoundedCount> {
  const exactly = (items: number): BoundedCount => ({ atLeast: items, atMost: items });
  if (scopes.length === 0 || among.items === 0) return exactly(0);
  if (scopes.some(({ kind }) => kind === 'container')) return exactly(among.items);
  return among.items <= LOOKED_AT ? exactly(await coveredAmong(parts, among)) : countByName(parts, among, scopes);
}

async function coveredAmong(parts: StoreParts, { rid, container, spans }: ItemsByTimes): Promise<number> {
  const streams: string[] = [];
  for (const span of spans) {
    for (const { partitionKey, id, life } of await parts.readModel.itemsByTimes(container, span, LOOKED_AT)) {
      streams.push(itemStream(await parts.ports.naming.itemStreamPrefix(rid, partitionKey, id), life));
    }
  }
  const holds = await parts.ports.vault.holdsOn(streams);
  return holds.filter(({ length }) => length > 0).length;
}

async function countByName(
  parts: StoreParts,
  { container, spans, marks, items }: ItemsByTimes,
  scopes: readonly HoldScope[],
): Promise<BoundedCount> {
  const { log } = parts.ports;
  const found = new Set<number>();
  let left = LOOKED_AT;
  let all = true;
  const keep = (row: ItemRow | undefined): void => {
    if (row !== undefined && spans.some((span) => isWithin(row, span))) found.add(row.birth);
  };
  const nameOf = async (stream: string) => {
    const last = await log.readLast(stream);
    return last === undefined ? undefined : readItemEvent(last).data;
  };
  /** The current item that the life of a stream belongs to. */
  const itemOf = async (stream: string): Promise<ItemRow | undefined> => {
    const name = await nameOf(stream);
    return name === undefined ? undefined : parts.readModel.findItem(container, name.partitionKey, name.id);
  };
  const look = async (streams: readonly string[], visit: (stream: string) => Promise<void>): Promise<void> => {
    await Promise.all(streams.slice(0, left).map(visit));
    all &&= streams.length <= left;
    left = Math.max(0, left - streams.length);
  };
  for (const scope of scopes) {
    if (left === 0) {
      all = false;
      break;
    }
    switch (scope.kind) {
      case 'lives':
        await look(scope.streams, async (stream) => {
          const row = await itemOf(stream);
          if (row?.life === parseItemStream(stream)?.life) keep(row);
        });
        break;
      case 'stream-prefixes':
        await look(scope.prefixes, async (prefix) => keep(await itemOf(`${prefix}0`)));
        break;
      case 'stream-prefix': {
        const stream = await log.findStream?.(scope.prefix);
        const name = stream === undefined ? undefined : await nameOf(stream);
        // A log that can't find a stream by the beginning of its name can't tell which partition key the hold is on.
        if (name === undefined) {
          all &&= log.findStream !== undefined;
          break;
        }
        const { partitionKey } = name;
        const rows = await parts.readModel.scanItems(container, {
          partitionKey,
          afterBirth: 0,
          limit: left + 1,
          marks,
        });
        rows.slice(0, left).forEach(keep);
        all &&= rows.length <= left;
        left = Math.max(0, left - rows.length);
        break;
      }
      case 'container':
        break;
    }
  }
  return { atLeast: found.size, atMost: all ? found.size : items };
}
