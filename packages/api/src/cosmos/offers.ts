import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { parsedJson } from '@epitaph/core/parsed-json.ts';
import type { ChangeThroughput, Provisioning } from '@epitaph/core/throughput/provisioning.ts';
import {
  ceilingOf,
  DEFAULT_THROUGHPUT,
  lowestThroughput,
  type Throughput,
  throughputProblem,
} from '@epitaph/core/throughput/throughput.ts';
import type { StoreApi } from '../store/store-api.ts';
import { charge } from '../request-units/charge.ts';
import { containerSelf, databaseSelf } from '../store/items/system-properties.ts';
import { badRequest, WireError } from './errors.ts';
import { answerFeed } from './feed.ts';
import type { JsonObject } from './json.ts';
import {
  headerFlag,
  headerText,
  ifNoneMatchOf,
  isFeed,
  jsonObjectOf,
  methodNotAllowed,
  preconditionOf,
  type Answer,
  type CosmosRequest,
} from './request.ts';

type Owner =
  | { readonly kind: 'container'; readonly state: ContainerState }
  | { readonly kind: 'database'; readonly state: DatabaseState };

/** The throughput that the headers of a create ask for. */
export function readThroughput(headers: IncomingHttpHeaders): Throughput | undefined {
  const manual = headerText(headers, 'x-ms-offer-throughput');
  const autoscale = headerText(headers, 'x-ms-cosmos-offer-autopilot-settings');
  if (manual === undefined && autoscale === undefined) return undefined;
  if (manual !== undefined && autoscale !== undefined) {
    throw badRequest(
      'Manual throughput and autoscale exclude each other: send x-ms-offer-throughput or x-ms-cosmos-offer-autopilot-settings, not both.',
    );
  }
  const throughput: Throughput =
    manual === undefined
      ? autoscaleOf(readAutoscaleHeader(autoscale!))
      : { kind: 'manual', requestUnitsPerSecond: readAmount(manual, 'x-ms-offer-throughput') };
  const problem = throughputProblem(throughput, 0);
  if (problem !== undefined) throw badRequest(problem);
  return throughput;
}

function readAmount(text: string, header: string): number {
  if (!/^\d{1,15}$/.test(text)) {
    throw badRequest(`The value '${text.slice(0, 100)}' specified for the header '${header}' is invalid.`);
  }
  return Number(text);
}

/** The `autoUpgradePolicy` that clients send. */
const upgradePolicySchema = z
  .looseObject({ throughputPolicy: z.looseObject({ incrementPercent: z.int().min(0) }).nullish() })
  .nullish();
const autoscaleSchema = z.looseObject({ maxThroughput: z.int().min(1), autoUpgradePolicy: upgradePolicySchema });
type Autoscale = z.infer<typeof autoscaleSchema>;

function autoscaleOf({ maxThroughput, autoUpgradePolicy }: Autoscale): Throughput & { readonly kind: 'autoscale' } {
  const incrementPercent = autoUpgradePolicy?.throughputPolicy?.incrementPercent;
  return {
    kind: 'autoscale',
    maxRequestUnitsPerSecond: maxThroughput,
    ...(incrementPercent === undefined ? {} : { incrementPercent }),
  };
}

function readAutoscaleHeader(text: string): Autoscale {
  const value = parsedJson(text);
  const parsed = autoscaleSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw badRequest(
    "The header 'x-ms-cosmos-offer-autopilot-settings' is invalid: it must be JSON with a whole number as maxThroughput and, if there is an autoUpgradePolicy, as its incrementPercent.",
  );
}

/** An offer's id: the rid of its owner without the padding of its base64. */
const offerId = ({ state }: Owner): string => state.rid.replaceAll('=', '');

function showOffer(owner: Owner): JsonObject {
  const id = offerId(owner);
  const { state } = owner;
  return {
    resource: owner.kind === 'container' ? containerSelf(owner.state) : databaseSelf(owner.state),
    offerType: 'Invalid',
    offerResourceId: state.rid,
    offerVersion: 'V2',
    content: showContent(state),
    id,
    _rid: id,
    _self: `offers/${id}/`,
    _etag: state.throughputEtag,
    _ts: Math.floor(state.throughputChangedAtMs / 1000),
  };
}

/** The throughput that is shown. Without any of its own, the default is shown. */
const shownThroughput = ({ throughput }: Provisioning): Throughput =>
  throughput.kind === 'none' ? DEFAULT_THROUGHPUT : throughput;

function showContent(state: Provisioning): JsonObject {
  const shown = shownThroughput(state);
  const amount = ceilingOf(shown);
  return {
    // An autoscale offer names a tenth of its maximum, below which it never goes.
    offerThroughput: shown.kind === 'autoscale' ? amount / 10 : amount,
    offerIsRUPerMinuteThroughputEnabled: false,
    offerMinimumThroughputParameters: {
      maxThroughputEverProvisioned: Math.max(amount, state.highestThroughput),
      maxConsumedStorageEverInKB: 0,
    },
    offerIsAutoScaleEnabled: shown.kind === 'autoscale',
    ...(shown.kind === 'autoscale' ? { offerAutopilotSettings: showAutoscale(shown) } : {}),
  };
}

