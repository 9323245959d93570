import { allDone } from '@epitaph/core/all-done.ts';
import { lastBeforeItLeft, partitionKeyDeleteAfter } from '@epitaph/core/container/partition-key-deletes.ts';
import { type Between, containerEvents } from '@epitaph/core/container/read-stream.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { readContainerEvent } from '@epitaph/core/container/upcast.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { etagOf } from '@epitaph/core/item/events.ts';
import { foldItem } from '@epitaph/core/item/handle.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { lifeTail, writeOf } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { isBeingErased } from '@epitaph/core/retention/state.ts';
import type { ContainerNumber, DisappearanceRow, EndedRow } from '@epitaph/projections/read-model-store.ts';
import { endedPages } from '@epitaph/projections/purge/ended-pages.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { wait } from '../../wait.ts';
import type { Caller } from '../api/common.ts';
import type { RecoverySummary, RetentionApi } from '../api/retention-api.ts';
import { isDamage } from '../damage.ts';
import type { Documents } from '../items/documents.ts';
import { assertNoneBehind, contentOf, type ItemLife, itemLife, lastLifeOf, lifeLost } from '../items/item-lives.ts';
import { ERASURE_LOOK_MS, ERASURE_LOOKS, type ItemWrites } from '../items/item-writes.ts';
import type { StoreParts } from '../parts.ts';
import type { Erasures } from './erasures.ts';
import { recordRetention } from './retention-record.ts';

/** Ended lives that are processed together. */
const BATCH = 64;

/** Recovers items that have ended and are not erased, and shows their content to callers who may see it. */
export class Recoveries {
  readonly #parts: StoreParts;
  readonly #purge: PurgeRunner;
  readonly #writes: ItemWrites;
  readonly #documents: Documents;
  readonly #erasures: Erasures;
  /**
   * By the rid of a deleted container: the position of its deletion. Each reading of held content is recorded in its
   * stream after that.
   */
  readonly #gone = new Map<string, number>();

  constructor(parts: StoreParts, purge: PurgeRunner, writes: ItemWrites, documents: Documents, erasures: Erasures) {
    this.#parts = parts;
    this.#purge = purge;
    this.#writes = writes;
    this.#documents = documents;
    this.#erasures = erasures;
  }

