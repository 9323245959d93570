import type { ContainerNumber, ItemRow, ReadModelChange } from '../read-model-store.ts';

export type ItemWritten = Extract<ReadModelChange, { kind: 'item-written' }>;

/** An item's row after a write. Undefined if the row before is needed and not given. */
export function rowAfter(change: ItemWritten, before: ItemRow | undefined): ItemRow | undefined {
  const { container, partitionKey, id, life, revision, position, ts, ttl, key } = change;
  if (revision === 0) return { birth: position, container, partitionKey, id, life, position, ts, ttl, key };
  return before?.life === life ? { ...before, position, ts, ttl, key } : undefined;
}

/** The same name for the rows of all lives of one item, and for no others. */
export const rowName = (container: ContainerNumber, partitionKey: string, id: string): string =>
  `${container} ${partitionKey} ${id}`;
