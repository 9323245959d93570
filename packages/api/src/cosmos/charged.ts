import type { ContainerState } from '@epitaph/core/container/state.ts';
import { workUntil } from '../store/queries/query-places.ts';
import type { UserKind } from '../request-units/request-units.ts';
import { charge, rounded } from '../request-units/charge.ts';
import { tooManyRequests } from './errors.ts';
import {
  containerOf,
  headerFlag,
  isBatch,
  isQuery,
  isQueryPlan,
  isRunOfScript,
  type Answer,
  type CosmosRequest,
} from './request.ts';
import { isRead, route } from './router.ts';
import { spentUntil } from './scripts/transaction.ts';

/**
 * Runs a request within its container's budget. While the budget is overdrawn, the request is refused with 429 before
 * any work. Otherwise it is charged afterwards, refused or not. Handlers only report the cost of their work.
 *
 * A bulk request is let through: its handler asks `requestUnits` of the store for each operation by itself.
 */
export async function answerCharged(request: CosmosRequest): Promise<Answer> {
  const kind = kindOf(request);
  const container = kind === undefined ? undefined : existing(request);
  if (kind === undefined || container === undefined) return route(request);
  const admission = request.store.requestUnits.admit(container, kind);
  if (admission.waitMs > 0) throw tooManyRequests(admission.waitMs);
  let spent = 0;
  try {
    const answer = await route(request);
    spent = answer.charge;
    return answer;
  } catch (error) {
    spent = chargeOfError(request, error);
    throw error;
  } finally {
    admission.charge(spent);
  }
}

export function chargeOfError({ method, headers }: Pick<CosmosRequest, 'method' | 'headers'>, error: unknown): number {
  const worked = error instanceof Error ? workUntil.get(error) : undefined;
  if (worked !== undefined) return charge.refusedQuery(worked.examined, worked.extraWork);
  const spent = error instanceof Error ? spentUntil.get(error) : undefined;
  if (spent !== undefined) return rounded(charge.refusedWrite + spent);
  return isRead(method, headers) ? charge.refusedRead : charge.refusedWrite;
}

/** Requests about a container's ranges. */
const ofRanges = new Set(['pkranges', 'addresses']);

/**
 * The kind of work that a request is charged for. Undefined for a request that is charged to no container, or not as a
 * whole.
 */
function kindOf({
  method,
  segments,
  headers,
}: Pick<CosmosRequest, 'method' | 'segments' | 'headers'>): UserKind | undefined {
  if (segments.length < 5 || segments[2] !== 'colls' || ofRanges.has(segments[4]!)) return undefined;
  if (method === 'GET') {
    if (segments.length === 6) return 'read';
    return headers['a-im'] === undefined ? 'query' : 'changeFeed';
  }
  if (method !== 'POST') return 'write';
  if (isQueryPlan(headers)) return undefined;
  if (isQuery(headers)) return 'query';
  if (!isBatch(headers)) return 'write';
  return headerFlag(headers, 'x-ms-cosmos-batch-atomic') ? 'batch' : undefined;
}

/** The name under which a request is counted and traced. */
export function operationOf(request: Pick<CosmosRequest, 'method' | 'segments' | 'headers'>): string {
  if (isRunOfScript(request.method, request.segments)) return 'script';
  const kind = kindOf(request);
  if (kind === 'changeFeed') return 'change-feed';
  if (kind !== undefined) return kind;
  if (isBatch(request.headers)) return 'bulk';
  return isQueryPlan(request.headers) ? 'query-plan' : 'metadata';
}

/** The container that a request is charged to. If it does not exist, the handler answers that. */
function existing(request: CosmosRequest): ContainerState | undefined {
  try {
    return containerOf(request);
  } catch {
    return undefined;
  }
}
