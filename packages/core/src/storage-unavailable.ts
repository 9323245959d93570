/**
 * A server that holds the store's data can't be reached just now, or was lost in the middle of an answer; or the
 * store's own disk does not take a write. The same may be tried again a little later.
 */
export class StorageUnavailable extends Error {
  override readonly name: string = 'StorageUnavailable';
  /** True for what only somebody at this machine can put right, who must therefore hear of it. */
  readonly isForOperator: boolean = false;
}