  /**
   * Begins a new life of an item with the content of an ended one, the last by default.
   *
   * @throws Refusal item-not-found, already-exists while a newer life is live, content-erased
   */
  readonly recover: RetentionApi['recoverItem'] = async (caller, container, id, partitionKey, { reason, life }) => {
    const { source, isThere } = await this.#ended(container, id, partitionKey, life);
    if (isThere)
      throw new Refusal(
        'already-exists',
        'The item is visible. An earlier life can be brought back when this one has ended.',
      );
    const fromLife = source.life;
    if ((await this.#content(container, source)) === undefined) throw contentErased(source);
    const item = withoutContainer(container.rid, parseItemStream(source.stream)!.prefix);
    await recordRetention(this.#parts, this.#parts.command(caller), container.rid, {
      type: 'RequestRecovery',
      item,
      reason,
    });
    const { ts, ttl, ...recovered } = await this.#begin(caller, container, { id, partitionKey, item }, { fromLife });
    const { timeline } = this.#parts.catalog.containerByRid(container.rid)!.state;
    return { ...recovered, fromLife, ts, expiresAtMs: expiryOf({ ts, ttl }, timeline)?.expiredAtMs ?? null };
  };

  /**
   * Recovers every item that the start of one policy ended and that was not written again since. Items that are
   * recovered already are left alone, so a recovery that was cut short can simply be started again.
   *
   * @throws Refusal bad-request for a policy that never existed
   */
  readonly recoverPolicy: RetentionApi['recoverPolicy'] = async (
    caller,
    container,
    policyVersion,
    { reason, onProgress, signal },
  ) => {
    const { number, state } = await this.#parts.current(container);
    const policy = state.timeline.find(({ version }) => version === policyVersion);
    if (policy === undefined) {
      throw new Refusal('bad-request', `The container has had no TTL policy of version ${policyVersion}.`);
    }
    await recordRetention(this.#parts, this.#parts.command(caller), container.rid, {
      type: 'RequestRecovery',
      policyVersion,
      reason,
    });
    const unreadable = await this.#purge.recordOverdue(this.#parts.catalog.containerByNumber(number)!);
    const total = await this.#parts.readModel.countEnded(number, true, Number.MAX_SAFE_INTEGER);
    const summary = { recovered: 0, writtenSince: 0, uniqueKeyTaken: 0, erased: 0, unreadable };
    let done = 0;
    signal?.throwIfAborted();
    const scan = { byPolicyStart: true, limit: BATCH };
    for await (const rows of endedPages(() => this.#parts.readModel, number, scan)) {
      signal?.throwIfAborted();
      // Waits for all of them, even if one fails.
      const outcomes = await allDone(
        rows.map((row) => this.#bringBack(caller, state, row, policyVersion).catch(unreadableIfDamaged)),
      );
      for (const outcome of outcomes) if (outcome !== undefined) summary[outcome] += 1;
      done += rows.length;
      onProgress?.({ done, total: Math.max(done, total) });
    }
    for await (const rows of this.#erasedOf(number, policy.fromMs)) {
      signal?.throwIfAborted();
      const outcomes = await allDone(
        rows.map((row) => this.#lost(state, row, policyVersion).catch(unreadableIfDamaged)),
      );
      for (const outcome of outcomes) if (outcome !== undefined) summary[outcome] += 1;
    }
    return summary;
  };

  /**
   * The content of an ended life while its key exists. By default it is the last life with content, because holds and
   * floors may keep only an earlier life. The reading is recorded before the content is returned.
   *
   * @throws Refusal item-not-found, content-erased
   */
  readonly heldContent: RetentionApi['heldContent'] = async (
    caller,
    container,
    id,
    partitionKey,
    { reason, life, revision },
  ) => {
    const { source: last } = await this.#ended(container, id, partitionKey, life);
    const found = await this.#lastWithContent(container, last, { earliest: life ?? 0, revision });
    if (found === undefined) throw contentErased(last, life === undefined);
    const { source, write, json } = found;
    await recordRetention(this.#parts, this.#parts.command(caller), container.rid, {
      type: 'RecordHeldContentRead',
      life: withoutContainer(container.rid, source.stream),
      revision: write.revision,
      reason,
    });
    return {
      life: source.life,
      revision: write.revision,
      writtenAtMs: write.occurredAtMs,
      etag: etagOf(write.id),
      json,
    };
  };

  /** An ended life, by its number or else the last one, and whether the item is live now. */
  async #ended(
    container: ContainerState,
    id: string,
    partitionKey: string,
    life: number | undefined,
  ): Promise<{ readonly source: ItemLife; readonly isThere: boolean }> {
    const { log, naming } = this.#parts.ports;
    const prefix = await naming.itemStreamPrefix(container.rid, partitionKey, id);
    const last = await lastLifeOf(log, prefix);
    const name = await this.#parts.recordedName(container, { id, partitionKey });
    const { number } = this.#parts.catalog.containerByRid(container.rid)!;
    // If a later life is lost, the content of this one must not pass for the last.
    await assertNoneBehind(this.#parts, number, name, prefix, last === undefined ? 0 : last.life + 1);
    if (last === undefined) {
      throw new Refusal('item-not-found', 'Nothing was ever written under that id and partition key.');
    }
    const isThere = !(await this.#hasEnded(container, last));
    const wanted = life ?? (isThere ? last.life - 1 : last.life);
    // All lives before the last have ended.
    const source = wanted === last.life ? last : wanted >= 0 && (await itemLife(log, prefix, wanted));
    if (source === undefined || source === false || (source === last && isThere)) {
      throw new Refusal('item-not-found', 'The item has no such life that has ended.');
    }
    return { source, isThere };
  }

  /** Whether a life has ended by its own stream, by its deadline, or with its partition key or container. */
  async #hasEnded(container: ContainerState, { events }: ItemLife): Promise<boolean> {
    const last = events.at(-1)!;
    const state = foldItem([last]);
    if (state.status !== 'live') return true;
    const { state: within, number } = this.#parts.catalog.containerByRid(container.rid)!;
    if (this.#parts.catalog.goneAtMs(within) !== null) return true;
    const { partitionKey } = state.lastWrite;
    const { position } = await lastBeforeItLeft(this.#parts.ports.log, within, partitionKey, last);
    if (partitionKeyDeleteAfter(within, partitionKey, position) !== undefined) return true;
    const nowMs = this.#parts.ports.clock.now();
    this.#parts.expirySeen(number, nowMs);
    const expiry = expiryOf(state.lastWrite, within.timeline);
    return expiry !== undefined && expiry.expiredAtMs <= nowMs;
  }

  /**
   * The last write of an ended life. If the life ended with its container, another node that did not know so yet may
   * have appended a write since, which was refused.
   */
  async #lastWriteOf(container: ContainerState, source: ItemLife): Promise<RecordedEvent | undefined> {
    const { ports, catalog } = this.#parts;
    let write = await contentOf(ports.log, container, source);
    if (ports.nodes === undefined || catalog.goneAtMs(container) === null) return write;
    const gone = await this.#positionOfGone(container);
    while (write !== undefined && write.position > gone && write.revision > 0)
      write = await ports.log.readBefore(write);
    return write;
  }

  /** The log position at which the deletion of a container, or of its database, is recorded. */
  async #positionOfGone({ rid, databaseRid }: ContainerState): Promise<number> {
    const known = this.#gone.get(rid);
    if (known !== undefined) return known;
    const { log } = this.#parts.ports;
    let position = Number.MAX_SAFE_INTEGER;
    for await (const event of containerEvents(log, rid, { after: 0, before: position })) {
      if (event.type !== 'ContainerDeleted') continue;
      ({ position } = event);
      break;
    }
    const database = await log.readLast(databaseStream(databaseRid));
    if (database?.type === 'DatabaseDeleted') position = Math.min(position, database.position);
    this.#gone.set(rid, position);
    return position;
  }

  /** The last of the ended lives up to `last` that has content, with that content. */
  async #lastWithContent(
    container: ContainerState,
    last: ItemLife,
    { earliest, revision }: { readonly earliest: number; readonly revision: number | undefined },
  ) {
    const { prefix } = parseItemStream(last.stream)!;
    for (let source = last; ;) {
      const content = await this.#content(container, source, revision);
      if (content !== undefined) return { source, ...content };
      const before = source.life - 1;
      if (before < earliest) return undefined;
      const earlier = await itemLife(this.#parts.ports.log, prefix, before);
      if (earlier === undefined) throw lifeLost(prefix, before);
      source = earlier;
    }
  }

  /**
   * @param revision of a write; the last one when not given
   * @returns undefined when the content is erased
   * @throws Refusal item-not-found when there is no such write
   */
  async #content({ rid }: ContainerState, source: ItemLife, revision?: number) {
    const { life, stream } = source;
    const { log } = this.#parts.ports;
    const last = await this.#lastWriteOf(this.#parts.catalog.containerByRid(rid)!.state, source);
    // An erased life has no write to return.
    const isOther = last !== undefined && revision !== undefined;
    const write = isOther ? await writeOf(log, stream, revision) : last;
    if (last !== undefined && write === undefined) {
      throw new Refusal('item-not-found', `Life ${life} of the item has no write of revision ${revision}.`);
    }
    const json = write && (await this.#documents.openEnded(write));
    return write === undefined || json === undefined ? undefined : { write, json };
  }

  /**
   * Begins a life with the content of an ended one. Another node may have been asked to erase the item meanwhile, and
   * not have seen this life. Then the erasure is repeated, because what was erased on request must not come back.
   *
   * @throws Refusal content-erased, also when the outcome of a requested erasure is not known soon
   */
  async #begin(
    caller: Caller,
    container: ContainerState,
    { id, partitionKey, item }: ItemName & { readonly item: string },
    lives: { readonly fromLife: number; readonly asLife?: number },
  ): ReturnType<ItemWrites['recover']> {
    const { ports, projector, catalog } = this.#parts;
    const { rid } = container;
    // The erasure may still be refused.
    for (let looks = 0; isBeingErased(catalog.containerByRid(rid)!.state.retention, item); looks++) {
      if (looks === ERASURE_LOOKS) throw new Refusal('content-erased', 'The item is being erased on request.');
      await wait(ERASURE_LOOK_MS);
    }
    const knownAt = projector.position;
    const begun = await this.#writes.recover(caller, container, id, partitionKey, lives);
    if (ports.nodes === undefined) return begun;
    const request = await erasureRequested(ports.log, rid, item, { after: knownAt, before: begun.position });
    if (request === undefined) return begun;
    try {
      const by = { actor: request.actor, correlationId: caller.correlationId };
      await this.#erasures.erase(by, container, id, partitionKey, request);
    } catch (error) {
      // The first erasure was refused for the same reason.
      if (error instanceof Refusal && error.code === 'held') return begun;
      throw error;
    }
    throw new Refusal('content-erased', 'The item was erased on request meanwhile.');
  }

  async #bringBack(
    caller: Caller,
    container: ContainerState,
    { stream, life, id, partitionKey }: EndedRow,
    policyVersion: number,
  ): Promise<keyof RecoverySummary | undefined> {
    const { log } = this.#parts.ports;
    const last = await log.readLast(stream);
    if (last === undefined) return 'unreadable';
    if (!isTakenBy(last, policyVersion)) return undefined;
    const { prefix } = parseItemStream(stream)!;
    if ((await log.readLast(itemStream(prefix, life + 1))) !== undefined) return 'writtenSince';
    try {
      const item = withoutContainer(container.rid, prefix);
      const lives = { fromLife: life, asLife: life + 1 };
      await this.#begin(caller, container, { id, partitionKey, item }, lives);
      return 'recovered';
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      // The purge is erasing the life, and counts it as erased once that is recorded.
      if (error.code === 'content-erased') return undefined;
      if (error.code === 'already-exists') return 'writtenSince';
      if (error.code === 'unique-key-taken') return 'uniqueKeyTaken';
      throw error;
    }
  }

