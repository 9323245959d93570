import { describe, expect, it } from 'vitest';
import type { ItemRequest } from '@epitaph/core/item/handle.ts';
import { handleItems, type ItemsHandled } from '@epitaph/core/item/handle-items.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { isPermanentFact } from '@epitaph/core/proof/leaf.ts';
import { givenUniqueKey } from '@epitaph/core/testing/given-when-then.ts';
import { parseUniqueKeyStream, uniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import { ItemWorld } from './item-world.ts';

const takenBy = (holder: string) => ({ type: 'UniqueKeyTaken', data: { holder } }) as const;
const released = { type: 'UniqueKeyReleased', data: {} } as const;
const take = (by: string, isKept = false) => ({ type: 'TakeUniqueKey', by, isKept }) as const;

describe("a unique key's value", () => {
  it('is taken if nobody has it, or if its holder has released it', () => {
    givenUniqueKey().when(take('a')).then(takenBy('a'));
    givenUniqueKey(takenBy('a')).when(take('b')).then(takenBy('b'));
    givenUniqueKey(takenBy('a'), released).when(take('b')).then(takenBy('b'));
  });
  it('is refused to others while its holder has it', () => {
    givenUniqueKey(takenBy('a')).when(take('b', true)).thenRefused('unique-key-taken');
    givenUniqueKey(takenBy('b'), takenBy('a')).when(take('b', true)).thenRefused('unique-key-taken');
  });
  it('can be taken again by the holder that released it', () => {
    givenUniqueKey(takenBy('a')).when(take('a')).then(takenBy('a'));
  });
  it('can only be released by its last holder', () => {
    const release = { type: 'ReleaseUniqueKey', of: 'a' } as const;
    givenUniqueKey(takenBy('a')).when(release).then(released);
    givenUniqueKey(takenBy('a'), takenBy('b')).when(release).then();
    givenUniqueKey(takenBy('a'), released).when(release).then();
    givenUniqueKey().when(release).then();
  });
  it('has a stream of its container that is not a permanent fact', () => {
    const stream = uniqueKeyStream('Co1', 'hash');
    expect(parseUniqueKeyStream(stream)).toBe('Co1');
    expect(parseUniqueKeyStream('item-Co1.hash.0')).toBeUndefined();
    expect(isPermanentFact({ stream, type: 'UniqueKeyTaken' })).toBe(false);
    expect(isPermanentFact({ stream: 'container-Co1', type: 'ContainerCreated' })).toBe(true);
  });
});

const START_MS = 1_763_722_800_500;

/** Items of one partition key with a unique key. Each write names the value. */
class UniqueWorld {
  readonly #one = new ItemWorld(START_MS, [{ fromMs: 0, defaultTtl: 60, version: 1 }]);
  readonly log = this.#one.log;
  nowMs = START_MS;
  expiriesTold = 0;

  write(item: string, value: string, operation: 'create' | 'upsert' = 'create'): ItemRequest {
    return this.#step(item, () => {
      this.#one.nowMs = this.nowMs;
      const uniqueKeys = [uniqueKeyStream('Co1', value)];
      return { kind: 'command', command: { ...this.#one.writeCommand(operation), id: item, uniqueKeys }, body: '{}' };
    });
  }

  remove(item: string): ItemRequest {
    return this.#step(item, () => ({
      kind: 'command',
      command: { type: 'DeleteItem', nowMs: this.nowMs, timeline: this.#one.timeline },
    }));
  }

  #step(item: string, command: ItemRequest['command']): ItemRequest {
    return { prefix: `item-Co1.${item}`, lifeHint: () => 0, command };
  }

  run(steps: readonly ItemRequest[], log: EventLog = this.log): Promise<ItemsHandled> {
    this.#one.nowMs = this.nowMs;
    const { vault, sealer, timeline } = this.#one;
    return handleItems({ log, vault, sealer }, this.#one.context(), {
      steps,
      holderFacts: () => ({ nowMs: this.nowMs, timeline }),
      onExpiry: () => (this.expiriesTold += 1),
    });
  }

  async done(...steps: readonly ItemRequest[]): Promise<void> {
    expect(await this.run(steps)).toMatchObject({ kind: 'done' });
  }

  async refused(step: number, ...steps: readonly ItemRequest[]): Promise<void> {
    const head = this.log.head();
    expect(await this.run(steps)).toEqual({ kind: 'refused', step, refusal: { reason: 'unique-key-taken' } });
    expect(this.log.head()).toBe(head);
  }

  types(item: string, life = 0): string[] {
    return this.log.readStream(itemStream(`item-Co1.${item}`, life)).map(({ type }) => type);
  }

  holders(value: string): unknown[] {
    return this.log.readStream(uniqueKeyStream('Co1', value)).map(({ data }) => data['holder']);
  }
}

