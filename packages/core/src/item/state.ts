import type { ItemUpserted } from './events.ts';

/** What a decision needs to know of one life of an item. */
export type ItemState =
  | { readonly status: 'none' }
  | {
      readonly status: 'live';
      readonly lastWrite: ItemUpserted;
      readonly etag: string;
    }
  | { readonly status: 'expired' | 'deleted' | 'purged' };

export const initialItemState: ItemState = { status: 'none' };
