import type { ContainerDefinition } from '../container/definition.ts';

/** What an item is known by: its id, and its partition key as canonical text. */
export interface ItemName {
  readonly id: string;
  readonly partitionKey: string;
}

/**
 * True for a container that keeps ids and partition keys out of its events. They stand in the sealed bodies alone;
 * events, and read models after them, have keyed hashes in their place.
 */
export const hasPseudonymousIds = ({ epitaph }: ContainerDefinition): boolean => epitaph?.pseudonymousIds === true;

/** True for a pseudonym in the place of a partition key: canonical keys are JSON arrays, and begin with a bracket. */
export const isPseudonym = (partitionKey: string): boolean => partitionKey.startsWith('~');

const PARTITION_PSEUDONYM = /^~[\w-]{20}$/;
const ITEM_PSEUDONYM = /^[\w-]{20}$/;

/** True for what can be the pseudonym of a partition key. */
export const isPartitionPseudonym = (text: string): boolean => PARTITION_PSEUDONYM.test(text);

/** True for what can be the pseudonym of an item. */
export const isItemPseudonym = ({ id, partitionKey }: ItemName): boolean =>
  isPartitionPseudonym(partitionKey) && ITEM_PSEUDONYM.test(id);

/** In the place of a partition key that no item has. */
export const NO_PARTITION = '~';
