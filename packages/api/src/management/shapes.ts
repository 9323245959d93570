import { isoTime } from '@epitaph/core/clock.ts';
import { currentPolicy, scheduledPolicy } from '@epitaph/core/container/decide.ts';
import type { ContainerState, RecordedPolicy } from '@epitaph/core/container/state.ts';
import { formatLedgerHead } from '@epitaph/core/backup/purge-ledger.ts';
import type { Explanation } from '@epitaph/core/history/explain.ts';
import { isPseudonym } from '@epitaph/core/item/pseudonym.ts';
import type { RecordedHold } from '@epitaph/core/retention/hold-register.ts';
import type { RecordedBackup } from '@epitaph/projections/purge/vault-copies.ts';
import { jsonText, parseJson } from '@epitaph/query';
import { rounded } from '../request-units/charge.ts';
import type { RequestUnitStatus } from '../request-units/request-units.ts';
import type { TtlPreview } from '../store/api/catalog-api.ts';
import type {
  Disappearance,
  ItemAsOf,
  PastContent,
  ReplayDifference,
  ReplaySummary,
  HistoryEntry,
} from '../store/api/history-api.ts';
import type { ProjectionStatus, PurgeStatus, RebuildStatus, TakenBackup } from '../store/api/operations-api.ts';
import type { RecoveredItem, ShownHold } from '../store/api/retention-api.ts';
import type { StoreApi } from '../store/store-api.ts';

/**
 * The shape of an answer. Each time is there twice: as ISO text for people (`expiredAt`) and in milliseconds for programs (`expiredAtMs`).
 * Undefined properties are left out of the JSON.
 */
type Shape = Readonly<Record<string, unknown>>;

const iso = (atMs: number | null): string | null => (atMs === null ? null : isoTime(atMs));

/** `{ at: '2026-…', atMs: 1795…}` under the given name; nothing if there is no such time. */
function times(name: string, atMs: number | undefined): Shape {
  return atMs === undefined ? {} : { [name]: isoTime(atMs), [`${name}Ms`]: atMs };
}

/** An ISO 8601 duration in seconds: `PT0.2S`. */
const duration = (milliseconds: number): string => `PT${milliseconds / 1000}S`;

export function explanationShape(explanation: Explanation, container: ContainerState, item: Shape): Shape {
  const { policy, lastWrite, lagMs, erasure } = explanation;
  return {
    state: explanation.state,
    sentence: explanation.sentence,
    ...item,
    container: containerName(container),
    ...times('at', explanation.atMs),
    life: explanation.life,
    lastWrite: lastWrite && { ...times('at', lastWrite.atMs), ts: lastWrite.ts, ttl: lastWrite.ttl },
    ...times('expiredAt', explanation.expiredAtMs),
    ...times('expiresAt', explanation.expiresAtMs),
    ...times('deletedAt', explanation.deletedAtMs),
    renamedTo: explanation.renamedTo,
    ...times('containerDeletedAt', explanation.containerDeletedAtMs),
    rule: explanation.rule,
    arithmetic: explanation.arithmetic,
    policy: policy && {
      version: policy.version,
      defaultTtl: policy.defaultTtl,
      ...times('since', policy.sinceMs),
      setBy: policy.setBy,
      reason: policy.reason,
    },
    ...times('recordedAt', explanation.recordedAtMs),
    ...times('purgedAt', explanation.purgedAtMs),
    remains: explanation.remains,
    erasure: erasure && {
      requestedBy: erasure.requestedBy,
      reason: erasure.reason,
      ...times('requestedAt', erasure.requestedAtMs),
    },
    ...times('recoverableUntil', explanation.recoverableUntilMs),
    lag: lagMs === undefined ? undefined : duration(lagMs),
    lagMs,
    holds: explanation.holds,
    ...times('contentKeptUntil', explanation.keptUntilMs),
  };
}

export const historyEntryShape = (entry: HistoryEntry): Shape => ({
  occurredAt: isoTime(entry.occurredAtMs),
  ...entry,
});

/** An action on the store as a whole. It belongs to no item, and its only order is that of the log. */
export const actionShape = ({ life: _, revision: __, ...entry }: HistoryEntry): Shape => ({
  occurredAt: isoTime(entry.occurredAtMs),
  ...entry,
});

export function containerName({ rid, name, createdAtMs, deletedAtMs }: ContainerState): Shape {
  return {
    rid,
    name,
    ...times('createdAt', createdAtMs),
    ...(deletedAtMs === null ? {} : times('deletedAt', deletedAtMs)),
  };
}