  /**
   * Lives that expired at an instant and are erased, in pages. Everything that the start of a policy ends expires at
   * that start.
   */
  async *#erasedOf(container: ContainerNumber, atMs: number): AsyncGenerator<readonly DisappearanceRow[], void> {
    const instant = { fromMs: atMs, toMs: atMs + 1, cause: 'expired', limit: BATCH } as const;
    let after: { readonly atMs: number; readonly position: number } | undefined;
    for (;;) {
      const rows = await this.#parts.readModel.disappearances(container, { ...instant, after });
      yield rows.filter(({ purgedAtMs }) => purgedAtMs !== null);
      const last = rows.at(-1);
      if (last === undefined || rows.length < BATCH) return;
      after = { atMs: last.atMs, position: last.position };
    }
  }

  /**
   * The outcome for an item whose life is erased: `writtenSince` if it has a newer life. Undefined if the life did not
   * end by the start of the policy.
   */
  async #lost(
    { rid }: ContainerState,
    { partitionKey, id, life }: DisappearanceRow,
    policyVersion: number,
  ): Promise<'erased' | 'writtenSince' | 'unreadable' | undefined> {
    const { log, naming } = this.#parts.ports;
    const prefix = await naming.itemStreamPrefix(rid, partitionKey, id);
    const facts = await lifeTail(log, itemStream(prefix, life));
    if (facts.length === 0) return 'unreadable';
    if (!facts.some((fact) => isTakenBy(fact, policyVersion))) return undefined;
    return (await log.readLast(itemStream(prefix, life + 1))) === undefined ? 'erased' : 'writtenSince';
  }
}

