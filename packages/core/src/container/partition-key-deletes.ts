import type { ContainerState, PartitionKeyDelete } from './state.ts';

/**
 * The delete by partition key with which a life left whose last write stands at a position; undefined when none came
 * after it. Only deletes that are not on record in every life yet are known here, which is where it matters.
 */
export function partitionKeyDeleteAfter(
  { partitionKeyDeletes }: Pick<ContainerState, 'partitionKeyDeletes'>,
  partitionKey: string,
  position: number,
): PartitionKeyDelete | undefined {
  // Most containers have none under way, and every write asks.
  if (partitionKeyDeletes.length === 0) return undefined;
  return partitionKeyDeletes.find((pending) => pending.partitionKey === partitionKey && pending.position > position);
}