/** The log, with something done just before its first append. */
const raced = (log: EventLog, race: () => Promise<unknown>): EventLog => {
  let isFirst = true;
  return new Proxy(log, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (name === 'append') {
        return async (...args: Parameters<EventLog['append']>) => {
          if (isFirst) {
            isFirst = false;
            await race();
          }
          return target.append(...args);
        };
      }
      return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
    },
  });
};

describe('writes with unique keys', () => {
  it('take their values in the same append, once for as long as they have them', async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    expect(world.log.head()).toBe(2);
    await world.done(world.write('a', 'red', 'upsert'));
    expect(world.log.head()).toBe(3);
    expect(world.holders('red')).toEqual(['item-Co1.a.0']);
  });

  it("can’t take another item's value before that item has released it", async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    await world.refused(0, world.write('b', 'red'));
    await world.done(world.write('a', 'blue', 'upsert'));
    await world.done(world.write('b', 'red'));
    await world.refused(0, world.write('a', 'red', 'upsert'));
    expect(world.holders('red')).toEqual(['item-Co1.a.0', 'item-Co1.b.0']);
  });

  it('can take a value back that nobody has taken since', async () => {
    const world = new UniqueWorld();
    for (const value of ['red', 'blue', 'red']) await world.done(world.write('a', value, 'upsert'));
    await world.refused(0, world.write('b', 'red'));
    await world.done(world.write('b', 'blue'));
  });

  it('find the value of a deleted item free, also for the item’s own next life', async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    await world.done(world.remove('a'));
    await world.done(world.write('a', 'red'));
    expect(world.holders('red')).toEqual(['item-Co1.a.0', 'item-Co1.a.1']);
    await world.refused(0, world.write('b', 'red'));
  });

  it('record the end of an overdue holder in the append that takes its value', async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    world.nowMs = START_MS + 59_000;
    await world.refused(0, world.write('b', 'red'));
    expect(world.expiriesTold).toBe(0);
    world.nowMs = START_MS + 60_000;
    await world.done(world.write('b', 'red'));
    expect(world.expiriesTold).toBe(1);
    expect(world.types('a')).toEqual(['ItemUpserted', 'ItemExpired']);
    const [expired, written] = world.log.readAll(2, 10);
    expect(expired!.correlationId).toBe(written!.correlationId);
    await world.done(world.write('a', 'blue'));
    expect(world.types('a', 1)).toEqual(['ItemUpserted']);
  });

  it('in one append see what earlier ones have taken and released', async () => {
    const world = new UniqueWorld();
    await world.refused(1, world.write('a', 'red'), world.write('b', 'red'));
    await world.done(world.write('a', 'red'), world.remove('a'), world.write('b', 'red'));
    await world.done(world.write('b', 'blue', 'upsert'), world.write('c', 'red'), world.write('a', 'green'));
    expect(world.holders('red')).toEqual(['item-Co1.b.0', 'item-Co1.c.0']);
    // Two items exchange their values by way of a third value.
    await world.done(
      world.write('b', 'aside', 'upsert'),
      world.write('c', 'blue', 'upsert'),
      world.write('b', 'red', 'upsert'),
    );
    await world.refused(0, world.write('d', 'red'));
    await world.refused(0, world.write('d', 'blue'));
    await world.done(world.write('d', 'aside'));
  });

  it('can take the value of an overdue holder that is written in the same append', async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    world.nowMs += 100_000;
    await world.done(world.write('b', 'red'), world.write('a', 'blue', 'upsert'));
    expect([world.types('a'), world.types('a', 1)]).toEqual([['ItemUpserted', 'ItemExpired'], ['ItemUpserted']]);
  });

  it.each([
    ['the same new value', 'red', false],
    ['the value that this one is about to take from its former holder', 'old', true],
  ])('that lose a race for %s are decided again, at the time of the new decision', async (_what, value, isFormer) => {
    const world = new UniqueWorld();
    if (isFormer) {
      await world.done(world.write('former', value));
      await world.done(world.write('former', 'other', 'upsert'));
    }
    const rival = () => world.done(world.write(isFormer ? 'former' : 'a', value, 'upsert'));
    expect(await world.run([world.write('b', value)], raced(world.log, rival))).toEqual({ kind: 'again' });
    await world.refused(0, world.write('b', value));
  });

  it('that lose a race against a write of an overdue holder leave the holder with its new state', async () => {
    const world = new UniqueWorld();
    await world.done(world.write('a', 'red'));
    const early = world.write('a', 'red', 'upsert');
    const log = raced(world.log, async () => {
      world.nowMs = START_MS;
      await world.done(early);
    });
    world.nowMs = START_MS + 60_000;
    expect(await world.run([world.write('b', 'red')], log)).toEqual({ kind: 'again' });
    expect(world.types('a')).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(world.types('b')).toEqual([]);
  });
});
