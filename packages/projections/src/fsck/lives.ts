import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { isItemWrite, type ItemEvent } from '@epitaph/core/item/events.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import { readLife } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { foldUniqueKey } from '@epitaph/core/unique-key/evolve.ts';
import type { ContainerNumber, DisappearanceRow } from '../read-model-store.ts';
import { type Container, type Examination, leftWithPartitionKey, type Report } from './examination.ts';

/** A life according to its events, up to the position that the log is read to. */
interface Life {
  lastType: string;
  lastPosition: number;
  /** Position of the last event, which may be a write that changed nothing. */
  endPosition: number;
  birth: number;
  /** Revision of the first event that is still in the log. */
  firstRevision: number;
  ts: number;
  ttl: number | null;
  key: number;
  id: string;
  partitionKey: string;
  writesLeft: boolean;
  purged: boolean;
  expiredAtMs: number | null;
  /** When the life left with its partition key, if its own stream says so. */
  leftWithKeyAtMs: number | null;
  uniqueKeys: readonly string[];
  /** The end in its own stream, or the end that follows from its purge. Undefined if it has none, or left with its container. */
  end: End | undefined;
  purgedAtMs: number | null;
  /** For a purged life: number of its writes according to its ledger. These were its first events. */
  writes: number;
}

/** An end, with the columns that the read model has of it. */
interface End extends Pick<
  DisappearanceRow,
  'cause' | 'atMs' | 'position' | 'actor' | 'rule' | 'ttl' | 'policyVersion'
> {
  readonly byPolicyStart: boolean;
}

const BY_NO_POLICY = { rule: null, ttl: null, policyVersion: null, byPolicyStart: false } as const;

/** Checks that the sealed body of a write can be opened, if its key is there. */
export async function checkWrite(recorded: RecordedEvent, { vault, sealer, report }: Examination): Promise<void> {
  const event = readItemEvent(recorded);
  if (event.type !== 'ItemUpserted' && event.type !== 'ItemRecovered') return;
  const { stream, revision, body } = recorded;
  const found = await vault.findKey(event.data.key, stream);
  if (found.status !== 'there') return;
  try {
    sealer.open(found.key, stream, revision, body ?? new Uint8Array());
  } catch (error) {
    report('body-unreadable', stream, (error as Error).message);
  }
}

/**
 * Examines a life, given its last event. A purge truncates after its record, so whether writes are left is checked
 * again later.
 */
export async function examineLife(
  last: RecordedEvent,
  examination: Examination,
): Promise<{ readonly hasWritesAfterPurge: boolean }> {
  const { log, upTo, report } = examination;
  const { stream } = last;
  const container = await examination.containerOf(parseItemStream(stream)!.containerRid);
  const begin = () => new GrowingLife(stream, container, log.spansStreams);
  const take = (growing: GrowingLife, events: readonly RecordedEvent[]) =>
    events.forEach((event) => growing.add(event));
  const growing = last.revision === 0 ? begin() : await readLife(log, stream, begin, take);
  if (last.revision === 0) growing?.add(last);
  const life = growing?.life;
  if (growing === undefined || life === undefined) return { hasWritesAfterPurge: false };
  const { found } = growing;
  if (!container.isWhole) noteDelete(stream, life, examination);
  const told: Report = (...problem) => void found.push(problem);
  // If the life can't be read completely, nothing else is known for certain.
  if (growing.isWhole) await checkLife(stream, life, container, { ...examination, report: told });
  // If the life has changed since the log was read, it is left to the next examination.
  if (found.length > 0 && !(await hasGoneOn(log, stream, life, upTo))) for (const problem of found) report(...problem);
  return { hasWritesAfterPurge: life.purged && life.writesLeft };
}

