import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { WriteItem } from '@epitaph/core/item/commands.ts';
import type { PurgeCause, WriteOperation } from '@epitaph/core/item/events.ts';
import {
  foldItem,
  handleItem,
  handleLife,
  type ItemHandled,
  type ItemIntent,
  type ItemRequest,
} from '@epitaph/core/item/handle.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import { readItemEvent } from '@epitaph/core/item/upcast.ts';
import { lifeFacts, type LifeFacts } from '@epitaph/core/history/life.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { ledgerOf } from '@epitaph/core/testing/ledger.ts';
import type { PolicyTimeline } from '@epitaph/core/ttl/policy-timeline.ts';
import { readOwnTtl } from '@epitaph/core/ttl/ttl-value.ts';

export const PREFIX = 'item-Co1.hash';
export const ID = 'cart 1';
export const PARTITION_KEY = '["tenant"]';

/** One item of a container, over the memory log. Tests set the time and the policies. */
export class ItemWorld {
  readonly log = new MemoryEventLog();
  readonly vault = new MemoryKeyVault();
  readonly sealer = new ToyBodySealer();
  timeline: PolicyTimeline;
  nowMs: number;

  constructor(nowMs: number, timeline: PolicyTimeline) {
    this.nowMs = nowMs;
    this.timeline = timeline;
  }

  context(actor = 'key:primary'): CommandContext {
    return { nowMs: this.nowMs, actor, correlationId: crypto.randomUUID(), newId: () => crypto.randomUUID() };
  }

  write(operation: WriteOperation, document: { readonly ttl?: unknown } = {}, lifeHint = 0): Promise<ItemHandled> {
    return this.handle(
      () => ({ kind: 'command', command: this.writeCommand(operation, document), body: JSON.stringify(document) }),
      lifeHint,
    );
  }

  writeCommand(operation: WriteOperation, document: { readonly ttl?: unknown } = {}): WriteItem {
    return {
      type: 'WriteItem',
      operation,
      id: ID,
      partitionKey: PARTITION_KEY,
      ttl: readOwnTtl(document),
      bytes: JSON.stringify(document).length,
      nowMs: this.nowMs,
      timeline: this.timeline,
    };
  }

  remove(lifeHint = 0): Promise<ItemHandled> {
    return this.handle(
      () => ({ kind: 'command', command: { type: 'DeleteItem', nowMs: this.nowMs, timeline: this.timeline } }),
      lifeHint,
    );
  }

  /** A create that assumes that there is no item. */
  createUnseen(document: { readonly ttl?: unknown } = {}): Promise<ItemHandled> {
    const body = JSON.stringify(document);
    const command = () => ({ kind: 'command', command: this.writeCommand('create', document), body }) as const;
    return handleItem(this, this.context(), { prefix: PREFIX, lifeHint: () => 0, isLikelyNew: true, command });
  }

  handle(command: ItemRequest['command'], lifeHint = 0): Promise<ItemHandled> {
    return handleItem(this, this.context(), { prefix: PREFIX, lifeHint: () => lifeHint, command });
  }

  onLife(life: number, intent: ItemIntent, actor = 'system:purge'): Promise<ItemHandled> {
    return handleLife(this, this.context(actor), itemStream(PREFIX, life), life, () => intent);
  }

  recordExpiry(life: number): Promise<ItemHandled> {
    return this.onLife(life, {
      kind: 'command',
      command: { type: 'RecordExpiry', nowMs: this.nowMs, timeline: this.timeline },
    });
  }

  /** Purges a life as the purge does: key, record, truncation. */
  async purge(life: number, cause: PurgeCause): Promise<ItemHandled> {
    const stream = itemStream(PREFIX, life);
    const entries = this.log.readStream(stream).flatMap((recorded) => {
      const event = readItemEvent(recorded);
      if (event.type !== 'ItemUpserted') return [];
      const { ttl, operation } = event.data;
      return [
        {
          atMs: recorded.occurredAtMs,
          ttl,
          operation,
          eventId: recorded.id,
          digest: this.sealer.digest(recorded.body!),
        },
      ];
    });
    const first = readItemEvent(this.log.readStream(stream)[0]!);
    const key = first.type === 'ItemUpserted' ? first.data.key : 0;
    const nowMs = this.nowMs;
    await this.vault.destroyKeys([{ keyId: key, stream, lastWriteTs: 0, lastEventAtMs: 0, nowMs }]);
    const handled = await this.onLife(life, {
      kind: 'command',
      command: {
        type: 'RecordPurge',
        id: ID,
        partitionKey: PARTITION_KEY,
        cause,
        key,
        recoverableUntilMs: null,
        ledger: ledgerOf(entries),
      },
    });
    const firstFact = this.log.readStream(stream).find((recorded) => recorded.type !== 'ItemUpserted');
    await this.log.truncateStream(stream, firstFact!.revision);
    return handled;
  }

  /** The types of the events in a life's stream. */
  types(life: number): string[] {
    return this.log.readStream(itemStream(PREFIX, life)).map((event) => event.type);
  }

  /** The number of lives. */
  lives(): number {
    let life = 0;
    while (this.log.readLast(itemStream(PREFIX, life)) !== undefined) life += 1;
    return life;
  }

  facts(): LifeFacts[] {
    return Array.from({ length: this.lives() }, (_, life) =>
      lifeFacts(life, this.log.readStream(itemStream(PREFIX, life))),
    );
  }

  /** The plain body of a life's last event. */
  async body(life: number): Promise<string> {
    const stream = itemStream(PREFIX, life);
    const last = this.log.readStream(stream).at(-1)!;
    const state = foldItem([last]);
    if (state.status !== 'live') throw new Error(`life ${life} is ${state.status}`);
    const found = this.vault.findKey(state.lastWrite.key, stream);
    if (found.status !== 'there') throw new Error(`the key is ${found.status}`);
    return new TextDecoder().decode(this.sealer.open(found.key, stream, last.revision, last.body!));
  }
}
