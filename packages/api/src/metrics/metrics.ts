import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { Scavenge } from '@epitaph/core/log/event-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { rounded } from '../request-units/charge.ts';
import { requestUnitKinds } from '../request-units/request-units.ts';
import type { ContainerBacklog, ProjectionStatus, PurgeStatus } from '../store/api/operations-api.ts';
import type { StoreApi } from '../store/store-api.ts';
import { version } from '../version.ts';
import { operationKinds } from './measurements.ts';
import { writeProcessMetrics } from './process-metrics.ts';
import { type Labels, MetricsText } from './text-format.ts';

/** The most containers that have labels of their own in a metric. The rest are summed up, so that the size of a scrape is bounded. */
const LABELLED_CONTAINERS = 50;
const OTHER: Labels = { database: '', container: '(other)', rid: '' };
const PURGE_STATES: readonly PurgeStatus['state'][] = [
  'running',
  'idle',
  'paused',
  'held-by-clock',
  'waiting-for-request-units',
];
const SCAVENGE_STATES: readonly Scavenge['state'][] = ['running', 'done', 'failed', 'unknown'];

/**
 * All metrics of a store in Prometheus' text format. Labels are names of databases and containers, never an item, a key or anything from a
 * document.
 *
 * @param onUnavailable called with the first fault because of which a metric is left out
 */
export async function metricsText(
  store: StoreApi,
  onUnavailable: (error: StorageUnavailable) => void = () => {},
): Promise<string> {
  let isTold = false;
  const unlessUnavailable = async <Result>(read: () => Promise<Result>): Promise<Result | undefined> => {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof StorageUnavailable)) throw error;
      if (!isTold) onUnavailable(error);
      isTold = true;
      return undefined;
    }
  };
  const text = new MetricsText();
  text.gauge('epitaph_build_info', 'Always 1; the version is in the label.', [
    { labels: { version, node: process.versions.node }, value: 1 },
  ]);
  text.gauge('epitaph_ready', '1 while the store says that it is ready.', store.health().ready ? 1 : 0);
  const standsStillMs = await unlessUnavailable(async () => store.clockStandsStillMs());
  // Metrics that can't be counted now are left out. The others are what a person on call needs to find the cause.
  const counted = unlessUnavailable(() => store.purgeBacklogs());
  // These run at the same time: each may wait for a server that does not answer, and a scraper gives up after ten seconds by default.
  const [projections, backlogs, status] = await Promise.all([
    unlessUnavailable(() => store.projections()),
    counted,
    counted.then((known) => known && unlessUnavailable(() => store.purgeStatus(known))),
  ]);
  const isAvailable = projections !== undefined && status !== undefined;
  text.gauge(
    'epitaph_storage_available',
    '0 if the disk or a server of the store could not be read for this scrape. Some metrics are missing then.',
    isAvailable ? 1 : 0,
  );
  if (standsStillMs !== undefined) {
    text.gauge(
      'epitaph_clock_stands_still_seconds',
      'Seconds until the system clock reaches the latest time that the store has used. Until then nothing expires.',
      standsStillMs / 1000,
    );
  }
  if (projections !== undefined) writeProjections(text, projections);
  text.counter('epitaph_projected_events_total', 'Events that were projected.', store.measurements.projectedEvents);
  text.counter(
    'epitaph_purge_faults_total',
    'Faults of the purge. What was due stays hidden and not erased, and is tried again.',
    store.measurements.purgeFaults,
  );
  if (status !== undefined) writePurge(text, status);
  if (backlogs !== undefined) writeBacklogs(text, store, backlogs);
  writeRequestUnits(text, store);
  writeDurations(text, store);
  text.counter(
    'epitaph_requests_total',
    'Requests that were answered, including reads of change feeds.',
    store.measurements.requests().map(({ count, ...labels }) => ({ labels, value: count })),
  );
  const { documentHits: hits, documentMisses: misses } = store.measurements;
  text.counter('epitaph_document_cache_hits_total', 'Documents that were found decrypted in memory.', hits);
  text.counter('epitaph_document_cache_misses_total', 'Documents that had to be read and decrypted.', misses);
  writeProcessMetrics(text);
  return text.toString();
}

