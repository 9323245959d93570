import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerHeaders } from './containers.ts';
import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import { databaseOf, isFeed, methodNotAllowed, type Answer, type CosmosRequest } from './request.ts';

/** Kinds of resources that do not exist here: the name of the list in an answer, and why there are none. */
const kinds = {
  conflicts: { list: 'Conflicts', why: 'There are no conflicts, because this store has one write region.' },
  attachments: { list: 'Attachments', why: 'Attachments are not supported.' },
} as const;

export type UnsupportedKind = keyof typeof kinds;

export const isUnsupportedKind = (kind: string): kind is UnsupportedKind => Object.hasOwn(kinds, kind);

/** A feed of such resources is empty; creating one is refused. */
export function answerUnsupportedFeed(
  request: CosmosRequest,
  kind: UnsupportedKind,
  container: ContainerState,
): Answer {
  if (isFeed(request)) {
    const answer = answerFeed(request, container.rid, kinds[kind].list, []);
    // In direct mode, the Java client repeats a request for 15 seconds while the answer has no session token.
    const session = containerHeaders(databaseOf(request).name, container, request.store.headPosition());
    return { ...answer, headers: { ...answer.headers, ...session } };
  }
  if (request.method === 'POST') throw badRequest(kinds[kind].why);
  throw methodNotAllowed();
}

export function answerUnsupportedResource({ method }: CosmosRequest, kind: UnsupportedKind): never {
  if (method === 'GET' || method === 'DELETE' || method === 'PUT') {
    throw new WireError('notFound', `Resource Not Found. ${kinds[kind].why}`);
  }
  throw badRequest(kinds[kind].why);
}
