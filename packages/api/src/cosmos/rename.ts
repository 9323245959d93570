import type { ContainerState } from '@epitaph/core/container/state.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import type { Precondition, Written } from '../store/api/common.ts';
import type { BatchOperation, ItemToWrite, ShownItem } from '../store/api/items-api.ts';
import type { CosmosRequest } from './request.ts';

/** A replace whose body has another id than the item. */
export interface Rename {
  readonly kind: 'rename';
  /** The item's former id. */
  readonly id: string;
  /** The item under its new id, in the same partition key. */
  readonly item: ItemToWrite;
  readonly precondition: Precondition | undefined;
}

/**
 * History is kept by id, so a rename ends one item and begins another. Both are done together, so readers see one
 * change, and each has the other's stream on record.
 */
export function stepsOf({ id, item, precondition }: Rename): readonly [BatchOperation, BatchOperation] {
  return [
    { kind: 'delete', id, partitionKey: item.partitionKey, precondition },
    { kind: 'write', operation: 'create', item, isRename: true },
  ];
}

/** @throws Refusal when the item does not exist or fails the precondition, or when its new id is taken */
export async function renameItem(
  { store, caller }: Pick<CosmosRequest, 'store' | 'caller'>,
  container: ContainerState,
  rename: Rename,
): Promise<Written<ShownItem>> {
  const outcome = await store.batchItems(caller, container, stepsOf(rename));
  if (outcome.kind === 'refused') throw outcome.refusal;
  const written = outcome.results[1];
  invariant(written?.kind === 'written', 'a rename answers with what was written under the new id');
  return { resource: written.item, position: outcome.position, created: false };
}