/** The key's components, or its pseudonym if only that is known. */
function partitionKeyShape(partitionKey: string): unknown {
  return isPseudonym(partitionKey) ? partitionKey : (JSON.parse(partitionKey) as unknown);
}

export function disappearanceShape(row: Disappearance): Shape {
  const { position, id, partitionKey, life, cause, actor, rule, ttl, policyVersion, atMs, recordedAtMs, purgedAtMs } =
    row;
  return {
    id,
    partitionKey: partitionKeyShape(partitionKey),
    life,
    cause,
    ...times('at', atMs),
    ...times('recordedAt', recordedAtMs),
    purgedAt: iso(purgedAtMs),
    purgedAtMs,
    actor,
    rule,
    ttl,
    policyVersion,
    position,
  };
}

type PolicyShape = Shape & Pick<RecordedPolicy, 'version'>;

/** The most past policies in the answer to a change. The list of policies has pages for all of them. */
const PAST_OF_A_CHANGE = 100;

/** The answer to a change of a container's policies. */
export const changedPoliciesShape = (container: ContainerState, nowMs: number): Shape =>
  policiesShape(container, nowMs, PAST_OF_A_CHANGE);

/**
 * A container's policies: the current one, the past ones and the scheduled one. For a deleted container they are shown as of its deletion,
 * because no policy begins after that.
 *
 * @param most the most past policies to show; the latest ones are shown
 */
export function policiesShape(
  container: ContainerState,
  nowMs: number,
  most = Number.POSITIVE_INFINITY,
): Shape & { readonly past: readonly PolicyShape[] } {
  const { timeline, brake, policyGraceSeconds, deletedAtMs } = container;
  const atMs = deletedAtMs === null ? nowMs : deletedAtMs - 1;
  const scheduled = scheduledPolicy(container, atMs);
  const current = currentPolicy(container, atMs);
  const shape = ({ version, defaultTtl, fromMs, setBy, recordedAtMs, reason }: RecordedPolicy): PolicyShape => ({
    version,
    defaultTtl,
    ...times('from', fromMs),
    setBy,
    ...times('recordedAt', recordedAtMs),
    reason,
  });
  return {
    container: containerName(container),
    current: shape(current),
    scheduled: scheduled === undefined ? null : shape(scheduled),
    past: timeline
      .filter(({ fromMs }) => fromMs < current.fromMs)
      .slice(-most)
      .map(shape),
    brake: brake ?? null,
    policyGraceSeconds,
  };
}

export function holdShape({ scope, ...hold }: RecordedHold | ShownHold): Shape {
  const { holdId, reason, tooLateFor, placedBy, placedAtMs, released } = hold;
  return {
    id: holdId,
    state: released === undefined ? 'standing' : 'released',
    scope: scope.kind,
    ...coverageOf(scope),
    reason,
    tooLateFor,
    placedBy,
    ...times('placedAt', placedAtMs),
    released: released && { by: released.by, reason: released.reason, ...times('at', released.atMs) },
  };
}

/** What a hold covers, as keyed hashes that do not reveal whose items they are. */
function coverageOf(scope: (RecordedHold | ShownHold)['scope']): Shape {
  switch (scope.kind) {
    case 'container':
      return {};
    case 'partition-key':
      return { covers: [scope.prefix] };
    case 'items':
      return { covers: scope.items, count: scope.items.length };
    case 'query':
      return 'count' in scope ? { count: scope.count } : { covers: scope.lives, count: scope.lives.length };
  }
}

export function retentionShape(container: ContainerState): Shape {
  const { retention, policyGraceSeconds } = container;
  return {
    container: containerName(container),
    floorSeconds: retention.floorSeconds,
    recoveryWindowSeconds: retention.recoveryWindowSeconds,
    policyGraceSeconds,
  };
}

export function recoveredShape({ expiresAtMs, ...recovered }: RecoveredItem): Shape {
  return { ...recovered, expiresAt: iso(expiresAtMs), expiresAtMs };
}

