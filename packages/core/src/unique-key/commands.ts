/** A write uses the value. */
export interface TakeUniqueKey {
  readonly type: 'TakeUniqueKey';
  /** The stream of the life that is written. */
  readonly by: string;
  /** The present holder is an item that clients can see, and its last write has the value. */
  readonly isKept: boolean;
}

/** From the purge: this life is erased. */
export interface ReleaseUniqueKey {
  readonly type: 'ReleaseUniqueKey';
  readonly of: string;
}

export type UniqueKeyCommand = TakeUniqueKey | ReleaseUniqueKey;
