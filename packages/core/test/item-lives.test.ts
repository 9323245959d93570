import { describe, expect, it } from 'vitest';
import { LifeUnreadable } from '@epitaph/core/item/handle.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { ItemWorld, PREFIX } from './item-world.ts';

const START_MS = 1_763_722_800_500;
const DEADLINE_MS = 1_763_722_860_000;
const world = () => new ItemWorld(START_MS, [{ fromMs: 0, defaultTtl: 60, version: 1 }]);

describe('a life', () => {
  it('begins with a create, and every later write seals with the same key', async () => {
    const items = world();
    expect(await items.write('create', { ttl: 30 })).toMatchObject({
      life: 0,
      firstRevision: 0,
      firstPosition: 1,
      position: 1,
    });
    items.nowMs += 1_000;
    expect(await items.write('replace', { ttl: 40 })).toMatchObject({ life: 0, firstRevision: 1, position: 2 });
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(await items.body(0)).toBe('{"ttl":40}');
    const keys = items.log.readStream(itemStream(PREFIX, 0)).map((event) => event.data['key']);
    expect(new Set(keys).size).toBe(1);
    expect(keys[0]).toBeGreaterThan(0);
    expect(items.vault.contents.keys.size).toBe(1);
  });

  it('is not recorded before its key is stored, and not if that fails', async () => {
    const items = world();
    const createKey = items.vault.createKey.bind(items.vault);
    let store = () => {};
    const under = new Promise<void>((resolve) => {
      store = resolve;
    });
    items.vault.createKey = (stream) => ({ ...createKey(stream), stored: under });
    const write = items.write('create');
    await new Promise((resolve) => setTimeout(resolve, 1));
    expect(items.log.head()).toBe(0);
    store();
    expect(await write).toMatchObject({ life: 0, position: 1 });

    items.nowMs += 100_000;
    items.vault.createKey = (stream) => ({ ...createKey(stream), stored: Promise.reject(new Error('disk full')) });
    await expect(items.write('create')).rejects.toThrow('disk full');
    expect(items.types(1)).toEqual([]);
  });

  it('can be created without a look at the log if it is probably new, and never beside an existing life in any state', async () => {
    const items = world();
    expect(await items.createUnseen({ ttl: 30 })).toMatchObject({ life: 0, firstRevision: 0, position: 1 });
    const refused = { kind: 'refused', refusal: { reason: 'already-exists' } };
    expect(await items.createUnseen()).toMatchObject({ decision: refused, recorded: [] });
    items.nowMs = START_MS + 100_000;
    expect(await items.createUnseen()).toMatchObject({ decision: { kind: 'accepted' }, life: 1, firstRevision: 0 });
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
    await items.remove();
    await items.purge(0, 'expired');
    expect(await items.createUnseen()).toMatchObject({ life: 2, firstRevision: 0 });
    expect(items.types(0)).toEqual(['ItemExpired', 'ItemPurged']);
    expect(items.types(1)).toEqual(['ItemUpserted', 'ItemDeleted']);
    expect(items.types(2)).toEqual(['ItemUpserted']);
  });

  it('a refused command records nothing and creates no key', async () => {
    const items = world();
    expect((await items.write('replace')).decision).toEqual({ kind: 'refused', refusal: { reason: 'not-found' } });
    expect((await items.remove()).decision).toEqual({ kind: 'refused', refusal: { reason: 'not-found' } });
    expect(await items.handle(() => ({ kind: 'answer' }))).toMatchObject({
      decision: { kind: 'answered' },
      recorded: [],
    });
    expect(items.log.head()).toBe(0);
    expect(items.vault.contents.keys.size).toBe(0);
  });

  it('that is overdue gets its end recorded by a create, which then begins the next life', async () => {
    const items = world();
    await items.write('create', { ttl: 30 });
    items.nowMs = START_MS + 100_000;
    expect(await items.write('create')).toMatchObject({ decision: { kind: 'accepted' }, life: 1, firstRevision: 0 });
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
    expect(items.types(1)).toEqual(['ItemUpserted']);
    expect(items.log.readLast(itemStream(PREFIX, 0))).toMatchObject({
      occurredAtMs: START_MS + 100_000,
      data: { expiredAtMs: DEADLINE_MS - 30_000, rule: 'item-ttl', ttl: 30, byPolicyStart: false },
    });
  });

  it('that is overdue gets its end recorded also by a command that is then refused', async () => {
    for (const command of ['replace', 'patch', 'delete'] as const) {
      const items = world();
      await items.write('create');
      items.nowMs = DEADLINE_MS;
      const handled = await (command === 'delete' ? items.remove() : items.write(command));
      expect(handled).toMatchObject({ decision: { kind: 'refused', refusal: { reason: 'not-found' } }, life: 1 });
      expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
      expect(handled.position, 'whoever waits for what it recorded').toBe(items.log.head());
      expect(items.lives()).toBe(1);
    }
  });

  it('is still the same life one millisecond before its deadline', async () => {
    const items = world();
    await items.write('create');
    items.nowMs = DEADLINE_MS - 1;
    expect((await items.write('create')).decision).toEqual({ kind: 'refused', refusal: { reason: 'already-exists' } });
    expect(await items.write('upsert')).toMatchObject({ life: 0, firstRevision: 1 });
  });

  it('that expired stays expired, recorded or not, when the TTL is turned off or made longer', async () => {
    for (const defaultTtl of [null, -1, 1_000_000]) {
      const items = world();
      await items.write('create');
      items.nowMs = DEADLINE_MS + 1;
      items.timeline = [...items.timeline, { fromMs: items.nowMs, defaultTtl, version: 2 }];
      items.nowMs += 5;
      expect((await items.write('replace')).decision).toEqual({ kind: 'refused', refusal: { reason: 'not-found' } });
      expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
      expect(items.log.readLast(itemStream(PREFIX, 0))!.data).toMatchObject({
        expiredAtMs: DEADLINE_MS,
        policyVersion: 1,
      });
    }
  });

  it('that was deleted is followed by the next one', async () => {
    const items = world();
    await items.write('create');
    await items.remove();
    expect((await items.remove()).decision).toEqual({ kind: 'refused', refusal: { reason: 'not-found' } });
    expect(await items.write('upsert')).toMatchObject({ life: 1, firstRevision: 0 });
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemDeleted']);
  });

  it('that was purged and truncated is followed by the next one, and never begun again', async () => {
    const items = world();
    await items.write('create');
    await items.remove();
    await items.purge(0, 'deleted');
    expect(items.types(0)).toEqual(['ItemDeleted', 'ItemPurged']);
    expect(await items.write('create')).toMatchObject({ life: 1, firstRevision: 0 });
    expect(items.types(0)).toEqual(['ItemDeleted', 'ItemPurged']);
  });

  it('whose key the vault lacks is damaged: a write reports that and does not hide it', async () => {
    const items = world();
    await items.write('create');
    items.vault.contents.keys.clear();
    await expect(items.write('upsert')).rejects.toThrow(LifeUnreadable);
    await expect(items.write('upsert')).rejects.toThrow('the vault does not know its key');
    expect(items.types(0)).toEqual(['ItemUpserted']);
  });
});

