import { describe, expect, it } from 'vitest';
import type { ItemIntent, ItemRequest } from '@epitaph/core/item/handle.ts';
import { handleItems, type ItemsHandled, type ItemsRequest } from '@epitaph/core/item/handle-items.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { ItemWorld } from './item-world.ts';

const START_MS = 1_763_722_800_500;

/** Several items of one container. */
class BatchWorld {
  readonly #one = new ItemWorld(START_MS, [{ fromMs: 0, defaultTtl: 60, version: 1 }]);
  readonly log = this.#one.log;
  readonly vault = this.#one.vault;
  readonly sealer = this.#one.sealer;
  nowMs = START_MS;

  write(item: string, operation: 'create' | 'upsert' | 'replace', document: object = {}): ItemRequest {
    return this.step(item, () => {
      this.#one.nowMs = this.nowMs;
      const command = { ...this.#one.writeCommand(operation, document), id: item };
      return { kind: 'command', command, body: JSON.stringify(document) };
    });
  }

  remove(item: string): ItemRequest {
    return this.step(item, () => ({
      kind: 'command',
      command: { type: 'DeleteItem', nowMs: this.nowMs, timeline: this.#one.timeline },
    }));
  }

  step(item: string, command: ItemRequest['command']): ItemRequest {
    return { prefix: `item-Co1.${item}`, lifeHint: () => 0, command };
  }

  run(steps: readonly ItemRequest[], options: Partial<ItemsRequest> & { readonly log?: EventLog } = {}) {
    const { log = this.log, ...rest } = options;
    this.#one.nowMs = this.nowMs;
    const { vault, sealer } = this;
    return handleItems({ log, vault, sealer }, this.#one.context(), { steps, ...rest });
  }

  typesOf(item: string, life = 0): string[] {
    return this.log.readStream(itemStream(`item-Co1.${item}`, life)).map(({ type }) => type);
  }

  bodyOf(item: string, life = 0): string {
    const last = this.log.readStream(itemStream(`item-Co1.${item}`, life)).at(-1)!;
    const found = this.vault.findKey(Number(last.data['key']), last.stream);
    if (found.status !== 'there') throw new Error(`the key is ${found.status}`);
    return new TextDecoder().decode(this.sealer.open(found.key, last.stream, last.revision, last.body!));
  }
}

const done = (handled: ItemsHandled) => {
  if (handled.kind !== 'done') throw new Error(`not done: ${JSON.stringify(handled)}`);
  return handled;
};

/** The log, with something done just before each of its first appends. */
const raced = (log: EventLog, ...races: (() => Promise<unknown>)[]): EventLog =>
  new Proxy(log, {
    get(target, name) {
      if (name !== 'append') {
        const value: unknown = Reflect.get(target, name);
        return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
      }
      return async (...args: Parameters<EventLog['append']>) => {
        await races.shift()?.();
        return target.append(...args);
      };
    },
  });

const alone = (log: EventLog): EventLog =>
  new Proxy(log, {
    get(target, name) {
      if (name === 'spansStreams') return false;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
    },
  });

describe('commands on several items', () => {
  it('are recorded in one append, each based on the decisions of those before it', async () => {
    const world = new BatchWorld();
    const seen: unknown[] = [];
    const handled = done(
      await world.run([
        world.write('a', 'create', { n: 1 }),
        world.write('b', 'create', { n: 2 }),
        world.step('a', (state, { body }) => {
          seen.push(state.status, body);
          return { kind: 'answer' };
        }),
        world.write('a', 'replace', { n: 3 }),
        world.remove('b'),
        world.write('b', 'create', { n: 4 }),
      ]),
    );
    expect(seen).toEqual(['live', '{"n":1}']);
    expect(world.typesOf('a')).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(world.typesOf('b')).toEqual(['ItemUpserted', 'ItemDeleted']);
    expect(world.typesOf('b', 1)).toEqual(['ItemUpserted']);
    expect([world.bodyOf('a'), world.bodyOf('b', 1)]).toEqual(['{"n":3}', '{"n":4}']);
    expect(handled.position).toBe(world.log.head());
    expect(handled.steps.map(({ life, revision, birth, position }) => [life, revision, birth, position])).toEqual([
      [0, 0, 1, 1],
      [0, 0, 3, 3],
      [0, undefined, 1, undefined],
      [0, 1, 1, undefined],
      [0, 1, 3, undefined],
      [1, 0, 5, 5],
    ]);
    expect(world.vault.contents.keys.size).toBe(3);
  });

  it('are refused together, with the first refusal, and leave neither events nor keys', async () => {
    const world = new BatchWorld();
    const handled = await world.run([
      world.write('a', 'create'),
      world.write('b', 'replace'),
      world.write('c', 'replace'),
    ]);
    expect(handled).toEqual({ kind: 'refused', step: 1, refusal: { reason: 'not-found' } });
    expect(world.log.head()).toBe(0);
    expect(world.vault.contents.keys.size).toBe(0);
  });

  it('that are only tried are decided and not recorded', async () => {
    const world = new BatchWorld();
    expect(await world.run([world.write('a', 'create')], { dryRun: true })).toMatchObject({ kind: 'done' });
    expect(world.log.head()).toBe(0);
    expect(world.vault.contents.keys.size).toBe(0);
  });

  it('stop if one of them was made for another time', async () => {
    const world = new BatchWorld();
    const steps = [world.write('a', 'create'), world.step('b', () => ({ kind: 'again' }))];
    expect(await world.run(steps)).toEqual({ kind: 'again' });
    expect(world.log.head()).toBe(0);
  });

  it('end an overdue life in the same append, and report that before', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create'), world.write('b', 'create')]));
    world.nowMs += 100_000;
    const heads: number[] = [];
    const handled = done(
      await world.run([world.write('a', 'create', { n: 2 }), world.write('c', 'create')], {
        onExpiry: () => heads.push(world.log.head()),
      }),
    );
    expect(heads).toEqual([2]);
    expect(world.typesOf('a')).toEqual(['ItemUpserted', 'ItemExpired']);
    expect(world.typesOf('a', 1)).toEqual(['ItemUpserted']);
    expect(handled.steps[0]).toMatchObject({ life: 1, revision: 0, birth: 4 });
    const correlations = world.log.readAll(2, 10).map(({ correlationId }) => correlationId);
    expect(new Set(correlations).size).toBe(1);
  });

  it('find the current life behind many that have ended', async () => {
    const world = new BatchWorld();
    for (let life = 0; life < 6; life += 1) done(await world.run([world.write('a', 'create'), world.remove('a')]));
    expect(done(await world.run([world.step('a', () => ({ kind: 'answer' }))])).steps[0]).toMatchObject({ life: 6 });
    expect(done(await world.run([world.write('a', 'upsert')])).steps[0]).toMatchObject({ life: 6, revision: 0 });
  });

  it('are all decided again if one item was written meanwhile, and no key is used twice', async () => {
    const world = new BatchWorld();
    const other = () => world.run([world.write('a', 'create', { by: 'other' })]);
    const log = raced(world.log, other);
    const handled = done(
      await world.run([world.write('b', 'create'), world.write('a', 'upsert', { by: 'me' })], { log }),
    );
    expect(world.typesOf('a')).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(world.bodyOf('a')).toBe('{"by":"me"}');
    expect(handled.steps[1]).toMatchObject({ life: 0, revision: 1 });
    const [first, second] = world.log.readStream('item-Co1.a.0').map(({ data }) => data['key']);
    expect(second).toBe(first);
  });

  it('are refused as a whole because of another writer’s change', async () => {
    const world = new BatchWorld();
    const log = raced(world.log, () => world.run([world.write('b', 'create')]));
    const handled = await world.run([world.write('a', 'create'), world.write('b', 'create')], { log });
    expect(handled).toEqual({ kind: 'refused', step: 1, refusal: { reason: 'already-exists' } });
    expect(world.typesOf('a')).toEqual([]);
  });

  it('are not recorded before the keys of all lives that begin are stored', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create')]));
    const createKey = world.vault.createKey.bind(world.vault);
    const stores: (() => void)[] = [];
    world.vault.createKey = (stream) => ({
      ...createKey(stream),
      stored: new Promise<void>((resolve) => stores.push(resolve)),
    });
    const under = world.run([world.write('a', 'upsert'), world.write('b', 'create'), world.write('c', 'create')]);
    for (const stored of [0, 1]) {
      await new Promise((resolve) => setTimeout(resolve, 1));
      expect(stores.length).toBe(2);
      expect(world.log.head()).toBe(1);
      stores[stored]!();
    }
    expect(await under).toMatchObject({ kind: 'done', position: 4 });
  });

  it('are appended not after the earliest of the times until which they may be', async () => {
    const world = new BatchWorld();
    const until = (item: string, notAfterMs?: number): ItemRequest => {
      const { command } = world.write(item, 'upsert');
      return { ...world.step(item, async (...at) => ({ ...(await command(...at)), notAfterMs }) as ItemIntent) };
    };
    const told: (number | undefined)[] = [];
    const log = new Proxy(world.log, {
      get(target, name): unknown {
        if (name !== 'append') return Reflect.get(target, name).bind?.(target) ?? Reflect.get(target, name);
        return (...[appends, options]: Parameters<EventLog['append']>) => {
          told.push(options?.notAfterMs);
          return target.append(appends, options);
        };
      },
    });
    for (const times of [
      [7, 5],
      [5, 7],
      [undefined, 5],
      [5, undefined],
      [undefined, undefined],
    ]) {
      done(await world.run([until('a', times[0]), until('b', times[1])], { log }));
    }
    expect(told).toEqual([5, 5, 5, 5, undefined]);
  });

  it('return the position of each life’s first event in the append, and the birth of each new life', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create')]));
    const steps = [world.write('a', 'upsert'), world.write('a', 'upsert'), world.write('b', 'create')];
    const placesOf = (handled: ItemsHandled) =>
      done(handled).steps.map(({ revision, position, birth }) => ({ revision, position, birth }));
    expect(placesOf(await world.run(steps))).toEqual([
      { revision: 1, position: 2, birth: undefined },
      { revision: 2, position: undefined, birth: undefined },
      { revision: 0, position: 4, birth: 4 },
    ]);
  });

  it('report one failure if append and keys both fail, and leave no unhandled rejection', async () => {
    const world = new BatchWorld();
    const unhandled: unknown[] = [];
    const onUnhandled = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', onUnhandled);
    try {
      const createKey = world.vault.createKey.bind(world.vault);
      world.vault.createKey = (stream) => {
        const stored = Promise.reject(new Error('the disk is full'));
        stored.catch(() => {});
        return { ...createKey(stream), stored };
      };
      const log = raced(world.log, () => Promise.reject(new Error('the log is gone')));
      const creates = [world.write('a', 'create'), world.write('b', 'create')];
      await expect(world.run(creates, { log })).rejects.toThrow('the log is gone');
      await new Promise((resolve) => setTimeout(resolve, 1));
      expect(unhandled).toEqual([]);
    } finally {
      process.off('unhandledRejection', onUnhandled);
    }
  });

  it('give up after many conflicts in a row', async () => {
    const world = new BatchWorld();
    const other = () => world.run([world.write('a', 'upsert')]);
    const log = raced(world.log, ...Array.from({ length: 30 }, () => other));
    await expect(world.run([world.write('a', 'upsert'), world.write('b', 'create')], { log })).rejects.toThrow(
      'lost against other writers',
    );
    expect(world.typesOf('b')).toEqual([]);
  });
});

