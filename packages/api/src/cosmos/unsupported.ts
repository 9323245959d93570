import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import { isFeed, methodNotAllowed, type Answer, type CosmosRequest } from './request.ts';

/** Kinds of resources of which there are none: what the list is called in an answer, and what to call one. */
const kinds = {
  conflicts: { list: 'Conflicts', why: 'There are no conflicts: every write is decided once.' },
  attachments: { list: 'Attachments', why: 'Attachments are not supported.' },
} as const;

export type UnsupportedKind = keyof typeof kinds;

export const isUnsupportedKind = (kind: string): kind is UnsupportedKind => Object.hasOwn(kinds, kind);

/** A feed of what can't be made is empty; making one says that it can't be. */
export function answerUnsupportedFeed(request: CosmosRequest, kind: UnsupportedKind, rid: string): Answer {
  if (isFeed(request)) return answerFeed(request, rid, kinds[kind].list, []);
  if (request.method === 'POST') throw badRequest(kinds[kind].why);
  throw methodNotAllowed();
}

export function answerUnsupportedResource({ method }: CosmosRequest, kind: UnsupportedKind): never {
  if (method === 'GET' || method === 'DELETE' || method === 'PUT') {
    throw new WireError('notFound', `Resource Not Found. ${kinds[kind].why}`);
  }
  throw badRequest(kinds[kind].why);
}
