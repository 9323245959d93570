/** A write brings the value in. */
export interface TakeUniqueKey {
  readonly type: 'TakeUniqueKey';
  /** The stream of the life that is written. */
  readonly by: string;
  /** The holder is an item that clients see, and its last write has the value. */
  readonly isKept: boolean;
}

/** The purge says: this life is gone. */
export interface ReleaseUniqueKey {
  readonly type: 'ReleaseUniqueKey';
  readonly of: string;
}

export type UniqueKeyCommand = TakeUniqueKey | ReleaseUniqueKey;
