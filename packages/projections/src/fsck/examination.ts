import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState, PartitionKeyDelete } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { type DocumentPath, parseDocumentPath } from '@epitaph/core/document-path.ts';
import { invariant } from '@epitaph/core/invariant.ts';
import { isItemWrite, type ItemWritten } from '@epitaph/core/item/events.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import type { ItemTimes } from '@epitaph/core/ttl/watermarks.ts';
import type { PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';
import type { Pace } from '@epitaph/core/turn.ts';
import { whyUnreadable } from '@epitaph/core/upcast.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { ContainerNumber, ReadModelStore } from '../read-model-store.ts';

/** How many bodies are in memory at a time. */
export const BODIES_AT_ONCE = 16;

export interface FsckProblem {
  readonly code:
    | 'missing-without-reason'
    | 'shown-after-its-end'
    | 'row-differs'
    | 'row-without-item'
    | 'end-differs'
    | 'clear-copies-differ'
    | 'clear-copies-left'
    | 'entry-differs'
    | 'entry-without-reason'
    | 'retention-differs'
    | 'key-missing'
    | 'key-not-destroyed'
    | 'body-unreadable'
    | 'writes-left-after-purge'
    | 'wrong-deadline'
    | 'gap-in-lives'
    | 'writes-missing'
    | 'unique-key-not-held'
    | 'event-after-end'
    | 'unreadable-event'
    | 'ledger-damaged';
  readonly subject: string;
  readonly message: string;
}

export interface FsckOptions {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly naming: Pick<ItemNaming, 'itemStreamPrefix'>;
  readonly store: ReadModelStore;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Resolves when the purge has truncated everything that it has recorded as purged. */
  readonly settled?: () => Promise<void>;
}

export type Report = (code: FsckProblem['code'], subject: string, message: string) => void;

/** A container according to its stream, up to the position that the log is read to. */
export interface Container {
  /** Undefined if none of its events could be read. */
  readonly state: ContainerState | undefined;
  /** The state after each event that came later. */
  readonly later: readonly ContainerState[];
  /** False if one of its events could not be read. */
  readonly isWhole: boolean;
  readonly clearPaths: readonly DocumentPath[];
  /** By partition key. With those that only the read models know. */
  readonly partitionKeyDeletes: ReadonlyMap<string, readonly { readonly position: number; readonly atMs: number }[]>;
  /** Deletes by partition key that are not recorded in every life yet, and whose event the log has lost. */
  readonly lostDeletes: readonly PartitionKeyDelete[];
}

/** What all parts of an examination use. */
export interface Examination extends FsckOptions {
  /** The position up to which the log is examined. */
  readonly upTo: number;
  readonly pace: Pace;
  readonly report: Report;
  readonly containerOf: (rid: string) => Promise<Container>;
  /** The containers' numbers in the read model, by rid. */
  readonly numbers: ReadonlyMap<string, ContainerNumber>;
  /** Containers that have lost the secret which named their items, with the position up to which the names are lost. */
  readonly namesLost: ReadonlyMap<string, number>;
  /**
   * For containers with lost events: the time of the last delete by partition key that lives have recorded as their
   * end, by the container's rid and the partition key.
   */
  readonly deletesByLives: Map<string, Map<string, number>>;
  /** Births of rows that are reported as shown after their end. */
  readonly shownAfterEnd: Set<number>;
  /** Called with the number of rows of the read models that were checked against the log. */
  readonly onRowsChecked: (rows: number) => void;
}

/** The problem of a stream whose last event is missing, or was not written by the store. */
export const END_LOST = 'the log does not have its last event any more, or another program has written to it';

/**
 * Reads a container's stream. An event that can't be read is reported and left out.
 *
 * @param pending the deletes by partition key that, according to the read models, are not recorded in every life yet
 */
export async function readContainer(
  log: EventLog,
  rid: string,
  upTo: number,
  report: Report,
  pending: readonly PartitionKeyDelete[] = [],
): Promise<Container> {
  const stream = containerStream(rid);
  const partitionKeyDeletes = new Map<string, { readonly position: number; readonly atMs: number }[]>();
  const addDelete = (partitionKey: string, left: { readonly position: number; readonly atMs: number }) => {
    const known = partitionKeyDeletes.get(partitionKey);
    if (known === undefined) partitionKeyDeletes.set(partitionKey, [left]);
    else known.push(left);
  };
  let state: ContainerState | undefined;
  let isWhole = true;
  const later: ContainerState[] = [];
  const events = await log.readStream(stream);
  if (events.length === 0 && (await log.hasLostEnd?.(stream)) === true) {
    isWhole = false;
    report('unreadable-event', stream, END_LOST);
  }
  for (const event of events) {
    const isLater = event.position > upTo;
    try {
      const next = evolveContainer(later.at(-1) ?? state, event);
      if (isLater) later.push(next);
      else state = next;
    } catch (error) {
      // Later events are for the next examination.
      if (isLater) break;
      isWhole = false;
      report('unreadable-event', stream, (error as Error).message);
      continue;
    }
    if (!isLater && event.type === 'PartitionKeyDeleted') {
      const { position, occurredAtMs: atMs } = event;
      addDelete(event.data['partitionKey'] as string, { position, atMs });
    }
  }
  const lostDeletes: PartitionKeyDelete[] = [];
  // If the log has all events of a container, it is right, and the read models are compared with it.
  for (const { partitionKey, position, atMs, by } of isWhole ? [] : pending) {
    const isKnown = partitionKeyDeletes.get(partitionKey)?.some((left) => left.position === position) === true;
    if (isKnown || position > upTo) continue;
    addDelete(partitionKey, { position, atMs });
    if (!(await isThere(log, position))) lostDeletes.push({ partitionKey, position, atMs, by });
  }
  const paths = state?.definition.epitaph?.clearPaths ?? [];
  const clearPaths = paths.map((path) => parseDocumentPath(path) ?? []);
  return { state, later, isWhole, clearPaths, partitionKeyDeletes, lostDeletes };
}

async function isThere(log: EventLog, position: number): Promise<boolean> {
  const event = await log.readAt(position);
  return event !== undefined && whyUnreadable(event) === undefined;
}

/** True for a life that left with its partition key, because it was still visible when that was deleted. */
export function leftWithPartitionKey(
  life: ItemTimes & { readonly partitionKey: string; readonly lastPosition: number },
  timeline: PolicyTimeline,
  deletes: Container['partitionKeyDeletes'],
): boolean {
  const expiredAtMs = expiryOf(life, timeline)?.expiredAtMs ?? Number.POSITIVE_INFINITY;
  return (
    deletes.get(life.partitionKey)?.some(({ position, atMs }) => position > life.lastPosition && expiredAtMs > atMs) ===
    true
  );
}

export function readItemWrite(recorded: RecordedEvent): ItemWritten {
  const event = readItemEvent(recorded);
  invariant(isItemWrite(event), 'asked for writes alone');
  return event.data;
}
