import { partitionKeyDeleteAfter } from '../container/partition-key-deletes.ts';
import type { ContainerState } from '../container/state.ts';
import type { RecordExpiry, RecordPartitionKeyDelete } from './commands.ts';

/**
 * The command that records how a life has ended that is live by its own stream: with its partition key, or by its
 * deadline. The decider checks itself whether it has ended.
 *
 * @param life the position of its last write, undefined for a life without one; and the partition key of that write
 */
export function recordOfEnd(
  container: Pick<ContainerState, 'timeline' | 'partitionKeyDeletes'>,
  { partitionKey, position }: { readonly partitionKey: string; readonly position: number | undefined },
  nowMs: number,
): RecordExpiry | RecordPartitionKeyDelete {
  const { timeline } = container;
  const left = position === undefined ? undefined : partitionKeyDeleteAfter(container, partitionKey, position);
  if (left === undefined || position === undefined) return { type: 'RecordExpiry', nowMs, timeline };
  const { atMs, by } = left;
  return { type: 'RecordPartitionKeyDelete', timeline, leftWithPartitionKey: { atMs, by, position } };
}
