import type { ItemWritten } from './events.ts';

/** What a decision needs to know of one life of an item. */
export type ItemState =
  | { readonly status: 'none' }
  | {
      readonly status: 'live';
      readonly lastWrite: ItemWritten;
      readonly etag: string;
    }
  | { readonly status: 'expired' | 'deleted' | 'purged' };

export const initialItemState: ItemState = { status: 'none' };
