import { lastBeforeItLeft, takenAway } from '@epitaph/core/container/partition-key-deletes.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { MAX_ATTEMPTS, TooMuchContention } from '@epitaph/core/handle-command.ts';
import { invariant, unreachable } from '@epitaph/core/invariant.ts';
import type { ItemRefusal } from '@epitaph/core/item/decide.ts';
import { etagOf, type ItemWritten } from '@epitaph/core/item/events.ts';
import {
  handleItem,
  type ItemHandled,
  type ItemIntent,
  type ItemRequest,
  type LifeAt,
  LifeUnreadable,
} from '@epitaph/core/item/handle.ts';
import {
  handleItems,
  type ItemsHandled,
  type ItemsRequest,
  type StepHandled,
} from '@epitaph/core/item/handle-items.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { parseItemStream } from '@epitaph/core/item/stream-name.ts';
import { DecidedTooLate } from '@epitaph/core/log/decided-too-late.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { withoutContainer } from '@epitaph/core/retention/hold-names.ts';
import { isBeingErased } from '@epitaph/core/retention/state.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import { hasUniqueKeys } from '@epitaph/core/unique-key/values.ts';
import type { CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import type { ContainerNumber } from '@epitaph/projections/read-model-store.ts';
import { QueryError } from '@epitaph/query';
import { Places } from '@epitaph/core/places.ts';
import { wait } from '../../wait.ts';
import type { Caller, Written } from '../api/common.ts';
import type { BatchOperation, BatchOutcome, BatchResult, ItemsApi, ShownItem } from '../api/items-api.ts';
import { inThisHeap } from '../heap.ts';
import type { StoreParts } from '../parts.ts';
import type { Documents } from './documents.ts';
import {
  deleting,
  factsFor,
  type IntentOf,
  isGone,
  isWriteCommand,
  ItemIntents,
  type ItemOperation,
  named,
  nameOf,
  shown,
  type Shown,
  writing,
} from './item-intents.ts';
import { assertNoneBehind } from './item-lives.ts';

/**
 * Bytes of all documents that one batch reads or patches. The size of what it writes in full is limited by the request.
 */
const MAX_BATCH_BYTES = 16 * 1024 * 1024;
/** Large documents that are patched at once. */
const LARGE_PATCHES = inThisHeap(32);
/** Batches with patches that are carried out at once. */
const PATCHING_BATCHES = inThisHeap(32);

/** After a write wrongly assumed that its item did not exist, this many writes of the container look first. */
const LOOKING_WRITES = 100;

/**
 * How often a write checks whether the erasure of its item on request is finished, and how long it waits before each
 * check.
 */
export const ERASURE_LOOKS = 40;
export const ERASURE_LOOK_MS = 50;

/** Options for handling a command on an item. */
interface Handling {
  readonly operation?: 'create' | 'upsert' | 'replace';
  /** Called before the command is decided again, which may have to wait for a command on its container. */
  readonly onAgain?: () => void;
}

/** The state that a command was decided with. */
interface DecidedBy {
  readonly within: CatalogContainer;
  /** The container's state is that of this position of the log, or of a later one. */
  readonly knownAt: number;
}

/** The result of one attempt at a batch. */
interface TriedBatch extends DecidedBy {
  readonly handled:
    | Exclude<ItemsHandled, { kind: 'refused' }>
    | { readonly kind: 'refused'; readonly index: number; readonly refusal: Refusal; readonly endedAt?: number };
}

/**
 * The events that a command was decided on. A refusal, and a batch that only reads, tell of writes of others that may
 * be recorded and not visible yet. Whoever is told of a write must find it in the next read, so these answers wait for
 * its position.
 */
class Basis {
  /** The last of their positions; 0 if there are none. */
  position = 0;

  add(event: RecordedEvent | undefined): void {
    if (event !== undefined && event.position > this.position) this.position = event.position;
  }
}

/**
 * Writes of items, alone and in batches. Each is carried out in its turn, and decided again if its item's deadline
 * passed first. On the way to an item's turn, nothing is awaited that is available synchronously, so writes of every
 * kind get their turns in the order in which they came.
 */
export class ItemWrites {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  readonly #intents: ItemIntents;
  /**
   * The positions at which recently written lives began. The answer to a write shows it, but a life's last event does
   * not have it.
   */
  readonly #births = new GenerationCache<string, number>(40_000);

  /** By container, how many of the next writes look whether their item exists before they begin a life. */
  readonly #lookingWrites = new GenerationCache<ContainerNumber, number>(1_000);

  readonly #largePatches = new Places(LARGE_PATCHES);
  readonly #patchingBatches = new Places(PATCHING_BATCHES);

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
    this.#intents = new ItemIntents(parts, documents);
  }

  readonly write: ItemsApi['writeItem'] = async (caller, container, operation, item, precondition) => {
    if (hasUniqueKeys(container.definition)) {
      return this.#alone(caller, container, { kind: 'write', operation, item, precondition });
    }
    const named = this.#parts.recordedName(container, item);
    const name = named instanceof Promise ? await named : named;
    const intent = writing(operation, { ...item, ...name }, precondition);
    return shownAs(item, await this.#change(caller, container, name, intent, { operation }));
  };

  readonly patch: ItemsApi['patchItem'] = async (caller, container, id, partitionKey, patch, precondition) => {
    if (hasUniqueKeys(container.definition)) {
      return this.#alone(caller, container, { kind: 'patch', id, partitionKey, patch, precondition });
    }
    const named = this.#parts.recordedName(container, { id, partitionKey });
    const name = named instanceof Promise ? await named : named;
    let hasPlace = false;
    const beforeLarge = async (bytes: number) => {
      if (hasPlace) return;
      await this.#largePatches.take();
      hasPlace = true;
      patch.beforeLarge?.(bytes);
    };
    const giveBack = () => {
      if (hasPlace) this.#largePatches.giveBack();
      hasPlace = false;
    };
    try {
      const intent = this.#intents.patching(name, patch, precondition, beforeLarge);
      // The place is given back first: the next attempt may wait for a command on the container, and that command may
      // wait for writes that want a place.
      const changed = await this.#change(caller, container, name, intent, { onAgain: giveBack });
      return shownAs({ id, partitionKey }, changed);
    } finally {
      giveBack();
    }
  };

  readonly delete: ItemsApi['deleteItem'] = async (caller, container, id, partitionKey, precondition) => {
    let bytes = 0;
    const named = this.#parts.recordedName(container, { id, partitionKey });
    const name = named instanceof Promise ? await named : named;
    const intent = deleting(name.partitionKey, precondition, (size) => (bytes = size));
    const { handled } = await this.#handle(caller, container, name, intent);
    return { position: handled.position!, bytes };
  };

  /**
   * Begins a new life with the content of an ended one. The ended life stays as it is.
   *
   * @param options.asLife the number that the new life must get; any other means that the item was written since
   * @throws Refusal item-not-found, already-exists, content-erased
   */
  async recover(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    { fromLife, asLife }: { readonly fromLife: number; readonly asLife?: number },
  ): Promise<{ readonly life: number; readonly ts: number; readonly ttl: number | null; readonly position: number }> {
    let began = { life: 0, ttl: null as number | null };
    const onBegin = (life: number, ttl: number | null) => {
      began = { life, ttl };
    };
    // A batch of one, because it may also have to take values of unique keys.
    const operation = { kind: 'recover', id, partitionKey, fromLife, asLife, onBegin } as const;
    const outcome = await this.#carryOut(caller, container, [operation], {});
    if (outcome.kind === 'refused') throw outcome.refusal;
    const [result] = outcome.results;
    invariant(result?.kind === 'written', 'a recovery answers with what was written');
    return { ...began, ts: result.item.ts, position: outcome.position };
  }

  readonly batch: ItemsApi['batchItems'] = async (caller, container, operations, options = {}) => {
    const seen = this.#parts.seen(options.atLeast);
    if (seen !== undefined) await seen;
    return this.#carryOut(caller, container, operations, options);
  };

  async #carryOut(
    caller: Caller,
    container: ContainerState,
    asked: readonly ItemOperation[],
    options: { readonly dryRun?: boolean },
  ): Promise<BatchOutcome> {
    // The size of a document to be patched is known only when the batch already blocks other writes of the item. So the
    // batch waits for a place before that.
    const record = () => this.#afterErasures(container, () => this.#record(caller, container, asked, options));
    return asked.some(({ kind }) => kind === 'patch') ? this.#patchingBatches.run(record) : record();
  }

  async #record(
    caller: Caller,
    container: ContainerState,
    asked: readonly ItemOperation[],
    { dryRun = false }: { readonly dryRun?: boolean },
  ): Promise<BatchOutcome> {
    const current = this.#parts.current(container);
    if (current instanceof Promise) await current;
    const operations: ItemOperation[] = [];
    const prefixes: string[] = [];
    for (const operation of asked) {
      const recorded = this.#parts.recordedName(container, nameOf(operation));
      const name = recorded instanceof Promise ? await recorded : recorded;
      operations.push(named(operation, name));
      const naming = this.#parts.ports.naming.itemStreamPrefix(container.rid, name.partitionKey, name.id);
      prefixes.push(naming instanceof Promise ? await naming : naming);
    }
    const { promise: done, resolve: end } = Promise.withResolvers<void>();
    try {
      const shown: Shown[] = [];
      const deletedBytes: number[] = [];
      const basis = new Basis();
      const attempt = (within: CatalogContainer) =>
        this.#tryBatch(caller, within, operations, { prefixes, shown, deletedBytes, dryRun, done, basis });
      const carryOut = () =>
        this.#parts.itemOrder.runAll(prefixes, async () => {
          for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
            const tried = await this.#parts.writeIn(container, attempt);
            const { handled } = tried;
            // The deadline passed before the decision, so the batch is decided again at the present time.
            if (handled.kind !== 'again') return { ...tried, handled };
          }
          throw new TooMuchContention(`${MAX_ATTEMPTS} attempts on ${prefixes.length} items took too long`);
        });
      let outcome = await carryOut();
      while (await this.#isToDoAgain(outcome, operations)) outcome = await carryOut();
      const { handled, within } = outcome;
      if (!(handled.kind === 'refused' && isUnable(handled.refusal))) await this.#parts.projected(basis.position);
      if (handled.kind === 'refused') return handled;
      if (handled.kind === 'spans-streams') {
        throw new Refusal(
          'not-supported',
          "The event log of this store can not append to several streams at once, so a batch or a script can write only one item. It can't change an item's id, and can't create an item again that it has deleted.",
        );
      }
      const results: BatchResult[] = [];
      for (const [index, step] of handled.steps.entries()) {
        const item = shown[index];
        results.push(
          item === undefined
            ? { kind: 'deleted', bytes: deletedBytes[index] ?? 0 }
            : await this.#resultOf(within, operations[index]!, step, { ...nameOf(asked[index]!), ...item }),
        );
      }
      return { kind: 'done', results, position: handled.position ?? this.#parts.headPosition() };
    } finally {
      end();
    }
  }

  /** Whether a batch must be decided again. Waits until readers see what it has recorded. */
  async #isToDoAgain(outcome: TriedBatch, operations: readonly ItemOperation[]): Promise<boolean> {
    const { handled } = outcome;
    // A batch that is refused because an item has expired may have recorded the expiry, as a single command may.
    if ('endedAt' in handled && handled.endedAt !== undefined) await this.#parts.projected(handled.endedAt);
    if (handled.kind === 'refused') return this.#isOutOfDate(outcome, handled.refusal.code);
    if (handled.kind !== 'done' || handled.position === undefined) return false;
    const { position, steps } = handled;
    await this.#parts.projected(position);
    // On a log that several nodes share, a batch writes to one life only.
    const index = steps.findIndex(({ event, birth }) => event !== undefined && birth === undefined);
    if (index >= 0) {
      const { partitionKey } = nameOf(operations[index]!);
      return this.#wasInVain(outcome, { stream: steps[index]!.stream, partitionKey, position });
    }
    await this.#assertNotGone(outcome, position);
    return false;
  }

  /** Decides a batch with the container and the time as they are now, and records it. */
  async #tryBatch(
    caller: Caller,
    within: CatalogContainer,
    operations: readonly ItemOperation[],
    batch: {
      readonly prefixes: readonly string[];
      /** Receives the document that each operation leaves or finds. */
      readonly shown: Shown[];
      /** Receives the size of the document that each delete removes. */
      readonly deletedBytes: number[];
      readonly dryRun: boolean;
      readonly done: Promise<unknown>;
      readonly basis: Basis;
    },
  ): Promise<TriedBatch> {
    const knownAt = this.#parts.projector.position;
    const context = this.#parts.command(caller);
    let reached = 0;
    let heldBytes = 0;
    const hold = (bytes: number): void => {
      heldBytes += bytes;
      if (heldBytes > MAX_BATCH_BYTES) throw new Refusal('too-large');
    };
    const bounded = (patching: ItemRequest['command']): ItemRequest['command'] => {
      return async (state, life) => {
        const intent = await patching(state, life);
        if (intent.kind === 'command' && isWriteCommand(intent.command)) hold(intent.command.bytes);
        return intent;
      };
    };
    const steps = operations.map((operation, index): ItemRequest => {
      const { id, partitionKey } = nameOf(operation);
      const show = (item: Shown) => {
        if (operation.kind === 'read') hold(Buffer.byteLength(item.json));
        batch.shown[index] = item;
      };
      const onDeleted = (bytes: number) => {
        batch.deletedBytes[index] = bytes;
      };
      const intended = this.#intents.of(operation, show, onDeleted)(within, context.nowMs);
      const plain = operation.kind === 'patch' ? bounded(intended) : intended;
      const intent = hasUniqueKeys(within.state.definition) ? this.#intents.namingUniqueKeys(within, plain) : plain;
      return {
        prefix: batch.prefixes[index]!,
        causationId: 'causationId' in operation ? operation.causationId : undefined,
        isRename: 'isRename' in operation && operation.isRename,
        lifeHint: () => this.#lifeHint(within, partitionKey, id),
        command: this.#inTime(within, nameOf(operation), context.nowMs, batch.done, (state, life) => {
          reached = index;
          batch.basis.add(life.last);
          return intent(state, life);
        }),
      };
    });
    try {
      const request: ItemsRequest = {
        steps,
        dryRun: batch.dryRun,
        onExpiry: () => this.#parts.expirySeen(within.number, context.nowMs),
        ...(hasUniqueKeys(within.state.definition)
          ? {
              holderFacts: async (partitionKey, last) => {
                batch.basis.add(last);
                await this.#parts.catalogCheck.assertAgrees(within.state.rid);
                return factsFor(within, context.nowMs, partitionKey, last);
              },
            }
          : {}),
      };
      const tried = await handleItems(this.#parts.ports, context, request).catch(unlessTooLate);
      const handled = tried ?? ({ kind: 'again' } as const);
      if (handled.kind !== 'refused') return { handled, within, knownAt };
      const { step, refusal, ...ended } = handled;
      return { handled: { ...ended, index: step, refusal: itemRefusal(refusal) }, within, knownAt };
    } catch (error) {
      // The intent of an operation that can't be carried out throws, for instance when a patch's condition is no query.
      const refusal = error instanceof QueryError ? new Refusal('bad-request', error.message) : error;
      if (refusal instanceof Refusal) return { handled: { kind: 'refused', index: reached, refusal }, within, knownAt };
      throw error;
    }
  }

  /** Carries out a write of an item under its recorded name, and returns the item as it is after that. */
  async #change(
    caller: Caller,
    container: ContainerState,
    name: ItemName,
    intentOf: IntentOf,
    handling: Handling = {},
  ): Promise<Written<ShownItem>> {
    let json = '';
    const showing = shown(intentOf, (item) => {
      json = item.json;
    });
    const { handled, within } = await this.#handle(caller, container, name, showing, handling);
    const written = handled.recorded[0]!;
    const created = handled.firstRevision === 0;
    const { stream } = handled;
    const position = handled.position!;
    const began = this.#birthOf(within, name, { stream, position, birth: created ? handled.firstPosition : undefined });
    const birth = began instanceof Promise ? await began : began;
    const etag = etagOf(written.id);
    this.#documents.put(position, json, etag);
    const ts = Math.floor(written.occurredAtMs / 1000);
    return { resource: { ...name, json, birth, ts, etag }, position, created };
  }

  #handle(
    caller: Caller,
    container: ContainerState,
    name: ItemName,
    intentOf: IntentOf,
    handling: Handling = {},
  ): Promise<{ handled: ItemHandled; within: CatalogContainer }> {
    const handle = () => this.#handleNow(caller, container, name, intentOf, handling);
    return this.#afterErasures(container, handle, handling.onAgain);
  }

  /**
   * Repeats work on an item whose key is already destroyed while its erasure on request is not recorded yet. Another
   * node is about to record the erasure, or this node will once a fault is over. The work then applies to the item's
   * next life.
   *
   * @throws {Refusal} busy when that takes seconds
   */
  async #afterErasures<Result>(
    { rid }: ContainerState,
    work: () => Promise<Result>,
    onAgain: () => void = () => {},
  ): Promise<Result> {
    for (let looks = 0; ; looks++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof LifeUnreadable) || error.status !== 'destroyed') throw error;
        if (looks === ERASURE_LOOKS) {
          await this.#parts.confirmCatalog(0);
          const item = withoutContainer(rid, parseItemStream(error.stream)!.prefix);
          // If the item is not being erased, the log or the vault is damaged.
          if (!isBeingErased(this.#parts.catalog.containerByRid(rid)!.state.retention, item)) throw error;
          throw new Refusal('busy', 'The item is being erased; try again.');
        }
        onAgain();
        await wait(ERASURE_LOOK_MS);
      }
    }
  }

  async #handleNow(
    caller: Caller,
    container: ContainerState,
    name: ItemName,
    intentOf: IntentOf,
    { operation, onAgain = () => {} }: Handling,
  ): Promise<{ handled: ItemHandled; within: CatalogContainer }> {
    const { id, partitionKey } = name;
    const current = this.#parts.current(container);
    if (current instanceof Promise) await current;
    const named = this.#parts.ports.naming.itemStreamPrefix(container.rid, partitionKey, id);
    const prefix = named instanceof Promise ? await named : named;
    const { promise: done, resolve: end } = Promise.withResolvers<void>();
    const basis = new Basis();
    try {
      // The policy and the time belong together, so both are taken when it is this command's turn.
      const attempt = async (within: CatalogContainer) => {
        const knownAt = this.#parts.projector.position;
        const context = this.#parts.command(caller);
        const intended = intentOf(within, context.nowMs);
        const intent: ItemRequest['command'] = (state, life) => {
          basis.add(life.last);
          return intended(state, life);
        };
        const isLikelyNew = this.#mayBeginUnseen(within, name, operation);
        const request = {
          prefix,
          isLikelyNew,
          lifeHint: () => this.#lifeHint(within, partitionKey, id),
          command: this.#inTime(within, name, context.nowMs, done, intent),
        };
        const handled = await handleItem(this.#parts.ports, context, request).catch(unlessTooLate);
        if (handled === undefined) return undefined;
        if (isLikelyNew && (handled.life > 0 || handled.firstRevision > 0)) {
          this.#lookingWrites.set(within.number, LOOKING_WRITES);
        }
        if (handled.life > 0 && handled.firstRevision === 0) this.#parts.expirySeen(within.number, context.nowMs);
        return { handled, within, knownAt };
      };
      for (;;) {
        const outcome = await this.#parts.itemOrder.run(prefix, async () => {
          for (;;) {
            const tried = await this.#parts.writeIn(container, attempt);
            // The deadline passed before the decision, so the command is decided again at the present time.
            if (tried !== undefined && tried.handled.decision.kind !== 'again') return tried;
            onAgain();
          }
        });
        const { decision, position, firstRevision, stream } = outcome.handled;
        // A command that is refused because its item has expired may have recorded the expiry. Readers and feeds must
        // see it from now on.
        if (position !== undefined) await this.#parts.projected(position);
        if (decision.kind === 'refused') {
          if (await this.#isOutOfDate(outcome, decision.refusal.reason)) continue;
          throw itemRefusal(decision.refusal);
        }
        invariant(position !== undefined, 'an accepted command records something');
        if (this.#isThereAsKnown(outcome.within)) return outcome;
        const hadBegun = firstRevision > 0;
        if (hadBegun && (await this.#wasInVain(outcome, { stream, partitionKey, position }))) {
          onAgain();
          continue;
        }
        if (!hadBegun) await this.#assertNotGone(outcome, position);
        return outcome;
      }
    } catch (error) {
      if (error instanceof Refusal && !isUnable(error)) await this.#parts.projected(basis.position);
      throw error;
    } finally {
      end();
    }
  }

  /**
   * Whether a write or delete that was appended to an existing life had no effect, because another node had deleted the
   * partition key with all its items. That node did so before the append, and this node did not know of it yet. The
   * command then applies to the item's next life.
   *
   * @throws Refusal container-not-found when the container was gone by then
   */
  async #wasInVain(
    decidedBy: DecidedBy,
    {
      stream,
      partitionKey,
      position,
    }: { readonly stream: string; readonly partitionKey: string; readonly position: number },
  ): Promise<boolean> {
    await this.#assertNotGone(decidedBy, position);
    const { within, knownAt } = decidedBy;
    if (this.#isAsKnown(within)) return false;
    const { log } = this.#parts.ports;
    for await (const event of takenAway(log, within.state.rid, { after: knownAt, before: position })) {
      if (event.data['partitionKey'] !== partitionKey) continue;
      const [first] = await log.readStream(stream, { toRevision: 0, withBodies: false });
      // The stream was truncated: the life was purged in the meantime.
      if (first === undefined || first.position < event.position) return true;
    }
    return false;
  }

  /** @throws Refusal container-not-found for a write that was appended after another node had deleted the container */
  async #assertNotGone({ within, knownAt }: DecidedBy, position: number): Promise<void> {
    const { ports } = this.#parts;
    if (this.#isThereAsKnown(within)) return;
    const { rid, databaseRid } = within.state;
    const last = await ports.log.readLast(databaseStream(databaseRid));
    let isGone = last?.type === 'DatabaseDeleted' && last.position < position;
    for await (const { type } of takenAway(ports.log, rid, { after: knownAt, before: position })) {
      isGone ||= type === 'ContainerDeleted';
    }
    if (isGone) throw new Refusal('container-not-found');
  }

  /**
   * Whether an item may exist only in the state that this node knew, because another node has just deleted its
   * partition key.
   */
  async #isOutOfDate({ within }: DecidedBy, reason: string): Promise<boolean> {
    if (this.#parts.ports.nodes === undefined || reason !== 'already-exists') return false;
    await this.#parts.confirmCatalog(0);
    return !this.#isAsKnown(within);
  }

  #isThereAsKnown(within: CatalogContainer): boolean {
    return this.#isAsKnown(within) && this.#parts.catalog.goneAtMs(within.state) === null;
  }

  /** Whether a container's state is still the same object. States are replaced, never changed. */
  #isAsKnown({ state }: CatalogContainer): boolean {
    return this.#parts.ports.nodes === undefined || this.#parts.catalog.containerByRid(state.rid)?.state === state;
  }

  /**
   * Whether a write may assume that its item does not exist: a create, which mostly is right, and an upsert of an item
   * that the read models do not know. If the item does exist, the write is decided twice.
   */
  #mayBeginUnseen(
    { number }: CatalogContainer,
    { partitionKey, id }: ItemName,
    operation: Handling['operation'],
  ): boolean {
    const mayBegin =
      operation === 'create' || (operation === 'upsert' && this.#parts.readModel.isUnknown(number, partitionKey, id));
    if (!mayBegin) return false;
    const looking = this.#lookingWrites.get(number) ?? 0;
    if (looking > 0) this.#lookingWrites.set(number, looking - 1);
    return looking === 0;
  }

  /** Carries out, as a batch of one, a write that may have to be recorded in several streams. */
  async #alone(
    caller: Caller,
    container: ContainerState,
    operation: Extract<BatchOperation, { kind: 'write' | 'patch' }>,
  ): Promise<Written<ShownItem>> {
    const outcome = await this.batch(caller, container, [operation]);
    if (outcome.kind === 'refused') throw outcome.refusal;
    const [result] = outcome.results;
    invariant(result?.kind === 'written', 'a write answers with what was written');
    return { resource: result.item, position: outcome.position, created: result.created };
  }

  async #lifeHint(within: CatalogContainer, partitionKey: string, id: string): Promise<number> {
    return (await this.#parts.rows.find(within.number, partitionKey, id))?.life ?? 0;
  }

  /**
   * The same intent, but followed only if the life's deadline has not passed since `nowMs`; otherwise the command is
   * decided again.
   *
   * Two checks come before the intent. If only the catalog says that a life is over, the catalog is checked against the
   * log before the end is recorded, because what is erased after that is lost. And a life does not begin if the read
   * models have it already and the log has lost it: they would take it for a second item of that name, and could not go
   * on.
   */
  #inTime(
    within: CatalogContainer,
    name: ItemName,
    nowMs: number,
    done: Promise<unknown>,
    intent: ItemRequest['command'],
  ): ItemRequest['command'] {
    return (state, life) => {
      if (state.status === 'none') {
        const known = this.#parts.readModel.lastLife(within.number, name.partitionKey, name.id);
        // Mostly there is no earlier life, and the log isn't asked.
        return known === undefined
          ? intent(state, life)
          : this.#beginning(within, name, known, life, () => intent(state, life));
      }
      if (state.status !== 'live') return intent(state, life);
      const { lastWrite } = state;
      const { last } = life;
      const decide = (): ReturnType<ItemRequest['command']> => {
        const isInTime = () => this.#parts.writing(within, lastWrite, nowMs, done);
        if (!isInTime()) return { kind: 'again' };
        if (this.#parts.ports.nodes === undefined || last === undefined) return intent(state, life);
        const wanted = { isInTime, intent: (known: LifeAt) => intent(state, known) };
        return this.#inTimeAmongNodes(within, lastWrite, { ...life, last }, { ...wanted, nowMs });
      };
      if (!isGone(lastWrite, factsFor(within, nowMs, lastWrite.partitionKey, last))) return decide();
      return this.#parts.catalogCheck.assertAgrees(within.state.rid).then(decide);
    };
  }

  /**
   * Begins a life, unless the read models know this life already. On one of several nodes only their server knows that.
   */
  async #beginning(
    within: CatalogContainer,
    name: ItemName,
    known: MaybePromise<number | undefined>,
    { stream, life }: LifeAt,
    intent: () => ReturnType<ItemRequest['command']>,
  ): Promise<Awaited<ReturnType<ItemRequest['command']>>> {
    // If the last known life is the one before this, the log says that it has ended.
    if (![undefined, life - 1].includes(await known)) {
      await assertNoneBehind(this.#parts, within.number, name, parseItemStream(stream)!.prefix, life);
    }
    return intent();
  }

  /**
   * As {@link #inTime}, when other nodes write to the log. Readers on this node wait for a late write, readers on other
   * nodes do not. So everything that takes time comes before the last look at the clock, nothing is awaited between
   * that look and the append, and the append must reach the log before the deadline.
   */
  async #inTimeAmongNodes(
    within: CatalogContainer,
    lastWrite: ItemWritten,
    life: LifeAt & { readonly last: RecordedEvent },
    wanted: {
      readonly isInTime: () => boolean;
      readonly nowMs: number;
      readonly intent: (life: LifeAt) => ReturnType<ItemRequest['command']>;
    },
  ): Promise<ItemIntent> {
    const { partitionKey, key } = lastWrite;
    const { log, vault } = this.#parts.ports;
    const last = await lastBeforeItLeft(log, within.state, partitionKey, life.last);
    const intent = await wanted.intent({ ...life, last });
    const found = await vault.findKey(key, life.stream);
    await this.#parts.confirmCatalog();
    if (found.status === 'destroyed') {
      // Either the life has expired and was erased in the meantime, or it is being erased and readers find it gone.
      if ((await log.readLast(life.stream))?.id !== life.last.id) return { kind: 'again' };
      throw new LifeUnreadable(life.stream, found.status);
    }
    if (!wanted.isInTime()) return { kind: 'again' };
    const { timeline } = this.#parts.catalog.containerByNumber(within.number)!.state;
    const expiredAtMs = expiryOf(lastWrite, timeline)?.expiredAtMs ?? 0;
    return intent.kind === 'command' && expiredAtMs > wanted.nowMs
      ? { ...intent, notAfterMs: expiredAtMs - 1 }
      : intent;
  }

  /** The position at which the life began that a step wrote to or read. */
  #birthOf(
    within: CatalogContainer,
    name: ItemName,
    {
      stream,
      birth = this.#births.get(stream),
      position,
    }: { readonly stream: string; readonly birth?: number | undefined; readonly position?: number | undefined },
  ): MaybePromise<number> {
    const remembered = (found: number): number => {
      this.#births.set(stream, found);
      return found;
    };
    if (birth !== undefined) return remembered(birth);
    return this.#recordedBirth(within, name, stream).then((recorded) =>
      remembered(recorded ?? position ?? this.#parts.headPosition()),
    );
  }

  /**
   * The position at which a life began. Another writer may have ended the life meanwhile and begun the next one, whose
   * row this then is; the answer is still about the life that was written. Undefined when the life has been purged too.
   */
  async #recordedBirth(
    within: CatalogContainer,
    { id, partitionKey }: ItemName,
    stream: string,
  ): Promise<number | undefined> {
    const row = await this.#parts.rows.find(within.number, partitionKey, id);
    if (row !== undefined && row.life === parseItemStream(stream)!.life) return row.birth;
    const [first] = await this.#parts.ports.log.readStream(stream, { toRevision: 0, withBodies: false });
    return first?.position;
  }

  async #resultOf(
    within: CatalogContainer,
    operation: ItemOperation,
    step: StepHandled,
    shown: Shown & ItemName,
  ): Promise<BatchResult> {
    const { id, partitionKey, json } = shown;
    const item = { id, partitionKey, json, birth: await this.#birthOf(within, nameOf(operation), step) };
    if (step.event === undefined) return { kind: 'read', item: { ...item, ts: shown.ts, etag: shown.etag } };
    const etag = etagOf(step.event.id);
    if (step.position !== undefined) this.#documents.put(step.position, shown.json, etag);
    const ts = Math.floor(step.event.occurredAtMs / 1000);
    return { kind: 'written', item: { ...item, ts, etag }, created: step.revision === 0 };
  }
}

