import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { GenerationCache } from '@epitaph/core/generation-cache.ts';
import { invariant, unreachable } from '@epitaph/core/invariant.ts';
import type { ItemRefusal } from '@epitaph/core/item/decide.ts';
import { etagOf } from '@epitaph/core/item/events.ts';
import { handleItem, type ItemHandled, type ItemRequest } from '@epitaph/core/item/handle.ts';
import { isExpired, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { readOwnTtl } from '@epitaph/core/ttl/ttl-value.ts';
import type { CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { matches, parseCondition, planQuery, type Json } from '@epitaph/query';
import { applyPatch } from '../cosmos/patch.ts';
import { systemPropertiesOf } from '../cosmos/system-properties.ts';
import type { Documents } from './documents.ts';
import type { StoreParts } from './parts.ts';
import type { Caller, Continuation, Document, PatchRequest, Precondition, ShownItem, Written } from './store-api.ts';

/** Bytes of a document at most; source: Cosmos DB, "Service quotas" (2 MB an item). */
export const MAX_DOCUMENT_BYTES = 2 * 1024 * 1024;

/** Reads and writes of single items, and the feed of them. */
export class Items {
  readonly #parts: StoreParts;
  readonly #documents: Documents;
  /** Births of lives written to lately: an answer to a write shows it, and the log's last event does not. */
  readonly #births = new GenerationCache<string, number>(40_000);

  constructor(parts: StoreParts, documents: Documents) {
    this.#parts = parts;
    this.#documents = documents;
  }

  async write(
    caller: Caller,
    container: ContainerState,
    operation: 'create' | 'upsert' | 'replace',
    item: { readonly id: string; readonly partitionKey: string; readonly document: Document; readonly json: string },
    precondition: Precondition = {},
  ): Promise<Written<ShownItem>> {
    const { id, partitionKey, json } = item;
    const bytes = Buffer.byteLength(json);
    if (bytes > MAX_DOCUMENT_BYTES) throw new Refusal('too-large');
    const ttl = readOwnTtl(item.document);
    return this.#change(caller, container, id, partitionKey, (within, nowMs) => () => ({
      kind: 'command',
      body: json,
      command: {
        type: 'WriteItem',
        operation,
        id,
        partitionKey,
        ttl,
        bytes,
        nowMs,
        timeline: within.state.timeline,
        ...precondition,
      },
    }));
  }

  async patch(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    patch: PatchRequest,
    precondition: Precondition = {},
  ): Promise<Written<ShownItem>> {
    const condition = patch.condition === undefined ? undefined : planQuery(parseCondition(patch.condition), []);
    return this.#change(caller, container, id, partitionKey, (within, nowMs) => async (state, { last }) => {
      const facts = { nowMs, timeline: within.state.timeline, ...precondition };
      let json = '{}';
      // On a life that can't be patched the decider says no whatever the body is.
      if (
        state.status === 'live' &&
        last !== undefined &&
        !isExpired(state.lastWrite, watermarks(within.state.timeline, nowMs))
      ) {
        const current = JSON.parse(await this.#documents.openAt(last.position)) as Document;
        if (condition !== undefined) {
          const row = await this.#parts.readModel.findItem(within.number, partitionKey, id);
          const stamp = { birth: row?.birth ?? last.position, ts: state.lastWrite.ts, etag: state.etag };
          const system = systemPropertiesOf(within.state, stamp);
          if (!matches(condition, { ...(current as { [name: string]: Json }), ...system }, { nowMs })) {
            throw new Refusal('precondition-failed', 'The condition of the patch does not hold.');
          }
        }
        json = JSON.stringify(applyPatch(current, patch.operations));
      }
      const bytes = Buffer.byteLength(json);
      if (bytes > MAX_DOCUMENT_BYTES) throw new Refusal('too-large');
      const ttl = readOwnTtl(JSON.parse(json) as Document);
      return {
        kind: 'command',
        body: json,
        command: { type: 'WriteItem', operation: 'patch', id, partitionKey, ttl, bytes, ...facts },
      };
    });
  }

  async delete(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    precondition: Precondition = {},
  ): Promise<{ position: number }> {
    const { handled } = await this.#handle(caller, container, id, partitionKey, (within, nowMs) => () => ({
      kind: 'command',
      command: { type: 'DeleteItem', nowMs, timeline: within.state.timeline, ...precondition },
    }));
    return { position: handled.position! };
  }

  async read(container: ContainerState, id: string, partitionKey: string, atLeast?: number): Promise<ShownItem> {
    await this.#parts.seen(atLeast);
    const { within, marks } = await this.#parts.moment(container);
    const row = await this.#parts.readModel.findItem(within.number, partitionKey, id);
    if (row === undefined || isExpired(row, marks)) throw new Refusal('item-not-found');
    const shown = await this.#documents.show(row);
    if (shown === undefined) throw new Refusal('item-not-found');
    return shown;
  }

  async list(
    container: ContainerState,
    page: {
      readonly partitionKey?: string | undefined;
      readonly maxItemCount: number;
      readonly continuation?: Continuation | undefined;
      readonly atLeast?: number | undefined;
    },
  ): Promise<{ readonly items: readonly ShownItem[]; readonly continuation?: Continuation }> {
    await this.#parts.seen(page.atLeast);
    const { within, marks } = await this.#parts.moment(container);
    const { continuation } = page;
    const rows = await this.#parts.readModel.scanItems(within.number, {
      partitionKey: page.partitionKey,
      afterBirth: continuation?.kind === 'after' ? continuation.birth : 0,
      limit: page.maxItemCount,
      marks,
    });
    const items: ShownItem[] = [];
    for (const row of rows) {
      const shown = await this.#documents.show(row);
      if (shown !== undefined) items.push(shown);
    }
    const last = rows.at(-1);
    return rows.length < page.maxItemCount || last === undefined
      ? { items }
      : { items, continuation: { kind: 'after', birth: last.birth } };
  }

  /** Carries a write through and shows what stands then. */
  async #change(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    intentOf: (within: CatalogContainer, nowMs: number) => ItemRequest['command'],
  ): Promise<Written<ShownItem>> {
    let json = '';
    const { handled, within } = await this.#handle(caller, container, id, partitionKey, (at, nowMs) => {
      const intent = intentOf(at, nowMs);
      return async (state, life) => {
        const wanted = await intent(state, life);
        if (wanted.kind === 'command') json = wanted.body ?? '';
        return wanted;
      };
    });
    const written = handled.recorded[0]!;
    const created = handled.firstRevision === 0;
    const birth =
      (created ? handled.firstPosition : this.#births.get(handled.stream)) ??
      (await this.#parts.readModel.findItem(within.number, partitionKey, id))?.birth ??
      // Another writer may have ended this life meanwhile; the answer then is about what was written all the same.
      handled.position!;
    this.#births.set(handled.stream, birth);
    const etag = etagOf(written.id);
    this.#documents.put(handled.position!, json, etag);
    const ts = Math.floor(written.occurredAtMs / 1000);
    return { resource: { id, partitionKey, json, birth, ts, etag }, position: handled.position!, created };
  }

  async #handle(
    caller: Caller,
    container: ContainerState,
    id: string,
    partitionKey: string,
    intentOf: (within: CatalogContainer, nowMs: number) => ItemRequest['command'],
  ): Promise<{ handled: ItemHandled; within: CatalogContainer }> {
    await this.#parts.current(container);
    const prefix = await this.#parts.ports.naming.itemStreamPrefix(container.rid, partitionKey, id);
    const { promise: done, resolve: end } = Promise.withResolvers<void>();
    try {
      const outcome = await this.#parts.itemOrder.run(prefix, async () => {
        for (;;) {
          // The policy and the time belong together: both are taken when it is this command's turn.
          const within = await this.#parts.current(container);
          const context = this.#parts.command(caller);
          const intent = intentOf(within, context.nowMs);
          const handled = await handleItem(this.#parts.ports, context, {
            prefix,
            lifeHint: async () => (await this.#parts.readModel.findItem(within.number, partitionKey, id))?.life ?? 0,
            command: (state, life) =>
              state.status === 'live' && !this.#parts.writing(within, state.lastWrite, context.nowMs, done)
                ? { kind: 'answer' }
                : intent(state, life),
          });
          if (handled.life > 0 && handled.firstRevision === 0) this.#parts.expirySeen(within.number, context.nowMs);
          // The deadline came before the decision: it is made again, by the time that it is now.
          if (handled.decision.kind !== 'answered') return { handled, within };
        }
      });
      const { decision, position } = outcome.handled;
      if (decision.kind === 'refused') throw itemRefusal(decision.refusal);
      invariant(position !== undefined, 'an accepted command records something');
      await this.#parts.projected(position);
      return outcome;
    } finally {
      end();
    }
  }
}

function itemRefusal(refusal: ItemRefusal): Refusal {
  switch (refusal.reason) {
    case 'not-found':
    case 'not-due':
      return new Refusal('item-not-found');
    case 'already-exists':
      return new Refusal('already-exists');
    case 'precondition-failed':
      return new Refusal('precondition-failed');
    case 'invalid-ttl':
      return new Refusal('invalid-ttl', invalidTtlMessage(refusal.value));
    default:
      return unreachable(refusal);
  }
}

/** Cosmos DB's own words, which its clients' tests look for. */
function invalidTtlMessage(value: unknown): string {
  const shown = JSON.stringify(value).slice(0, 100);
  const error = `The input ttl '${shown}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or '-1' which means never expire.`;
  return `Message: ${JSON.stringify({ Errors: [error] })}`;
}
