import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { StoreApi } from '../store/store-api.ts';
import { charge } from './charge.ts';
import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import type { JsonObject } from './json.ts';
import { isQuery, isQueryPlan, methodNotAllowed, type Answer, type CosmosRequest } from './request.ts';
import { containerSelf } from './system-properties.ts';

/** Request units a second that a container is said to have. Nothing is held to it yet. */
const THROUGHPUT = 400;

/** An offer's id: its container's, without what base64 ends with. */
const offerId = (container: ContainerState): string => container.rid.replaceAll('=', '');

function showOffer(container: ContainerState): JsonObject {
  const id = offerId(container);
  return {
    resource: containerSelf(container),
    offerType: 'Invalid',
    offerResourceId: container.rid,
    offerVersion: 'V2',
    content: {
      offerThroughput: THROUGHPUT,
      offerIsRUPerMinuteThroughputEnabled: false,
      offerMinimumThroughputParameters: { maxThroughputEverProvisioned: THROUGHPUT, maxConsumedStorageEverInKB: 0 },
    },
    id,
    _rid: id,
    _self: `offers/${id}/`,
    _etag: container.etag,
    _ts: Math.floor(container.createdAtMs / 1000),
  };
}

const allContainers = (store: StoreApi): readonly ContainerState[] =>
  store.listDatabases().flatMap((database) => store.listContainers(database.name));

/** `/offers` */
export function answerOffers(request: CosmosRequest): Answer {
  const { method, headers, store } = request;
  if (method === 'GET' || (method === 'POST' && (isQuery(headers) || isQueryPlan(headers)))) {
    return answerFeed(request, '', 'Offers', allContainers(store).map(showOffer));
  }
  throw methodNotAllowed();
}

/** `/offers/{id}` */
export function answerOffer({ method, segments, store }: CosmosRequest): Answer {
  const container = allContainers(store).find((candidate) => offerId(candidate) === segments[1]);
  if (container === undefined) throw new WireError('notFound', 'Resource Not Found: no such offer.');
  if (method === 'PUT') throw badRequest('Changing the throughput is not supported yet.');
  if (method !== 'GET') throw methodNotAllowed();
  return { status: 200, body: JSON.stringify(showOffer(container)), charge: charge.metadata };
}
