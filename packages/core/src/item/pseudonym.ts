import type { ContainerDefinition } from '../container/definition.ts';

/** How an item is identified: its id, and its partition key as canonical text. */
export interface ItemName {
  readonly id: string;
  readonly partitionKey: string;
}

/**
 * True for a container that keeps ids and partition keys out of its events. Only the sealed bodies contain them.
 * Events, and the read models made from them, have keyed hashes instead.
 */
export const hasPseudonymousIds = ({ epitaph }: ContainerDefinition): boolean => epitaph?.pseudonymousIds === true;

/** True for a pseudonym in place of a partition key. Canonical keys are JSON arrays, which begin with a bracket. */
export const isPseudonym = (partitionKey: string): boolean => partitionKey.startsWith('~');

const PARTITION_PSEUDONYM = /^~[\w-]{20}$/;
const ITEM_PSEUDONYM = /^[\w-]{20}$/;

/** True if the text has the form of a partition key's pseudonym. */
export const isPartitionPseudonym = (text: string): boolean => PARTITION_PSEUDONYM.test(text);

/** True if the name has the form of an item's pseudonym. */
export const isItemPseudonym = ({ id, partitionKey }: ItemName): boolean =>
  isPartitionPseudonym(partitionKey) && ITEM_PSEUDONYM.test(id);

/** Stands in place of a partition key and is the pseudonym of none. */
export const NO_PARTITION = '~';