export function previewShape(preview: TtlPreview, container: ContainerState): Shape {
  const { effectiveFromMs, erasedFromMs, atOnce, later, ...others } = preview;
  return {
    container: containerName(container),
    ...others,
    ...times('effectiveFrom', effectiveFromMs),
    atOnce: {
      ...atOnce,
      oldest: atOnce.oldestTs === null ? null : isoTime(atOnce.oldestTs * 1000),
      ...times('erasedFrom', erasedFromMs),
      sample: atOnce.sample.map(({ partitionKey, ...item }) => ({
        ...item,
        partitionKey: partitionKeyShape(partitionKey),
      })),
    },
    later: later.map(({ withinSeconds, items }) => ({
      withinSeconds,
      until: withinSeconds === null ? null : isoTime(effectiveFromMs + withinSeconds * 1000),
      items,
    })),
  };
}

export const instant = times;

export function differenceShape({ partitionKey, leftAtMs, wouldLeaveAtMs, ...difference }: ReplayDifference): Shape {
  return {
    ...difference,
    partitionKey: partitionKeyShape(partitionKey),
    leftAt: iso(leftAtMs),
    leftAtMs,
    wouldLeaveAt: iso(wouldLeaveAtMs),
    wouldLeaveAtMs,
  };
}

export function replayShape({ nowMs, sample, ...summary }: ReplaySummary): Shape {
  return { ...times('replayedUpTo', nowMs), ...summary, sample: sample.map(differenceShape) };
}

export function itemAsOfShape({ partitionKey, writtenAtMs, ...item }: ItemAsOf): Shape {
  const written = writtenAtMs === undefined ? {} : times('writtenAt', writtenAtMs);
  return { ...item, partitionKey: partitionKeyShape(partitionKey), ...written };
}

/** A document's content as JSON text. It keeps the order of the document's properties, which a JavaScript object would not. */
export function contentText(named: Shape, { json, writtenAtMs, ...facts }: PastContent): string {
  return jsonText({ ...named, ...facts, ...times('writtenAt', writtenAtMs), document: parseJson(json) });
}

export function takenBackupShape({ takenAtMs, vaultLapsesAtMs, ledgerHead, ...rest }: TakenBackup): Shape {
  return {
    ...rest,
    ...instant('takenAt', takenAtMs),
    ...instant('vaultLapsesAt', vaultLapsesAtMs),
    ledgerHead: formatLedgerHead(ledgerHead),
  };
}

export function backupShape({ startedAtMs, vaultLapsesAtMs, ...rest }: RecordedBackup): Shape {
  return { ...rest, ...instant('startedAt', startedAtMs), ...instant('vaultLapsesAt', vaultLapsesAtMs) };
}

export function purgeShape(status: PurgeStatus): Shape {
  const { run, scavenge, oldestOverdueMs, millisecondsToDrain } = status;
  const last = scavenge?.last ?? null;
  return {
    ...status,
    oldestOverdue: oldestOverdueMs === null ? null : duration(oldestOverdueMs),
    timeToDrain: millisecondsToDrain === null ? null : duration(millisecondsToDrain),
    run: run === null ? null : { ...run, startedAt: isoTime(run.startedAtMs) },
    scavenge:
      scavenge === null
        ? null
        : {
            ...scavenge,
            last: last === null ? null : { ...last, startedAt: isoTime(last.startedAtMs) },
            nextAt: scavenge.nextAtMs === null ? null : isoTime(scavenge.nextAtMs),
          },
  };
}

export function requestUnitsShape(status: RequestUnitStatus, container: ContainerState): Shape {
  const units = (amount: number | null): number | null => (amount === null ? null : rounded(amount));
  const consumed = Object.entries(status.consumed).map(
    ([kind, { operations, requestUnits, throttled }]) =>
      [kind, { operations, requestUnits: units(requestUnits), throttled }] as const,
  );
  return {
    container: containerName(container),
    ...status,
    available: units(status.available),
    leftOver: units(status.leftOver),
    consumed: Object.fromEntries(consumed),
  };
}

export function projectionShape(status: ProjectionStatus): Shape {
  return { ...status, rebuild: status.rebuild === null ? null : rebuildShape(status.rebuild) };
}

export function rebuildShape(status: RebuildStatus): Shape {
  return { ...status, startedAt: status.startedAtMs === null ? null : isoTime(status.startedAtMs) };
}

export function clockShape(store: StoreApi): Shape {
  const nowMs = store.nowMs();
  const held = store.clockHeld();
  const standsStillMs = store.clockStandsStillMs();
  return {
    now: isoTime(nowMs),
    nowMs,
    kind: store.clockKind,
    held,
    ...(standsStillMs === 0 ? {} : { standsStillFor: duration(standsStillMs), standsStillForMs: standsStillMs }),
  };
}
