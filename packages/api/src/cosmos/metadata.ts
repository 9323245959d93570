import { charge } from '../request-units/charge.ts';
import type { JsonObject } from './json.ts';
import { ifNoneMatchOf, type Answer, type CosmosRequest } from './request.ts';
import { sessionToken } from './session-token.ts';

/**
 * Databases, users, permissions and client encryption keys. There are few of them, they are all in memory, and each is
 * in the only range 0.
 */
export type Metadata = JsonObject & { readonly _etag: string };

const headersAt = (position: number) => ({ 'x-ms-session-token': sessionToken('0', position) });

/** A resource as the answer to a read, or, if the client has this version already, the answer that nothing is new. */
export function answerMetadataRead({ headers, store }: CosmosRequest, resource: Metadata): Answer {
  const answer = answerMetadata(200, resource, store.headPosition());
  return ifNoneMatchOf(headers) === resource._etag ? { ...answer, status: 304, body: null } : answer;
}

/** A resource as the answer to a write at a position of the log. */
export function answerMetadata(status: number, resource: Metadata, position: number): Answer {
  return {
    status,
    body: JSON.stringify(resource),
    charge: charge.metadata,
    headers: { etag: resource._etag, ...headersAt(position) },
  };
}

/** The answer to the deletion of a resource at a position of the log. */
export function answerMetadataDeleted(position: number): Answer {
  return { status: 204, body: null, charge: charge.metadata, headers: headersAt(position) };
}
