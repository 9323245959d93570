import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import { isQuery, isQueryPlan, methodNotAllowed, type Answer, type CosmosRequest } from './request.ts';

/** Kinds of resources of which there are none: what the list is called in an answer, and what to call one. */
const kinds = {
  sprocs: { list: 'StoredProcedures', one: 'Stored procedures' },
  triggers: { list: 'Triggers', one: 'Triggers' },
  udfs: { list: 'UserDefinedFunctions', one: 'User-defined functions' },
  conflicts: { list: 'Conflicts', one: 'Conflicts' },
  attachments: { list: 'Attachments', one: 'Attachments' },
} as const;

export type UnsupportedKind = keyof typeof kinds;

export const isUnsupportedKind = (kind: string): kind is UnsupportedKind => Object.hasOwn(kinds, kind);

/** A feed of what can't be made is empty; making one says that it can't be. */
export function answerUnsupportedFeed(request: CosmosRequest, kind: UnsupportedKind, rid: string): Answer {
  const { method, headers } = request;
  if (method === 'GET' || (method === 'POST' && (isQuery(headers) || isQueryPlan(headers)))) {
    return answerFeed(request, rid, kinds[kind].list, []);
  }
  if (method === 'POST') throw badRequest(`${kinds[kind].one} are not supported.`);
  throw methodNotAllowed();
}

export function answerUnsupportedResource({ method }: CosmosRequest, kind: UnsupportedKind): never {
  if (method === 'GET' || method === 'DELETE' || method === 'PUT') {
    const why = kind === 'conflicts' ? 'There are no conflicts here.' : `${kinds[kind].one} are not supported.`;
    throw new WireError('notFound', `Resource Not Found. ${why}`);
  }
  throw badRequest(`${kinds[kind].one} are not supported.`);
}