const contentErased = ({ life }: ItemLife, andOfEarlier = false): Refusal =>
  new Refusal(
    'content-erased',
    andOfEarlier && life > 0
      ? `The content of life ${life} of the item has been erased, and that of each before it.`
      : `The content of life ${life} of the item has been erased.`,
  );

/** The last request between two positions of the log to erase an item; undefined when there is none. */
async function erasureRequested(
  log: EventLog,
  rid: string,
  item: string,
  between: Between,
): Promise<{ readonly actor: string; readonly reason: string; readonly requestedBy: string } | undefined> {
  for await (const recorded of containerEvents(log, rid, between)) {
    if (recorded.type !== 'ErasureRequested') continue;
    const event = readContainerEvent(recorded);
    if (event.type === 'ErasureRequested' && event.data.item === item) return { ...event.data, actor: recorded.actor };
  }
  return undefined;
}

/** @throws any error that does not mean damaged data of one life in the log or the vault */
function unreadableIfDamaged(error: unknown): 'unreadable' {
  if (isDamage(error)) return 'unreadable';
  throw error;
}

/** Whether an event is the end of a life by the start of the policy. */
function isTakenBy(recorded: RecordedEvent, policyVersion: number): boolean {
  const event = readItemEvent(recorded);
  return event.type === 'ItemExpired' && event.data.byPolicyStart && event.data.policyVersion === policyVersion;
}
