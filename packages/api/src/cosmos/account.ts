import { charge } from '../request-units/charge.ts';
import { showConsistency } from './consistency.ts';
import { methodNotAllowed, type Answer, type CosmosRequest } from './request.ts';

/** Any id but "localhost": with that one the JavaScript client reads the account twice for every single operation. */
const ACCOUNT_ID = 'epitaph';
const REGION = 'Local';

/** Means without a limit, up to the longest text of a query, as in Cosmos DB. */
const ANY_NUMBER = 2_147_483_647;

/** Bounds for queries. The .NET client on Windows plans queries itself, and refuses those beyond these bounds. */
const QUERY_ENGINE = JSON.stringify({
  maxSqlQueryInputLength: 262_144,
  maxJoinsPerSqlQuery: 10,
  maxLogicalAndPerSqlQuery: ANY_NUMBER,
  maxLogicalOrPerSqlQuery: ANY_NUMBER,
  maxUdfRefPerSqlQuery: 10,
  maxInExpressionItemsCount: ANY_NUMBER,
  queryMaxInMemorySortDocumentCount: 500,
  maxQueryRequestTimeoutFraction: 0.9,
  sqlAllowNonFiniteNumbers: false,
  sqlAllowAggregateFunctions: true,
  sqlAllowSubQuery: true,
  sqlAllowScalarSubQuery: true,
  allowNewKeywords: true,
  sqlAllowLike: true,
  sqlAllowGroupByClause: true,
  maxSpatialQueryCells: 12,
  spatialMaxGeometryPointCount: 256,
  sqlDisableQueryILOptimization: false,
  sqlDisableFilterPlanOptimization: false,
  sqlAllowTop: true,
  enableSpatialIndexing: true,
  queryEnableFullText: true,
});

/**
 * The Java clients parse the account's numbers about media, and fail for an account without them. There is no media
 * here.
 */
const MEDIA_HEADERS = { 'x-ms-max-media-storage-usage-mb': '2048', 'x-ms-media-storage-usage-mb': '0' };

/**
 * `GET /`: the first thing that every client reads. Clients go on at the endpoint that it names, so it is the one that
 * they have used.
 */
export function answerAccount({ method, endpoint, consistencyPolicy }: CosmosRequest): Answer {
  if (method !== 'GET') throw methodNotAllowed();
  const locations = [{ name: REGION, databaseAccountEndpoint: endpoint() }];
  const body = {
    _self: '',
    id: ACCOUNT_ID,
    _rid: `${ACCOUNT_ID}.local`,
    media: '//media/',
    addresses: '//addresses/',
    _dbs: '//dbs/',
    writableLocations: locations,
    readableLocations: locations,
    enableMultipleWriteLocations: false,
    enablePerPartitionFailoverBehavior: false,
    userReplicationPolicy: { asyncReplication: false, minReplicaSetSize: 1, maxReplicasetSize: 4 },
    userConsistencyPolicy: showConsistency(consistencyPolicy),
    systemReplicationPolicy: { minReplicaSetSize: 1, maxReplicasetSize: 4 },
    readPolicy: { primaryReadCoefficient: 1, secondaryReadCoefficient: 1 },
    queryEngineConfiguration: QUERY_ENGINE,
  };
  return { status: 200, body: JSON.stringify(body), charge: charge.metadata, headers: MEDIA_HEADERS };
}