function writeProjections(text: MetricsText, projections: readonly ProjectionStatus[]): void {
  const of = (value: (projection: ProjectionStatus) => number) =>
    projections.map((projection) => ({ labels: { projection: projection.name }, value: value(projection) }));
  text.gauge('epitaph_head_position', 'Position of the last event in the log.', projections[0]?.headPosition ?? 0);
  text.gauge(
    'epitaph_projection_position',
    'Position in the log up to which readers see everything.',
    of(({ position }) => position),
  );
  text.gauge(
    'epitaph_projection_lag_events',
    'Events by which a projection is behind the log.',
    of(({ lagEvents }) => lagEvents),
  );
  text.gauge(
    'epitaph_projection_failed',
    '1 if a projection has failed, so that it is not updated.',
    of(({ state }) => (state === 'failed' ? 1 : 0)),
  );
  text.gauge(
    'epitaph_rebuild_running',
    '1 while a projection is rebuilt.',
    of(({ rebuild }) => (rebuild?.state === 'running' || rebuild?.state === 'comparing' ? 1 : 0)),
  );
}

function writePurge(text: MetricsText, status: PurgeStatus): void {
  text.gauge(
    'epitaph_purge_state',
    '1 for the state that the purge is in.',
    PURGE_STATES.map((state) => ({ labels: { state }, value: status.state === state ? 1 : 0 })),
  );
  text.gauge(
    'epitaph_purge_by_this_node',
    '1 if this node purges. Nodes that share a store may leave that to others.',
    status.byThisNode ? 1 : 0,
  );
  text.gauge(
    'epitaph_purge_rate_items_per_second',
    'Expiries recorded and lives erased, over the last minute.',
    status.itemsPerSecond,
  );
  text.gauge(
    'epitaph_purge_time_to_drain_seconds',
    'Estimated time until nothing due is left; infinite if there is work but no rate yet. Only on nodes that purge.',
    status.byThisNode
      ? [{ labels: {}, value: (status.millisecondsToDrain ?? Number.POSITIVE_INFINITY) / 1000 }]
      : // A node that does not purge has no rate, and there is always some work of the last second. So it would report infinity.
        [],
  );
  text.counter(
    'epitaph_purged_lives_total',
    'Lives whose content was erased since the store was created.',
    status.purgedTotal,
  );
  text.gauge(
    'epitaph_scavenge_waiting_lives',
    'Purged lives whose sealed bytes an event store keeps until it is scavenged.',
    status.scavenge?.livesWaiting ?? 0,
  );
  const last = status.scavenge?.last;
  text.gauge(
    'epitaph_scavenge_state',
    '1 for the state of the last scavenge of the event store; all 0 if there was none.',
    SCAVENGE_STATES.map((state) => ({ labels: { state }, value: last?.state === state ? 1 : 0 })),
  );
  text.gauge(
    'epitaph_scavenge_last_start_timestamp_seconds',
    'When the last scavenge of the event store began, in Unix seconds; 0 if there was none.',
    (last?.startedAtMs ?? 0) / 1000,
  );
}

function writeBacklogs(text: MetricsText, store: StoreApi, backlogs: readonly ContainerBacklog[]): void {
  const { labelled, rest } = mostImportant(backlogs, (backlog) => 1 + backlog.overdueItems + backlog.awaitingErasure);
  const gauge = (
    name: string,
    help: string,
    value: (backlog: ContainerBacklog) => number,
    together: (values: readonly number[]) => number = sum,
  ): void => {
    text.gauge(name, help, [
      ...labelled.map((backlog) => ({ labels: labelsOf(store, backlog.container), value: value(backlog) })),
      ...(rest.length === 0 ? [] : [{ labels: OTHER, value: together(rest.map(value)) }]),
    ]);
  };
  gauge(
    'epitaph_purge_overdue_items',
    'Items that are past their deadline (invisible), and whose expiry is not recorded yet.',
    ({ overdueItems }) => overdueItems,
  );
  gauge(
    'epitaph_purge_oldest_overdue_seconds',
    'Age of the oldest deadline among overdue items; 0 if there are none.',
    ({ oldestOverdueMs }) => (oldestOverdueMs ?? 0) / 1000,
    (values) => Math.max(...values),
  );
  gauge(
    'epitaph_purge_awaiting_erasure_lives',
    'Lives that have ended and whose content is to be erased now.',
    ({ awaitingErasure }) => awaitingErasure,
  );
  gauge(
    'epitaph_purge_waiting_for_request_units_items',
    'Overdue items that wait until users leave request units over.',
    ({ waitingForRequestUnits }) => waitingForRequestUnits,
  );
  const reasons = ['hold', 'floor', 'grace', 'feed'] as const;
  text.gauge('epitaph_purge_held_back_lives', 'Lives that have ended and whose content is kept, by what keeps it.', [
    ...labelled.flatMap(({ container, heldBack }) =>
      reasons.map((reason) => ({ labels: { ...labelsOf(store, container), reason }, value: heldBack[reason] })),
    ),
    ...(rest.length === 0
      ? []
      : reasons.map((reason) => ({
          labels: { ...OTHER, reason },
          value: sum(rest.map(({ heldBack }) => heldBack[reason])),
        }))),
  ]);
}