function showAutoscale(shown: Throughput & { readonly kind: 'autoscale' }): JsonObject {
  const { maxRequestUnitsPerSecond: maxThroughput, incrementPercent } = shown;
  if (incrementPercent === undefined) return { maxThroughput };
  return { maxThroughput, autoUpgradePolicy: { throughputPolicy: { incrementPercent } } };
}

/** All offers in order of creation, each database before its containers. */
function allOffers(store: StoreApi): Owner[] {
  return store.listDatabases().flatMap((database): Owner[] => {
    const shared = database.throughput.kind !== 'none';
    return [
      ...(shared ? [{ kind: 'database' as const, state: database }] : []),
      ...store
        .listContainers(database.name)
        // A container that shares its database's throughput has no offer of its own.
        .filter(({ throughput }) => !shared || throughput.kind !== 'none')
        .map((state) => ({ kind: 'container' as const, state })),
    ];
  });
}

/**
 * A serverless account has no offers. The text of the error is the one by which tools recognise such an account.
 *
 * @throws WireError 400
 */
function assertOffers({ store }: CosmosRequest): void {
  if (!store.requestUnits.serverless) return;
  throw badRequest('Reading or replacing offers is not supported for serverless accounts.');
}

/** `/offers` */
export function answerOffers(request: CosmosRequest): Answer {
  assertOffers(request);
  if (isFeed(request)) return answerFeed(request, '', 'Offers', allOffers(request.store).map(showOffer));
  throw methodNotAllowed();
}

/** `/offers/{id}` */
export async function answerOffer(request: CosmosRequest): Promise<Answer> {
  assertOffers(request);
  const { method, segments, store, headers, caller } = request;
  const owner = allOffers(store).find((candidate) => offerId(candidate) === segments[1]);
  if (owner === undefined) throw new WireError('notFound', 'Resource Not Found: no such offer.');
  if (method === 'GET') {
    const notModified = ifNoneMatchOf(headers) === owner.state.throughputEtag;
    return answerWith(owner, notModified ? 304 : 200);
  }
  if (method !== 'PUT') throw methodNotAllowed();
  const change = readChange(request, owner);
  const precondition = preconditionOf(headers);
  if (owner.kind === 'container') {
    const { resource } = await store.changeContainerThroughput(caller, owner.state.rid, change, precondition);
    return answerWith({ kind: 'container', state: resource }, 200);
  }
  const { resource } = await store.changeDatabaseThroughput(caller, owner.state.rid, change, precondition);
  return answerWith({ kind: 'database', state: resource }, 200);
}

function answerWith(owner: Owner, status: 200 | 304): Answer {
  const { kind } = shownThroughput(owner.state);
  return {
    status,
    body: status === 304 ? null : JSON.stringify(showOffer(owner)),
    charge: charge.metadata,
    headers: {
      etag: owner.state.throughputEtag,
      // A change is in force when it is answered, so nothing is ever pending.
      'x-ms-offer-replace-pending': 'false',
      'x-ms-cosmos-min-throughput': String(
        lowestThroughput(kind === 'autoscale' ? 'autoscale' : 'manual', owner.state.highestThroughput),
      ),
    },
  };
}

const offerSchema = z.looseObject({
  id: z.string().optional(),
  _rid: z.string().optional(),
  offerResourceId: z.string().optional(),
  content: z
    .looseObject({
      offerThroughput: z.number().nullish(),
      offerAutopilotSettings: z
        .looseObject({ maxThroughput: z.number(), autoUpgradePolicy: upgradePolicySchema })
        .nullish(),
    })
    .optional(),
});

/**
 * The change that a replaced offer asks for. Clients send back the whole offer with the part that they want to change.
 */
function readChange(request: CosmosRequest, owner: Owner): ChangeThroughput['change'] {
  const { headers } = request;
  const parsed = offerSchema.safeParse(jsonObjectOf(request));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw badRequest(`The offer's '${issue?.path.join('.') ?? ''}' is invalid: ${issue?.message ?? ''}.`);
  }
  const { id, _rid: rid, offerResourceId, content } = parsed.data;
  if ([id, rid].some((given) => given !== undefined && given !== offerId(owner))) {
    throw badRequest('The id in the body is not the one in the request target.');
  }
  if (offerResourceId !== undefined && offerResourceId !== owner.state.rid) {
    throw badRequest("An offer's offerResourceId can't be changed.");
  }
  const autoscale = content?.offerAutopilotSettings;
  if (headerFlag(headers, 'x-ms-cosmos-migrate-offer-to-autopilot')) {
    if (autoscale && shownThroughput(owner.state).kind === 'manual') {
      throw badRequest(
        'The content of the offer must not contain autopilotSettings for a migration from manual throughput to autoscale: the store chooses the maximum throughput, which you can change afterwards.',
      );
    }
    return { kind: 'migrate', to: 'autoscale' };
  }
  if (headerFlag(headers, 'x-ms-cosmos-migrate-offer-to-manual-throughput')) return { kind: 'migrate', to: 'manual' };
  if (autoscale) return { kind: 'set', throughput: autoscaleOf(autoscale) };
  const amount = content?.offerThroughput;
  if (amount === undefined || amount === null) {
    throw badRequest("The offer's content has neither offerThroughput nor offerAutopilotSettings.");
  }
  return { kind: 'set', throughput: { kind: 'manual', requestUnitsPerSecond: amount } };
}