describe('racing writers', () => {
  it('of two creators one wins, for a new item and for an overdue one', async () => {
    const items = world();
    for (const life of [0, 1]) {
      const results = await Promise.all([items.write('create', { ttl: 7 }), items.write('create', { ttl: 8 })]);
      const kinds = results.map((result) => result.decision.kind).toSorted();
      expect(kinds).toEqual(['accepted', 'refused']);
      expect(results.every((result) => result.life === life)).toBe(true);
      expect(items.types(life)).toEqual(['ItemUpserted']);
      items.nowMs += 100_000;
    }
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
  });

  it('of many creators one wins, and the end of the overdue life is recorded once', async () => {
    const items = world();
    await items.write('create');
    items.nowMs += 100_000;
    const results = await Promise.all(Array.from({ length: 15 }, () => items.write('create')));
    expect(results.filter((result) => result.decision.kind === 'accepted').length).toBe(1);
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
    expect(items.types(1)).toEqual(['ItemUpserted']);
    expect(items.lives()).toBe(2);
  });

  it('concurrent upserts all succeed, one after another, each sealed for its own revision', async () => {
    const items = world();
    const results = await Promise.all(
      Array.from({ length: 10 }, (_, index) => items.write('upsert', { ttl: index + 1 })),
    );
    expect(results.map((result) => result.firstRevision).toSorted((a, b) => a - b)).toEqual([...Array(10).keys()]);
    expect(items.types(0).length).toBe(10);
    const last = results.find((result) => result.firstRevision === 9)!;
    expect(await items.body(0)).toBe(JSON.stringify({ ttl: results.indexOf(last) + 1 }));
    const keys = items.log.readStream(itemStream(PREFIX, 0)).map((event) => event.data['key']);
    expect(new Set(keys).size, 'whoever lost the first place took the key of the life').toBe(1);
  });

  it('a patch that lost is applied again to the state that won', async () => {
    const items = world();
    await items.write('create', { ttl: 100 });
    const patch = (amount: number) =>
      items.handle(async (_state, { life, last }) => {
        expect(last?.stream).toBe(itemStream(PREFIX, 0));
        const current = JSON.parse(await items.body(life)) as { readonly ttl: number };
        const document = { ttl: current.ttl + amount };
        return { kind: 'command', command: items.writeCommand('patch', document), body: JSON.stringify(document) };
      });
    const results = await Promise.all([patch(1), patch(10), patch(100)]);
    expect(results.every((result) => result.decision.kind === 'accepted')).toBe(true);
    expect(await items.body(0)).toBe('{"ttl":211}');
    expect(items.types(0).length).toBe(4);
  });

  it('a concurrent delete and expiry leave one end', async () => {
    const items = world();
    await items.write('create');
    items.nowMs = DEADLINE_MS;
    const [expiry, removal] = await Promise.all([items.recordExpiry(0), items.remove()]);
    expect(expiry.decision.kind === 'accepted' || expiry.decision.kind === 'refused').toBe(true);
    expect(removal.decision).toEqual({ kind: 'refused', refusal: { reason: 'not-found' } });
    expect(items.types(0)).toEqual(['ItemUpserted', 'ItemExpired']);
  });
});

