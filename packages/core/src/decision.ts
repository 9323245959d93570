/** What a decider makes of a command: what is to be recorded, or why nothing is. */
export type Decision<Event, Refusal> =
  | { readonly kind: 'accepted'; readonly events: readonly Event[] }
  | { readonly kind: 'refused'; readonly refusal: Refusal };

/** Whether a request is about another state than there is: it names the etag that this must have, or `*` for any. */
export const etagDiffers = (etag: string, ifMatch: string | undefined): boolean =>
  ifMatch !== undefined && ifMatch !== '*' && ifMatch !== etag;