/** Notes that a partition key was deleted. If the log has lost that delete, its items may be shown again. */
function noteDelete(
  stream: string,
  { partitionKey, leftWithKeyAtMs }: Life,
  { deletesByLives }: Pick<Examination, 'deletesByLives'>,
): void {
  if (leftWithKeyAtMs === null) return;
  const { containerRid } = parseItemStream(stream)!;
  const deletes = deletesByLives.get(containerRid) ?? new Map<string, number>();
  deletesByLives.set(containerRid, deletes);
  deletes.set(partitionKey, Math.max(leftWithKeyAtMs, deletes.get(partitionKey) ?? 0));
}

async function checkLife(
  stream: string,
  life: Life,
  { state, isWhole, partitionKeyDeletes }: Container,
  { log, vault, store, report, numbers, shownAfterEnd }: Examination,
): Promise<void> {
  const { prefix, containerRid, life: number } = parseItemStream(stream)!;
  if (number > 0 && (await log.readLast(itemStream(prefix, number - 1))) === undefined) {
    report('gap-in-lives', stream, `life ${number} exists, but life ${number - 1} does not`);
  }
  if (state === undefined) {
    // Events of the container that can't be read are reported for the container.
    if (isWhole) report('row-without-item', stream, 'the container of this item was never created');
    return;
  }
  const { timeline, definition } = state;
  if (isItemWrite({ type: life.lastType })) {
    for (const name of life.uniqueKeys) {
      const last = await log.readLast(name);
      try {
        const { holder } = foldUniqueKey(last === undefined ? [] : [last]);
        // A life whose last event is a write holds its values, even after its deadline: a write that takes one of them
        // records the life's end in the same append.
        if (holder !== stream) {
          report('unique-key-not-held', stream, `live, but ${name} is held by ${holder ?? 'nobody'}`);
        }
      } catch (error) {
        report('unreadable-event', name, (error as Error).message);
      }
    }
    if (life.uniqueKeys.length !== (definition.uniqueKeyPolicy?.uniqueKeys?.length ?? 0)) {
      report(
        'unique-key-not-held',
        stream,
        `live, but its last write names ${life.uniqueKeys.length} values of unique keys`,
      );
    }
  }
  if (life.expiredAtMs !== null) {
    const oracle = expiryOf(life, timeline);
    if (oracle?.expiredAtMs !== life.expiredAtMs) {
      report(
        'wrong-deadline',
        stream,
        `recorded as expired at ${life.expiredAtMs}, but its times and policies say ${oracle?.expiredAtMs ?? 'never'}`,
      );
    }
  }
  if (!life.purged && life.firstRevision > 0) {
    report('writes-missing', stream, `not purged, but the log has nothing of it before revision ${life.firstRevision}`);
    // The last write says which key the life has, and what the read model must show.
    if (!life.writesLeft) return;
  }
  if (life.purged && life.firstRevision > life.writes) {
    report(
      'writes-missing',
      stream,
      `purged, but the log has nothing of it between its ${life.writes} writes and revision ${life.firstRevision}`,
    );
  }
  const key = (await vault.findKey(life.key, stream)).status;
  if (life.purged) {
    if (key !== 'destroyed') report('key-not-destroyed', stream, `purged, but its key is ${key}`);
  } else if (key === 'unknown') report('key-missing', stream, 'its key is unknown to the vault');
  else if (key === 'destroyed' && isItemWrite({ type: life.lastType }) && !(await isBeingErased(log, stream, state))) {
    report('key-missing', stream, 'its key was destroyed, but nothing records why');
  }
  const container = numbers.get(containerRid);
  const row = container === undefined ? undefined : await store.findItem(container, life.partitionKey, life.id);
  if (isItemWrite({ type: life.lastType }) && !leftWithPartitionKey(life, timeline, partitionKeyDeletes)) {
    if (row === undefined || row.life < number) {
      report('missing-without-reason', stream, 'live by the log, but not in the read model');
    } else if (
      row.position !== life.lastPosition ||
      row.ts !== life.ts ||
      row.ttl !== life.ttl ||
      row.key !== life.key ||
      row.birth !== life.birth
    ) {
      report('row-differs', stream, `the read model has it at ${row.position}, the log at ${life.lastPosition}`);
    }
  } else if (row !== undefined && row.life === number && row.position <= life.lastPosition) {
    // A row with a later position belongs to another stream: the container's secret was lost in a restore in between.
    const end = isItemWrite({ type: life.lastType }) ? 'the delete of its partition key' : life.lastType;
    report('shown-after-its-end', stream, `ended by ${end}, but still in the read model`);
    shownAfterEnd.add(row.birth);
  }
  if (container !== undefined && life.end !== undefined) {
    await checkEnd(stream, { ...life, number, end: life.end }, container, { store, report });
  }
}

