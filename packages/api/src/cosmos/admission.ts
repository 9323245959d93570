import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { IncomingHttpHeaders } from 'node:http';
import { isoTime } from '@epitaph/core/clock.ts';
import { type Identities, identityTokenIn } from '../http/identities.ts';
import { DATE_WINDOW_MS, resourceTokenIn, type KeyRing, type SignatureVerdict } from '../http/keys.ts';
import type { Limits } from '../http/limits.ts';
import type { StoreApi } from '../store/store-api.ts';
import { addressesTarget, GATEWAY_MODE } from './addresses.ts';
import { assignedStore, checkTargetAssigned } from './assigned.ts';
import { consistencyByStrategy, type ConsistencyLevel, type ConsistencyPolicy } from './consistency.ts';
import { badRequest, WireError } from './errors.ts';
import { checkTargetGranted, grantedStore } from './granted.ts';
import { notForWrites } from './read-only.ts';
import { headerText } from './request.ts';
import { isRead } from './router.ts';
import { otherSignedLinks, parseTarget, type Target } from './target.ts';

/** A request over HTTP or in direct mode. */
export interface Asked {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly socket: Socket;
}

/** What is known about a request before its body is read. */
export interface Admitted {
  readonly activityId: string;
  readonly target: Target;
  /** The actor in events. */
  readonly actor: string;
  readonly consistency: ConsistencyLevel;
  /** The store, or the part of it that the holder of a token may use. */
  readonly store: StoreApi;
  /** True for a resource token. It is for one container, which this node knows. */
  readonly isByToken: boolean;
}

/** The settings that decide whether a request is admitted. */
export interface Gate {
  readonly store: StoreApi;
  /** The store for holders of a key that may only read. */
  readonly readOnly: StoreApi;
  readonly keys: KeyRing;
  /** Checks identity tokens, if any are accepted. */
  readonly identities: Identities | undefined;
  readonly limits: Limits;
  readonly consistencyPolicy: ConsistencyPolicy;
}

/**
 * Lets a request in by its headers and its target, before its body is read.
 *
 * @throws WireError when it is not let in; if a token must be checked, the returned promise rejects with it
 */