function writeRequestUnits(text: MetricsText, store: StoreApi): void {
  const metered = store.requestUnits.metered().flatMap(({ rid, consumed }) => {
    const container = store.containerByRid(rid);
    return container === undefined ? [] : [{ container, consumed }];
  });
  const { labelled, rest } = mostImportant(metered, ({ consumed }) =>
    sum(Object.values(consumed).map(({ requestUnits }) => requestUnits)),
  );
  const samples = (value: (consumption: { requestUnits: number; throttled: number }) => number) => [
    ...labelled.flatMap(({ container, consumed }) =>
      requestUnitKinds.map((kind) => ({
        labels: { ...labelsOf(store, container), kind },
        value: value(consumed[kind]),
      })),
    ),
    ...(rest.length === 0
      ? []
      : requestUnitKinds.map((kind) => ({
          labels: { ...OTHER, kind },
          value: sum(rest.map(({ consumed }) => value(consumed[kind]))),
        }))),
  ];
  text.counter(
    'epitaph_request_units_total',
    'Request units that were spent.',
    samples(({ requestUnits }) => rounded(requestUnits)),
  );
  text.counter(
    'epitaph_throttled_operations_total',
    'Operations that were refused with 429.',
    samples(({ throttled }) => throttled),
  );
}

function writeDurations(text: MetricsText, { measurements }: StoreApi): void {
  text.histogram(
    'epitaph_operation_duration_seconds',
    "Duration of clients' operations on items, within the store.",
    operationKinds.map((operation) => ({ labels: { operation }, of: measurements.operations[operation] })),
  );
  text.histogram('epitaph_append_duration_seconds', 'Duration of an append to the log, until it is durable.', [
    { labels: {}, of: measurements.appends },
  ]);
  text.counter(
    'epitaph_append_conflicts_total',
    'Appends that met a concurrent write and were decided again.',
    measurements.appendConflicts,
  );
  text.counter('epitaph_append_faults_total', 'Appends that failed.', measurements.appendFaults);
  text.histogram('epitaph_projection_apply_duration_seconds', 'Duration of projecting a batch of events.', [
    { labels: {}, of: measurements.applies },
  ]);
  text.histogram(
    'epitaph_purge_step_duration_seconds',
    'Duration of a batch of the purge: recording expiries, or erasing.',
    (['record', 'erase'] as const).map((step) => ({ labels: { step }, of: measurements.purgeSteps[step] })),
  );
}

/** Splits items into those of the highest rank, in their original order, and the rest. */
function mostImportant<Item>(
  items: readonly Item[],
  rank: (item: Item) => number,
): { readonly labelled: readonly Item[]; readonly rest: readonly Item[] } {
  if (items.length <= LABELLED_CONTAINERS) return { labelled: items, rest: [] };
  const sorted = items.toSorted((left, right) => rank(right) - rank(left));
  return { labelled: sorted.slice(0, LABELLED_CONTAINERS), rest: sorted.slice(LABELLED_CONTAINERS) };
}

function labelsOf(store: StoreApi, { databaseRid, name, rid }: ContainerState): Labels {
  return { database: store.databaseByRid(databaseRid)?.name ?? '', container: name, rid };
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