/** Checks that a life which has left is listed as such, and, if it is not erased yet, also as to be erased. */
async function checkEnd(
  stream: string,
  { end, id, partitionKey, purgedAtMs, number }: Life & { readonly number: number; readonly end: End },
  container: ContainerNumber,
  { store, report }: Pick<Examination, 'store' | 'report'>,
): Promise<void> {
  const { atMs, position, byPolicyStart, cause } = end;
  const isIt = (row: Pick<DisappearanceRow, 'id' | 'partitionKey' | 'life' | 'position' | 'cause'> | undefined) =>
    row?.id === id &&
    row.partitionKey === partitionKey &&
    row.life === number &&
    row.position === position &&
    row.cause === cause;
  const after = { atMs, position: position - 1 };
  const only = { fromMs: atMs, toMs: atMs + 1, cause: undefined, after, limit: 1 };
  const [left] = await store.disappearances(container, only);
  const isListed =
    isIt(left) &&
    left?.purgedAtMs === purgedAtMs &&
    left.actor === end.actor &&
    left.rule === end.rule &&
    left.ttl === end.ttl &&
    left.policyVersion === end.policyVersion;
  if (!isListed) {
    report(
      'end-differs',
      stream,
      'the read model does not list it, or lists it differently, among the lives that left the container',
    );
  }
  if (purgedAtMs !== null) return;
  const place = { endedAtMs: atMs, position: position - 1 };
  const [ended] = await store.endedLives(container, { byPolicyStart, endedAtOrBeforeMs: atMs, after: place, limit: 1 });
  if (!isIt(ended) || ended?.stream !== stream) {
    report(
      'end-differs',
      stream,
      'it has ended, but the read model does not list it, or lists it differently, among the lives to be erased',
    );
  }
}

/** True for a life that was written, has ended or was erased since the log was read up to a position. */
async function hasGoneOn(log: EventLog, stream: string, life: Life, upTo: number): Promise<boolean> {
  // The life may have changed before it was examined, and the read model may not have the change yet.
  if (life.endPosition > upTo || (await log.readLast(stream))?.position !== life.endPosition) return true;
  // What ends a life from outside is in its own stream only once the purge has recorded it there.
  const { containerRid, prefix } = parseItemStream(stream)!;
  return (await log.readStream(containerStream(containerRid))).some((event) => {
    // Reading the data of an earlier event would throw if it is damaged.
    if (event.position <= upTo) return false;
    if (event.type === 'PartitionKeyDeleted') return event.data['partitionKey'] === life.partitionKey;
    if (event.type === 'ErasureRequested') return event.data['item'] === withoutContainer(containerRid, prefix);
    return event.type === 'ContainerDeleted';
  });
}

/**
 * True for an item that is being erased on request, or with its container. Its key is destroyed before its own stream
 * says anything.
 */
async function isBeingErased(
  log: EventLog,
  stream: string,
  { rid, databaseRid, deletedAtMs, retention }: ContainerState,
): Promise<boolean> {
  const item = withoutContainer(rid, parseItemStream(stream)!.prefix);
  if (deletedAtMs !== null || retention.erasures.some((pending) => pending.item === item)) return true;
  return (await log.readLast(databaseStream(databaseRid)))?.type === 'DatabaseDeleted';
}

/** Builds a life from its events, as far as they can be read, and notes problems with their order. */
class GrowingLife {
  readonly #stream: string;
  readonly #container: Container;
  /** Only one process writes the log, so it knows of every delete before it writes. */
  readonly #ofOneProcess: boolean;
  readonly found: Parameters<Report>[] = [];
  /** Undefined until an event could be read. */
  life: Life | undefined;
  /** False once one of its events could not be read. */
  isWhole = true;

