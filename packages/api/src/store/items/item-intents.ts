import { systemClocks } from '@epitaph/core/clock.ts';
import { partitionKeyDeleteAfter } from '@epitaph/core/container/partition-key-deletes.ts';
import { recordedByMs } from '@epitaph/core/container/recorded-by.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { unreachable } from '@epitaph/core/invariant.ts';
import type { ItemCommand, OnLife, RecoverItem, WriteItem } from '@epitaph/core/item/commands.ts';
import { preconditionsHold } from '@epitaph/core/item/decide.ts';
import type { ItemIntent, ItemRequest } from '@epitaph/core/item/handle.ts';
import type { ItemName } from '@epitaph/core/item/pseudonym.ts';
import { lifeTail } from '@epitaph/core/item/read-life.ts';
import { itemStream, parseItemStream } from '@epitaph/core/item/stream-name.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import { readOwnTtl } from '@epitaph/core/ttl/ttl-value.ts';
import { isExpired, type ItemTimes, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { Pace } from '@epitaph/core/turn.ts';
import { uniqueValuesOf } from '@epitaph/core/unique-key/values.ts';
import type { CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { type Json, jsonText, matches, parseCondition, parseJson, planQuery, type QueryPlan } from '@epitaph/query';
import type { Precondition, UpsertPrecondition } from '../api/common.ts';
import type { BatchOperation, Document, ItemToWrite, PatchRequest } from '../api/items-api.ts';
import { MAX_DOCUMENT_BYTES } from '../document-limits.ts';
import type { StoreParts } from '../parts.ts';
import { planOptionsOf } from '../plan-options.ts';
import { IsSlow, SWIFT_MS } from '../slow-lane.ts';
import type { Documents } from './documents.ts';
import { contentOf } from './item-lives.ts';
import { applyPatch } from './patch.ts';
import { systemPropertiesOf } from './system-properties.ts';

/**
 * From this size on, only a few documents are patched at once: a patch holds its document in memory in several forms.
 */
const LARGE_BYTES = 64 * 1024;
/** Milliseconds that the condition of a patch may take. A batch may have a hundred of them. */
const MAX_CONDITION_MS = 250;

/** A document as an operation leaves or finds it. `ts` and `etag` are set only where they were read from the log. */
export interface Shown {
  readonly json: string;
  readonly ts: number;
  readonly etag: string;
}

/** Recovers an item, as a step of a batch. */
interface RecoverOperation extends ItemName {
  readonly kind: 'recover';
  readonly fromLife: number;
  readonly asLife: number | undefined;
  readonly precondition?: undefined;
  /** Called with the number of the new life and its ttl. */
  readonly onBegin: (life: number, ttl: number | null) => void;
}

export type ItemOperation = BatchOperation | RecoverOperation;

/** Whether a command writes content. */
export const isWriteCommand = (command: ItemCommand): command is WriteItem | RecoverItem =>
  command.type === 'WriteItem' || command.type === 'RecoverItem';

/** The command that a request leads to, once its container and the time are known. */
export type IntentOf = (within: CatalogContainer, nowMs: number) => ItemRequest['command'];

/** Intents of operations on items that need more than the request itself: documents, rows, names, or the time. */
export class ItemIntents {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  /** Shared by the conditions of all patches, and by all patches of large documents. */
  readonly #pace = new Pace();

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
  }

  of(operation: ItemOperation, show: (item: Shown) => void, onDeleted: (bytes: number) => void): IntentOf {
    const { precondition } = operation;
    switch (operation.kind) {
      case 'write':
        return shown(writing(operation.operation, operation.item, precondition), show);
      case 'patch':
        return shown(this.patching(operation, operation.patch, precondition), show);
      case 'delete':
        return deleting(operation.partitionKey, precondition, onDeleted);
      case 'read':
        return this.#reading(operation.partitionKey, show);
      case 'recover':
        return shown(this.#recovering(operation), show);
      default:
        return unreachable(operation);
    }
  }

  #recovering({ id, partitionKey, fromLife, asLife, onBegin }: RecoverOperation): IntentOf {
    return (within, nowMs) =>
      async (state, { stream, life, last }) => {
        const facts = factsFor(within, nowMs, partitionKey, last);
        const command = { type: 'RecoverItem', id, partitionKey, fromLife, ...facts } as const;
        // For a life that has begun, the decider answers without the content.
        if (state.status !== 'none') return { kind: 'command', command: { ...command, ttl: readOwnTtl({}), bytes: 0 } };
        if (asLife !== undefined && asLife !== life) throw new Refusal('already-exists');
        const source = itemStream(parseItemStream(stream)!.prefix, fromLife);
        const { log, nodes, clock } = this.#parts.ports;
        // A node that erases the item looks for recovered copies right after the erasure, and again after the policy
        // delay.
        const notAfterMs = recordedByMs(clock.now(), nodes?.policyDelayMs);
        const write = await contentOf(log, within.state, { events: await lifeTail(log, source) });
        const json = write && (await this.#documents.openEnded(write));
        if (json === undefined) throw new Refusal('content-erased');
        const ttl = readOwnTtl(JSON.parse(json) as Document);
        onBegin(life, ttl.kind === 'value' ? ttl.seconds : null);
        const bytes = Buffer.byteLength(json);
        return { kind: 'command', body: json, notAfterMs, command: { ...command, ttl, bytes } };
      };
  }

  /** Reads an item as it is at this step of a batch. */
  #reading(partitionKey: string, show: (item: Shown) => void): IntentOf {
    return (within, nowMs) =>
      async (state, { last, body }) => {
        if (state.status === 'none') throw new Refusal('item-not-found');
        if (state.status === 'live') {
          if (isGone(state.lastWrite, factsFor(within, nowMs, partitionKey, last))) {
            this.#parts.expirySeen(within.number, nowMs);
            throw new Refusal('item-not-found');
          }
          const json = body ?? (await this.#documents.openAt(last!));
          show({ json, ts: state.lastWrite.ts, etag: state.etag });
        }
        return { kind: 'answer' };
      };
  }

  /**
   * Whether a patch's condition is true for a document. The conditions of many patches yield to other work, as queries
   * do.
   */
  async #holds(condition: QueryPlan, document: Json, nowMs: number): Promise<boolean> {
    const { slowLane, ports } = this.#parts;
    const { monotonicMs } = ports;
    await this.#pace.step();
    try {
      const tooLong = (): Error => new IsSlow();
      return matches(condition, document, { nowMs, monotonicMs, maxDocumentMs: SWIFT_MS, tooLong });
    } catch (error) {
      if (!(error instanceof IsSlow)) throw error;
    }
    await slowLane.begin();
    // Measured by the thread's own time: the condition must not be blamed when other work had the machine.
    const limits = { monotonicMs: systemClocks.workedMs, maxDocumentMs: MAX_CONDITION_MS };
    return slowLane.work(() => matches(condition, document, { nowMs, ...limits }));
  }

  patching(
    { id, partitionKey }: ItemName,
    patch: PatchRequest,
    precondition: Precondition | undefined,
    beforeLarge: ((bytes: number) => MaybePromise<void>) | undefined = patch.beforeLarge,
  ): IntentOf {
    return (within, nowMs) =>
      async (state, { last, body }) => {
        // The condition is planned when it is this operation's turn, so that the batch knows which condition is at
        // fault.
        const condition =
          patch.condition === undefined
            ? undefined
            : planQuery(parseCondition(patch.condition), [], {
                ...planOptionsOf(within.state.definition),
                needsParameters: true,
              });
        const facts = { ...factsFor(within, nowMs, partitionKey, last), ...precondition };
        let json = '{}';
        // A precondition that fails must be reported even if the patch does not fit the present document. For a life
        // that can't be patched, the decider refuses whatever the body is.
        if (state.status === 'live' && !isGone(state.lastWrite, facts) && preconditionsHold(state.etag, facts)) {
          const { bytes: bytesNow } = state.lastWrite;
          if (bytesNow >= LARGE_BYTES) {
            await beforeLarge?.(bytesNow);
            await this.#pace.step();
          }
          const current = parseJson(body ?? (await this.#documents.openAt(last!))) as Document;
          if (condition !== undefined) {
            const row = await this.#parts.rows.find(within.number, partitionKey, id);
            const stamp = { birth: row?.birth ?? last?.position ?? 0, ts: state.lastWrite.ts, etag: state.etag };
            const system = systemPropertiesOf(within.state, stamp);
            const document = { ...(current as { [name: string]: Json }), ...system };
            if (!(await this.#holds(condition, document, nowMs))) {
              throw new Refusal('patch-condition-not-met');
            }
          }
          json = jsonText(applyPatch(current, patch.operations));
        }
        const bytes = Buffer.byteLength(json);
        if (bytes > MAX_DOCUMENT_BYTES) throw new Refusal('too-large');
        const ttl = readOwnTtl(JSON.parse(json) as Document);
        return {
          kind: 'command',
          body: json,
          command: { type: 'WriteItem', operation: 'patch', id, partitionKey, ttl, bytes, ...facts },
        };
      };
  }

  /** The same intent. Its write also names the values of the container's unique keys in its document. */
  namingUniqueKeys({ state: { rid, definition } }: CatalogContainer, intent: ItemRequest['command']) {
    return (async (state, life) => {
      const wanted = await intent(state, life);
      if (wanted.kind !== 'command' || !isWriteCommand(wanted.command)) return wanted;
      const { partitionKey } = wanted.command;
      const uniqueKeys: string[] = [];
      for (const value of uniqueValuesOf(definition, parseJson(wanted.body ?? '{}') as Document)) {
        uniqueKeys.push(await this.#parts.ports.naming.uniqueKeyStream(rid, partitionKey, value));
      }
      return { ...wanted, command: { ...wanted.command, uniqueKeys } };
    }) satisfies ItemRequest['command'];
  }
}

export function writing(
  operation: 'create' | 'upsert' | 'replace',
  { id, partitionKey, document, json }: ItemToWrite,
  precondition: UpsertPrecondition | undefined,
): IntentOf {
  const bytes = Buffer.byteLength(json);
  const ttl = readOwnTtl(document);
  return (within, nowMs) =>
    (_state, { last }) => {
      if (bytes > MAX_DOCUMENT_BYTES) throw new Refusal('too-large');
      const facts = factsFor(within, nowMs, partitionKey, last);
      const command = {
        type: 'WriteItem',
        operation,
        id,
        partitionKey,
        ttl,
        bytes,
        ...facts,
        ...precondition,
      } as const;
      return { kind: 'command', body: json, command };
    };
}

/**
 * @param onSize called with the size of the document that the delete would remove
 */
export function deleting(
  partitionKey: string,
  precondition: Precondition | undefined,
  onSize: (bytes: number) => void,
): IntentOf {
  return (within, nowMs) =>
    (state, { last }) => {
      if (state.status === 'live') onSize(state.lastWrite.bytes);
      return {
        kind: 'command',
        command: { type: 'DeleteItem', ...factsFor(within, nowMs, partitionKey, last), ...precondition },
      };
    };
}

/**
 * What the decider must know besides the life's own stream: the time, the policies, and whether the life ended because
 * its partition key was deleted.
 */
export function factsFor(
  { state }: CatalogContainer,
  nowMs: number,
  partitionKey: string,
  last: RecordedEvent | undefined,
): OnLife {
  const { timeline } = state;
  const left = last && partitionKeyDeleteAfter(state, partitionKey, last.position);
  if (left === undefined) return { nowMs, timeline };
  const { atMs, by } = left;
  return { nowMs, timeline, leftWithPartitionKey: { atMs, by, position: last!.position } };
}

/** Whether a life has ended, even if its own stream does not say so yet. */
export const isGone = (times: ItemTimes, { nowMs, timeline, leftWithPartitionKey }: OnLife): boolean =>
  leftWithPartitionKey !== undefined || isExpired(times, watermarks(timeline, nowMs));

export const nameOf = (operation: ItemOperation): ItemName => (operation.kind === 'write' ? operation.item : operation);

/** The operation with the item's name replaced. */
export const named = (operation: ItemOperation, { id, partitionKey }: ItemName): ItemOperation =>
  operation.kind === 'write'
    ? { ...operation, item: { ...operation.item, id, partitionKey } }
    : { ...operation, id, partitionKey };

/** The same intent, which also shows the document that its write is decided with. */
export function shown(intentOf: IntentOf, show: (item: Shown) => void): IntentOf {
  return (within, nowMs) => {
    const intent = intentOf(within, nowMs);
    const told = (wanted: ItemIntent): ItemIntent => {
      if (wanted.kind === 'command') show({ json: wanted.body ?? '', ts: 0, etag: '' });
      return wanted;
    };
    return (state, life) => {
      const wanted = intent(state, life);
      return wanted instanceof Promise ? wanted.then(told) : told(wanted);
    };
  };
}
