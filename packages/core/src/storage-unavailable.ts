/**
 * A server that holds the store's data can't be reached at present, or the connection was lost during an answer; or the
 * store's own disk does not take a write. The caller may try again a little later.
 */
export class StorageUnavailable extends Error {
  override readonly name: string = 'StorageUnavailable';
  /** True if only somebody at this machine can correct the problem, who must therefore be told. */
  readonly isForOperator: boolean = false;
}