/** Whether a command was given up because the store could not go on. That tells nothing of other writes. */
const isUnable = ({ code }: Refusal): boolean => code === 'busy' || code === 'session-not-available';

/** Returns undefined for a decision that reached the log too late: nothing was recorded, and it must be made again. */
function unlessTooLate(error: unknown): undefined {
  if (error instanceof DecidedTooLate) return undefined;
  throw error;
}

/** The written item under the name that the client uses. */
const shownAs = ({ id, partitionKey }: ItemName, written: Written<ShownItem>): Written<ShownItem> => ({
  ...written,
  resource: { ...written.resource, id, partitionKey },
});

function itemRefusal(refusal: ItemRefusal): Refusal {
  switch (refusal.reason) {
    case 'not-found':
    case 'not-due':
      return new Refusal('item-not-found');
    case 'already-exists':
      return new Refusal('already-exists');
    case 'precondition-failed':
      return new Refusal('precondition-failed');
    case 'unique-key-taken':
      return new Refusal('unique-key-taken');
    case 'invalid-ttl':
      return new Refusal('invalid-ttl', invalidTtlMessage(refusal.value));
    default:
      return unreachable(refusal);
  }
}

/** The message is Cosmos DB's own, because its clients' tests look for it. */
function invalidTtlMessage(value: unknown): string {
  const shown = JSON.stringify(value).slice(0, 100);
  return `The input ttl '${shown}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or '-1' which means never expire.`;
}