describe('on a log that appends to one stream at a time', () => {
  it('commands on one life succeed, and those on several are not begun', async () => {
    const world = new BatchWorld();
    const log = alone(world.log);
    const one = [world.write('a', 'create'), world.write('a', 'replace', { n: 2 })];
    expect(await world.run(one, { log })).toMatchObject({ kind: 'done' });
    const two = [world.write('a', 'upsert'), world.write('b', 'create')];
    expect(await world.run(two, { log })).toEqual({ kind: 'spans-streams' });
    expect(world.log.head()).toBe(2);
  });

  it('an expiry that can’t be recorded, because another program has written to the life’s stream, is reported as such', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create')]));
    world.nowMs += 100_000;
    const conflict = { kind: 'conflict', stream: 'item-Co1.a.0', expectedRevision: 0, actualRevision: 1 };
    const log = new Proxy(alone(world.log), {
      get: (target, name): unknown => (name === 'append' ? () => Promise.resolve(conflict) : Reflect.get(target, name)),
    });
    await expect(world.run([world.write('a', 'create')], { log })).rejects.toThrow(
      "item-Co1.a.0 ends at revision 1 with an event that this store has not written or can't read",
    );
  });

  it('a life that was written to before its expiry was appended is decided on again, and no life begins beside it', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create')]));
    world.nowMs += 100_000;
    const inTime = async () => {
      world.nowMs -= 100_000;
      done(await world.run([world.write('a', 'upsert')]));
      world.nowMs += 100_000;
    };
    done(await world.run([world.write('a', 'create')], { log: raced(alone(world.log), inTime) }));
    expect(world.typesOf('a')).toEqual(['ItemUpserted', 'ItemUpserted', 'ItemExpired']);
    expect(world.typesOf('a', 1)).toEqual(['ItemUpserted']);
  });

  it('an expiry is recorded by itself, even if the rest fails', async () => {
    const world = new BatchWorld();
    done(await world.run([world.write('a', 'create')]));
    world.nowMs += 100_000;
    const log = alone(world.log);
    expect(await world.run([world.write('a', 'create')], { log })).toMatchObject({
      kind: 'done',
      steps: [{ life: 1, revision: 0 }],
    });
    expect(world.typesOf('a')).toEqual(['ItemUpserted', 'ItemExpired']);
    world.nowMs += 100_000;
    const refused = await world.run([world.write('a', 'replace')], { log });
    expect(refused).toMatchObject({ kind: 'refused', step: 0, endedAt: world.log.head() });
    expect(world.typesOf('a', 1)).toEqual(['ItemUpserted', 'ItemExpired']);
    done(await world.run([world.write('a', 'create')]));
    world.nowMs += 100_000;
    const two = await world.run([world.write('a', 'create'), world.write('b', 'create')], { log });
    expect(two).toEqual({ kind: 'spans-streams', endedAt: world.log.head() });
  });
});
