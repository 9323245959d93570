import { afterEach, describe, expect, it } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const WRITER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

type Actor = 'hold' | 'erasure';

/** Lets two actors take one step at a time, in a given order. */
class Turns {
  #waiting = new Map<Actor, () => void>();
  #done = new Set<Actor>();
  #news: () => void = () => {};
  enabled = false;
  /** The steps in the order in which they were taken. */
  readonly taken: string[] = [];

  async step<Result>(actor: Actor, name: string, work: () => Promise<Result>): Promise<Result> {
    if (!this.enabled || this.#done.has(actor)) return work();
    await new Promise<void>((go) => {
      this.#waiting.set(actor, go);
      this.#news();
    });
    try {
      return await work();
    } finally {
      this.taken.push(name);
      this.#news();
    }
  }

  ended(actor: Actor): void {
    this.#done.add(actor);
    this.#news();
  }

  /**
   * Takes the steps in the given order. Skips an actor that is done, and a hold that waits for an erasure in progress. At the end all
   * continue freely.
   */
  async run(order: readonly Actor[]): Promise<void> {
    for (const actor of order) {
      const waitsForErasure = () =>
        actor === 'hold' &&
        this.taken.includes('place the hold') &&
        this.taken.includes('destroy the key') &&
        !this.taken.includes('record the erasure');
      await this.#until(() => this.#waiting.has(actor) || this.#done.has(actor) || waitsForErasure());
      const go = this.#waiting.get(actor);
      if (go === undefined) continue;
      this.#waiting.delete(actor);
      const before = this.taken.length;
      go();
      await this.#until(() => this.taken.length > before);
    }
    for (const actor of ['erasure', 'hold'] as const) {
      while (!this.#done.has(actor)) {
        await this.#until(() => this.#waiting.has(actor) || this.#done.has(actor));
        const go = this.#waiting.get(actor);
        this.#waiting.delete(actor);
        go?.();
      }
    }
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => (this.#news = resolve));
  }
}

/** Every order of this many steps of a hold and this many of an erasure. */
function orders(holds: number, erasures: number): Actor[][] {
  if (holds === 0 && erasures === 0) return [[]];
  return [
    ...(holds === 0 ? [] : orders(holds - 1, erasures).map((rest): Actor[] => ['hold', ...rest])),
    ...(erasures === 0 ? [] : orders(holds, erasures - 1).map((rest): Actor[] => ['erasure', ...rest])),
  ];
}

let close: (() => Promise<void>) | undefined;
afterEach(() => close?.());

/** A store with one item, whose vault and log wait for their turns. */
async function openWorld(defaultTtl: number | null) {
  const folder = newFolder('interleavings');
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  const turns = new Turns();
  const log = new Proxy(storage.log, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (name === 'append') {
        return (...args: Parameters<EventLog['append']>) => {
          const type = args[0][0]?.events[0]?.type;
          const append = () => target.append(...args);
          if (type === 'HoldPlaced') return turns.step('hold', 'record the hold', append);
          return type === 'ItemPurged' ? turns.step('erasure', 'record the erasure', append) : append();
        };
      }
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  const vault = new Proxy(storage.vault, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (name === 'placeHold') {
        return (...args: Parameters<KeyVault['placeHold']>) =>
          turns.step('hold', 'place the hold', () => target.placeHold(...args));
      }
      if (name === 'destroyKeys') {
        return (requests: Parameters<KeyVault['destroyKeys']>[0]) =>
          requests.length === 0
            ? target.destroyKeys(requests)
            : turns.step('erasure', 'destroy the key', () => target.destroyKeys(requests));
      }
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  const store = await Store.open({
    log,
    vault,
    sealer: storage.sealer,
    naming: storage.naming,
    readModels: storage.readModels,
    clock: new ManualClock(START_MS, storage.highWaterMark),
    closePorts: () => storage.close(),
    policyGraceSeconds: 0,
    automaticPurge: false,
  });
  close = async () => {
    await store.close();
    removeFolder(folder);
  };
  await store.createDatabase(WRITER, 'd');
  const { resource: container } = await store.createContainer(WRITER, 'd', 'c', DEFINITION, defaultTtl);
  await store.writeItem(WRITER, container, 'create', itemToWrite({ id: 'a', pk: 'p' }));
  await store.advanceClock(61_000);
  return { store, container, turns };
}

const SCOPES = {
  items: { kind: 'items', items: [{ id: 'a', partitionKey: '["p"]' }] },
  partition: { kind: 'partition-key', partitionKey: '["p"]' },
  container: { kind: 'container' },
} as const;

describe.each(['purge', 'demand'] as const)('a hold that races with an erasure by %s', (by) => {
  // The steps of the hold: into the vault, into the log, into the vault once more. The steps of the erasure: the key, then the record.
  it.each(orders(3, 2).map((order) => ({ order, shown: order.map((actor) => actor[0]).join('') })))(
    'wins if the vault had it first, and says so if it came too late ($shown)',
    async ({ order }) => {
      for (const scope of Object.values(SCOPES)) {
        const { store, container, turns } = await openWorld(by === 'purge' ? 60 : -1);
        turns.enabled = true;
        const placing = store
          .placeHold(WRITER, container, 'h', { scope, reason: 'case 7' })
          .finally(() => turns.ended('hold'));
        const erasing =
          by === 'purge'
            ? store.runPurge()
            : store
                .eraseItem(WRITER, container, 'a', '["p"]', { reason: 'r', requestedBy: 'b' })
                .catch((error: unknown) => error);
        void erasing.finally(() => turns.ended('erasure'));
        await turns.run(order);
        const { hold } = await placing;
        await erasing;
        const destroyedAt = turns.taken.indexOf('destroy the key');
        const heldFirst = destroyedAt < 0 || turns.taken.indexOf('place the hold') < destroyedAt;
        const history = (await store.history(container, 'a', '["p"]')).map(({ type }) => type);
        expect(history.includes('ItemPurged')).toBe(!heldFirst);
        expect(hold.tooLateFor).toBe(heldFirst ? 0 : 1);
        if (heldFirst && by === 'demand') {
          expect(await store.readItem(container, 'a', '["p"]')).toMatchObject({ id: 'a' });
        }
        expect((await store.fsck()).problems).toEqual([]);
        await close?.();
        close = undefined;
      }
    },
  );
});