describe('finding the current life', () => {
  const withLives = async (count: number) => {
    const items = world();
    for (let life = 0; life < count; life++) {
      expect(await items.write('create', {}, Math.max(0, life - 1))).toMatchObject({ life });
      await items.remove(life);
    }
    return items;
  };

  it('works with any hint, right or wrong, and never leaves a gap', async () => {
    for (const ended of [0, 1, 2, 3, 4, 7, 8, 9, 17]) {
      for (const hint of [0, 1, 2, ended - 1, ended, ended + 1, ended + 5, 1_000_000]) {
        if (hint < 0) continue;
        const items = await withLives(ended);
        expect(await items.write('upsert', {}, hint), `${ended} lives, hint ${hint}`).toMatchObject({ life: ended });
        expect(items.lives()).toBe(ended + 1);
        // While that life lives, every hint leads to it.
        expect(await items.write('upsert', {}, hint)).toMatchObject({ life: ended, firstRevision: 1 });
      }
    }
  });

  it('reads a number of streams that grows with the logarithm of the lives, and a few with a good hint', async () => {
    const items = await withLives(300);
    let looks = 0;
    const log: EventLog = new Proxy(items.log, {
      get(target, name) {
        if (name === 'readLast') looks += 1;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      },
    });
    const counted = Object.assign(Object.create(items) as ItemWorld, { log });
    expect(await counted.write('create', {}, 0)).toMatchObject({ life: 300 });
    expect(looks).toBeLessThan(30);
    looks = 0;
    expect(await counted.write('upsert', {}, 300)).toMatchObject({ life: 300, firstRevision: 1 });
    // Life 0, the hinted one, the absence of one after it, and the state to decide on.
    expect(looks).toBeLessThanOrEqual(4);
  });
});