export function admit(
  request: Asked,
  { store, readOnly, keys, identities, limits, consistencyPolicy }: Gate,
): Admitted | Promise<Admitted> {
  const { headers } = request;
  const method = request.method!;
  let target = parseTarget(request.url!, limits.targetCharacters);
  if (target.segments[0] === 'addresses') {
    if (!speaksDirect(request)) throw noDirectMode();
    target = addressesTarget(request.url!, limits.targetCharacters);
  }
  const consistency = consistencyByStrategy(
    headerText(headers, 'x-ms-cosmos-read-consistency-strategy'),
    headerText(headers, 'x-ms-consistency-level'),
    consistencyPolicy,
  );
  const token = resourceTokenIn(headers.authorization);
  if (token !== undefined) return admitToken({ method, headers }, token, target, consistency, store);
  if (identities !== undefined) {
    const identityToken = identityTokenIn(headers.authorization);
    if (identityToken !== undefined) {
      return admitIdentity({ method, headers }, identities.verify(identityToken), target, consistency, store);
    }
  }
  const verdict = keys.verifyMasterSignature({
    authorization: headers.authorization,
    verb: method,
    resourceType: target.resourceType,
    resourceLink: target.resourceLink,
    otherLinks: () => otherSignedLinks(target),
    msDate: headerText(headers, 'x-ms-date'),
    date: headers.date,
  });
  if (!verdict.ok) throw notLetIn(verdict);
  const { holder } = verdict;
  if (holder.role === 'audit') {
    throw new WireError('forbidden', "The auditor key is for history only: it can't be used on the data plane.");
  }
  if (holder.role === 'read' && !isRead(method, headers)) throw notForWrites();
  // A permission is shown with its token, which may allow writes.
  if (holder.role === 'read' && target.segments[4] === 'permissions') {
    throw new WireError('forbidden', "The read-only key can't be used for permissions.");
  }
  return {
    activityId: activityIdOf(headers),
    target,
    actor: holder.actor,
    consistency,
    store: holder.role === 'read' ? readOnly : store,
    isByToken: false,
  };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

/**
 * The id of a request in its answer, in the server's log and in the events that it records: the one that the client
 * sent, or a new one. Only UUIDs are accepted: they carry no information and have one length.
 *
 * @source Cosmos DB, "Common REST response headers": x-ms-activity-id echoes the request's
 */
export function activityIdOf(headers: IncomingHttpHeaders): string {
  const given = headerText(headers, 'x-ms-activity-id')?.toLowerCase();
  return given !== undefined && UUID.test(given) && given !== NIL_UUID ? given : randomUUID();
}

/** Headers that HTTP proxies add. Such a proxy does not forward direct mode. */
const PROXIED = ['x-forwarded-proto', 'x-forwarded-for', 'forwarded', 'via'] as const;

const speaksDirect = ({ headers, socket }: Asked): boolean =>
  socket instanceof TLSSocket && PROXIED.every((name) => headers[name] === undefined);

/**
 * Refuses to give addresses for direct mode, at which clients would only use TLS. Clients sign this request in a
 * special way; the answer is the same for everyone.
 */
const noDirectMode = (): WireError =>
  badRequest(
    `The client is in direct mode, the default of the .NET and the Java client, which needs TLS: start the server with --tls-cert and --tls-key. ${GATEWAY_MODE}`,
  );

async function admitToken(
  { method, headers }: { readonly method: string; readonly headers: IncomingHttpHeaders },
  token: string,
  target: Target,
  consistency: ConsistencyLevel,
  store: StoreApi,
): Promise<Admitted> {
  const verdict = await store.verifyResourceToken(token);
  if (!verdict.ok) {
    if (verdict.reason === 'expired') throw new WireError('forbidden', 'The authorization token has expired.');
    throw new WireError(
      'unauthorized',
      "The input authorization token can't serve the request: it is not valid, or its permission was replaced or deleted since. Read the permission for a new token.",
    );
  }
  const { grant } = verdict;
  checkTargetGranted(grant, { segments: target.segments, method, isRead: isRead(method, headers) });
  const activityId = activityIdOf(headers);
  return { activityId, target, actor: grant.actor, consistency, store: grantedStore(store, grant), isByToken: true };
}

async function admitIdentity(
  { method, headers }: { readonly method: string; readonly headers: IncomingHttpHeaders },
  verified: ReturnType<Identities['verify']>,
  target: Target,
  consistency: ConsistencyLevel,
  store: StoreApi,
): Promise<Admitted> {
  const verdict = await verified;
  if (!verdict.ok) throw new WireError(verdict.reason === 'invalid' ? 'unauthorized' : 'unavailable', verdict.why);
  const { principal } = verdict;
  const { actor, assignments } = principal;
  const admitted = { activityId: activityIdOf(headers), target, actor, consistency, isByToken: false };
  if (assignments.some(({ role }) => role === 'administrator')) return { ...admitted, store };
  checkTargetAssigned(principal, { segments: target.segments, method, isRead: isRead(method, headers) });
  return { ...admitted, store: assignedStore(store, principal) };
}

function notLetIn(verdict: Extract<SignatureVerdict, { readonly ok: false }>): WireError {
  switch (verdict.reason) {
    case 'missing':
      return new WireError(
        'unauthorized',
        "Required Header 'authorization' is missing. Ensure a valid Authorization token is passed.",
      );
    case 'malformed':
      return new WireError(
        'unauthorized',
        "The authorization header has an invalid format: it is not 'type=master&ver=1.0&sig=…', URL-encoded.",
      );
    case 'unsupported':
      return new WireError(
        'unauthorized',
        'Only a master key or a resource token is accepted, or an identity token if the store was started with --identities.',
      );
    case 'no-date':
      return new WireError('unauthorized', "The 'x-ms-date' header is missing or is not an HTTP date.");
    case 'date-outside-window':
      return new WireError('forbidden', notValidNow(verdict.dateMs, verdict.nowMs));
    case 'wrong-signature': {
      const payload = JSON.stringify(verdict.payload).slice(1, -1);
      return new WireError(
        'unauthorized',
        `The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol. For more info: https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to sign: '${payload}'`,
      );
    }
    default:
      return verdict satisfies never;
  }
}

/** Cosmos DB's own text: its three times show at once whose clock is wrong, and by how much. */
function notValidNow(dateMs: number, nowMs: number): string {
  const [start, end, now] = [dateMs - DATE_WINDOW_MS, dateMs + DATE_WINDOW_MS, nowMs].map(isoTime);
  return `The authorization token is not valid at the current time. Please create another token and retry (token start time: ${start}, token expiry time: ${end}, current server time: ${now}).`;
}
