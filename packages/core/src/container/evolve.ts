import { creationLost } from '../creation-lost.ts';
import { invariant, unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { isRetentionEvent } from '../retention/events.ts';
import { evolveRetention } from '../retention/evolve.ts';
import { initialRetention } from '../retention/state.ts';
import { evolveProvisioning, initialProvisioning } from '../throughput/provisioning.ts';
import { withPolicy } from '../ttl/policy-timeline.ts';
import type { ContainerEvent } from './events.ts';
import type { ContainerState, RecordedPolicy } from './state.ts';
import { parseContainerStream } from './stream-name.ts';
import { readContainerEvent } from './upcast.ts';

type TtlChange = Extract<ContainerEvent, { readonly type: 'ContainerTtlChanged' }>['data'];

/** The container's state after one more recorded event. */
export function evolveContainer(state: ContainerState | undefined, recorded: RecordedEvent): ContainerState {
  const event = readContainerEvent(recorded);
  const stamp = { etag: etagOf(recorded.id), changedAtMs: recorded.occurredAtMs };
  if (event.type === 'ContainerCreated') {
    const rid = parseContainerStream(recorded.stream);
    invariant(state === undefined && rid !== undefined, 'a container is created once, in its own stream');
    return {
      status: 'live',
      rid,
      databaseRid: event.data.databaseRid,
      name: event.data.name,
      definition: event.data.definition,
      timeline: [
        {
          fromMs: recorded.occurredAtMs,
          defaultTtl: event.data.defaultTtl,
          version: 1,
          setBy: recorded.actor,
          recordedAtMs: recorded.occurredAtMs,
        },
      ],
      policyGraceSeconds: event.data.policyGraceSeconds,
      partitionKeyDeletes: [],
      retention: initialRetention,
      ...initialProvisioning(recorded),
      createdAtMs: recorded.occurredAtMs,
      deletedAtMs: null,
      ...stamp,
    };
  }
  if (state === undefined) throw creationLost(recorded, 'a container');
  if (isRetentionEvent(event)) return { ...state, retention: evolveRetention(state.retention, event, recorded) };
  switch (event.type) {
    case 'ContainerReplaced':
      return { ...state, ...stamp, definition: event.data.definition };
    case 'ContainerTtlChanged': {
      if (event.data.afterLoss === true) {
        const { lacksEvents: _, ...known } = state;
        return { ...known, ...stamp, timeline: [policyOf(event.data, recorded)] };
      }
      return { ...state, ...stamp, timeline: withPolicy(state.timeline, policyOf(event.data, recorded)) };
    }
    case 'ContainerTtlWithdrawn': {
      const { policyVersion } = event.data;
      const timeline = state.timeline.filter(({ version }) => version !== policyVersion);
      return { ...state, ...stamp, timeline, withdrawnVersion: policyVersion };
    }
    case 'TtlBrakeChanged': {
      const { brake: _, ...others } = state;
      return event.data.to === null ? others : { ...others, brake: event.data.to };
    }
    case 'PolicyGraceChanged':
      return { ...state, policyGraceSeconds: event.data.toSeconds };
    case 'ThroughputChanged':
      return { ...state, ...evolveProvisioning(state, event, recorded) };
    case 'PartitionKeyDeleted': {
      const { occurredAtMs: atMs, position, actor: by } = recorded;
      const added = { partitionKey: event.data.partitionKey, atMs, position, by };
      return { ...state, partitionKeyDeletes: [...state.partitionKeyDeletes, added] };
    }
    case 'PartitionKeyDeleteCompleted': {
      const { position } = event.data;
      return {
        ...state,
        partitionKeyDeletes: state.partitionKeyDeletes.filter((pending) => pending.position !== position),
      };
    }
    case 'ContainerDeleted':
      return { ...state, status: 'deleted', deletedAtMs: recorded.occurredAtMs, deletedBy: recorded.actor };
    default:
      return unreachable(event);
  }
}

/** The policy that a TTL change has recorded. */
export function policyOf(
  { to, policyVersion, effectiveFromMs, reason, scheduled }: TtlChange,
  { actor, occurredAtMs }: RecordedEvent,
): RecordedPolicy {
  return {
    fromMs: effectiveFromMs,
    defaultTtl: to,
    version: policyVersion,
    setBy: actor,
    recordedAtMs: occurredAtMs,
    ...(reason === undefined ? {} : { reason }),
    ...(scheduled === undefined ? {} : { scheduled }),
  };
}

/** Folds a container's whole stream. */
export function foldContainer(events: readonly RecordedEvent[]): ContainerState | undefined {
  let state: ContainerState | undefined;
  for (const event of events) state = evolveContainer(state, event);
  return state;
}
