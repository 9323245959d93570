/**
 * A server that holds the store's data can't be reached just now, or was lost in the middle of an answer. Nothing is
 * known of what was under way; the same may be tried again a little later.
 */
export class StorageUnavailable extends Error {
  override readonly name = 'StorageUnavailable';
}
