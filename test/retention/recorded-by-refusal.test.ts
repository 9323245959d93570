import { afterAll, expect, it } from 'vitest';
import { Store } from '@epitaph/api/store/store.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { ManualClock } from '@epitaph/core/clock.ts';
import { turn } from '@epitaph/core/turn.ts';
import { openSqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

const folder = newFolder('recorded-by-refusal');
afterAll(() => removeFolder(folder));

/** A log that tells its subscribers some turns of the event loop later, as on a busy machine. */
function tellingLate(log: EventLog): EventLog {
  const subscribe: EventLog['subscribe'] = (after, listener, leniency) => {
    let ended = false;
    const onEvents: typeof listener.onEvents = async (events) => {
      for (let turns = 0; turns < 20; turns++) await turn();
      if (!ended) await listener.onEvents(events);
    };
    const onCaughtUp = (position: number) => listener.onCaughtUp?.(position);
    const onError = (error: unknown) => listener.onError?.(error);
    const subscription = log.subscribe(after, { onEvents, onCaughtUp, onError }, leniency);
    const unsubscribe = () => {
      ended = true;
      return subscription.unsubscribe();
    };
    return { unsubscribe };
  };
  return new Proxy(log, {
    get(target, name) {
      if (name === 'subscribe') return subscribe;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

it('whoever is refused for what has expired is answered when feeds show the expiry that his command recorded', async () => {
  const storage = await openSqliteStorage({ folder, clock: 'manual', writers: 'inline', durable: false });
  const store = await Store.open({
    log: tellingLate(storage.log),
    vault: storage.vault,
    sealer: storage.sealer,
    naming: storage.naming,
    readModels: storage.readModels,
    clock: new ManualClock(Date.UTC(2026, 10, 21, 10), storage.highWaterMark),
    closePorts: () => storage.close(),
    policyGraceSeconds: 0,
    automaticPurge: false,
  });
  try {
    await store.createDatabase(CALLER, 'd');
    const definition = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 60 } };
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, 60);
    const document = { id: 'a', pk: 'p' };
    const json = JSON.stringify(document);
    const { position } = await store.writeItem(CALLER, container, 'create', {
      id: 'a',
      partitionKey: PK,
      document,
      json,
    });
    await store.advanceClock(CALLER, 60_000);
    await expect(store.deleteItem(CALLER, container, 'a', PK)).rejects.toMatchObject({ code: 'item-not-found' });
    const { changes } = await store.readChangeFeed(container, {
      mode: 'all-versions',
      start: { kind: 'after', position },
      scope: {},
      maxItemCount: 10,
    });
    expect(changes).toMatchObject([{ kind: 'deleted', id: 'a', expired: true }]);
  } finally {
    await store.close();
  }
});
