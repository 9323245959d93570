import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { NAMELESS_PARTITION } from '@epitaph/projections/items/unreadable-items.ts';
import type { ItemRow } from '@epitaph/projections/read-model-store.ts';
import { PartUnreadable } from '../damage.ts';
import type { Moment, StoreParts } from '../parts.ts';

/** How many are read at most: if there are more, it is enough to know that there are some. */
const LOOKED_AT = 1_000;

/** Items whose names are lost from the log. Each of them may be the one that is asked for by partition key or id. */
export async function namelessIn({ within: { number, state }, items, marks }: Moment): Promise<readonly ItemRow[]> {
  if (state.hasNameless !== true) return [];
  const scan = { partitionKey: NAMELESS_PARTITION, afterBirth: 0, limit: LOOKED_AT, marks };
  return items.readModel.scanItems(number, scan);
}

/** @throws {PartUnreadable} when an item that was not found by its name is one of these */
export async function assertNotNameless(
  { ports }: Pick<StoreParts, 'ports'>,
  moment: Moment,
  { partitionKey, id }: ItemName,
): Promise<void> {
  const nameless = await namelessIn(moment);
  if (nameless.length === 0) return;
  const prefix = await ports.naming.itemStreamPrefix(moment.within.state.rid, partitionKey, id);
  const found = nameless.find((row) => row.id.startsWith(`${prefix}.`));
  if (found !== undefined) throw namelessUnreadable(found);
}

export const namelessUnreadable = ({ id, position }: Pick<ItemRow, 'id' | 'position'>, cause?: Error): PartUnreadable =>
  new PartUnreadable(
    `An item can not be read, because its data in the store is damaged, including its id. It is at position ${position} of the event log. Queries of the whole container that exclude it are answered: c.id != ${JSON.stringify(id)}.`,
    { cause },
  );
