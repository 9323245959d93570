import { creationLost } from '../creation-lost.ts';
import { invariant, unreachable } from '../invariant.ts';
import { etagOf } from '../item/events.ts';
import type { RecordedEvent } from '../log/recorded-event.ts';
import { evolveProvisioning, initialProvisioning } from '../throughput/provisioning.ts';
import type { DatabaseState } from './state.ts';
import { parseDatabaseStream } from './stream-name.ts';
import { readDatabaseEvent } from './upcast.ts';

/** The database's state after one more recorded event. */
export function evolveDatabase(state: DatabaseState | undefined, recorded: RecordedEvent): DatabaseState {
  const event = readDatabaseEvent(recorded);
  if (state === undefined && event.type !== 'DatabaseCreated') throw creationLost(recorded, 'a database');
  switch (event.type) {
    case 'DatabaseCreated': {
      const rid = parseDatabaseStream(recorded.stream);
      invariant(state === undefined && rid !== undefined, 'a database is created once, in its own stream');
      return {
        status: 'live',
        rid,
        name: event.data.name,
        etag: etagOf(recorded.id),
        ...initialProvisioning(recorded),
        createdAtMs: recorded.occurredAtMs,
        deletedAtMs: null,
      };
    }
    case 'ThroughputChanged':
      return { ...state!, ...evolveProvisioning(state!, event, recorded) };
    case 'DatabaseDeleted':
      return { ...state!, status: 'deleted', deletedAtMs: recorded.occurredAtMs, deletedBy: recorded.actor };
    default:
      return unreachable(event);
  }
}

/** Folds a database's whole stream. */
export function foldDatabase(events: readonly RecordedEvent[]): DatabaseState | undefined {
  let state: DatabaseState | undefined;
  for (const event of events) state = evolveDatabase(state, event);
  return state;
}
