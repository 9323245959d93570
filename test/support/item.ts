import type { ItemToWrite } from '@epitaph/api/store/api/items-api.ts';

/** An item as passed to a store, in a container whose partition key is `/pk`. */
export const itemToWrite = (
  document: ItemToWrite['document'] & { readonly id: string; readonly pk: string },
): ItemToWrite => ({
  id: document.id,
  partitionKey: JSON.stringify([document.pk]),
  document,
  json: JSON.stringify(document),
});
