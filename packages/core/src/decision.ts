/** The result of a decider: the events to record, or why there are none. */
export type Decision<Event, Refusal> =
  | { readonly kind: 'accepted'; readonly events: readonly Event[] }
  | { readonly kind: 'refused'; readonly refusal: Refusal };

/** True if a request expects another state than there is. `ifMatch` is the etag that the state must have, or `*` for any. */
export const etagDiffers = (etag: string, ifMatch: string | undefined): boolean =>
  ifMatch !== undefined && ifMatch !== '*' && ifMatch !== etag;