  constructor(stream: string, container: Container, ofOneProcess: boolean) {
    this.#stream = stream;
    this.#container = container;
    this.#ofOneProcess = ofOneProcess;
  }

  add(recorded: RecordedEvent): void {
    let event: ItemEvent;
    try {
      event = readItemEvent(recorded);
    } catch {
      // Reported when the log was read through.
      this.isWhole = false;
      return;
    }
    const { position } = recorded;
    const report = (text: string) => void this.found.push(['event-after-end', this.#stream, text]);
    const life = (this.life ??= {
      lastType: event.type,
      lastPosition: position,
      endPosition: position,
      birth: position,
      firstRevision: recorded.revision,
      ts: 0,
      ttl: null,
      key: 0,
      id: event.data.id,
      partitionKey: event.data.partitionKey,
      writesLeft: false,
      purged: false,
      expiredAtMs: null,
      leftWithKeyAtMs: null,
      uniqueKeys: [],
      end: undefined,
      purgedAtMs: null,
      writes: 0,
    });
    const { lastPosition, lastType } = life;
    life.endPosition = position;
    if (life.purged) report(`${event.type} at ${position} follows the purge`);
    if (position > lastPosition && isItemWrite(event)) {
      if (!isItemWrite({ type: lastType })) {
        report(`a write at ${position} follows ${lastType}`);
      } else if (this.#hasLeftBy(life, position)) {
        // A node that did not know of the delete yet wrote here, and then to the next life. This write changed nothing.
        if (!this.#ofOneProcess) return;
        report(`a write at ${position} follows the delete of its partition key`);
      }
    }
    life.lastType = event.type;
    life.lastPosition = position;
    switch (event.type) {
      case 'ItemUpserted':
      case 'ItemRecovered':
        life.ts = event.data.ts;
        life.ttl = event.data.ttl;
        life.key = event.data.key;
        life.uniqueKeys = event.data.uniqueKeys ?? [];
        life.writesLeft = true;
        break;
      case 'ItemDeleted': {
        const { occurredAtMs, actor: own } = recorded;
        const { atMs = occurredAtMs, position: place = position, by: actor = own } = event.data.withPartitionKey ?? {};
        life.end = { cause: 'deleted', atMs, position: place, actor, ...BY_NO_POLICY };
        if (event.data.withPartitionKey !== undefined) life.leftWithKeyAtMs = atMs;
        break;
      }
      case 'ItemExpired': {
        const { expiredAtMs: atMs, byPolicyStart, rule, ttl, policyVersion } = event.data;
        life.expiredAtMs = atMs;
        life.ts = event.data.ts;
        life.end = { cause: 'expired', atMs, position, byPolicyStart, actor: null, rule, ttl, policyVersion };
        break;
      }
      case 'ItemPurged': {
        const last = decodeLedger(event.data.ledger).at(-1)!;
        life.ts = Math.floor(last.atMs / 1000);
        life.ttl = last.ttl;
        life.key = event.data.key;
        life.purged = true;
        life.purgedAtMs = recorded.occurredAtMs;
        life.writes = event.data.ledger.writes;
        if (event.data.cause !== 'container-deleted') {
          const { occurredAtMs: atMs, actor } = recorded;
          life.end ??= { cause: event.data.cause, atMs, position, actor, ...BY_NO_POLICY };
        }
        break;
      }
      default:
        break;
    }
  }

  /** True for a life that left with its partition key before a position. */
  #hasLeftBy(life: Life, position: number): boolean {
    const { state, partitionKeyDeletes } = this.#container;
    const deletes = partitionKeyDeletes.get(life.partitionKey)?.filter((left) => left.position < position);
    if (deletes === undefined || state === undefined) return false;
    return leftWithPartitionKey(life, state.timeline, new Map([[life.partitionKey, deletes]]));
  }
}
