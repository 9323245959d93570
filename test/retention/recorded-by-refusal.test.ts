import { expect, it } from 'vitest';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { turn } from '@epitaph/core/turn.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';

/** Makes a log notify its subscribers some turns of the event loop later, as on a busy machine. */
function tellLate(log: EventLog): void {
  const subscribe = log.subscribe.bind(log);
  log.subscribe = (after, listener, leniency) => {
    let ended = false;
    const onEvents: typeof listener.onEvents = async (events) => {
      for (let turns = 0; turns < 20; turns++) await turn();
      if (!ended) await listener.onEvents(events);
    };
    const subscription = subscribe(after, { ...listener, onEvents }, leniency);
    const unsubscribe = () => {
      ended = true;
      return subscription.unsubscribe();
    };
    return { unsubscribe };
  };
}

const written = (id: string) => itemToWrite({ id, pk: 'p' });

it.each([
  ['a command', ''],
  ['a batch on a log that takes one stream at a time', 'batch'],
])(
  '%s that is refused for an expired item is answered once feeds show the expiry that it recorded',
  async (_, what) => {
    const { store } = await openInlineStore('recorded-by-refusal', ({ log }) => {
      tellLate(log);
      if (what === 'batch') Object.defineProperty(log, 'spansStreams', { value: false });
    });
    await store.createDatabase(CALLER, 'd');
    const definition = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 60 } };
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', definition, 60);
    const { position } = await store.writeItem(CALLER, container, 'create', written('a'));
    await store.advanceClock(60_000);
    if (what === 'batch') {
      const replace = { kind: 'write', operation: 'replace', item: written('a') } as const;
      expect(await store.batchItems(CALLER, container, [replace])).toMatchObject({
        refusal: { code: 'item-not-found' },
      });
    } else {
      await expect(store.deleteItem(CALLER, container, 'a', PK)).rejects.toMatchObject({ code: 'item-not-found' });
    }
    const { changes } = await store.readChangeFeed(container, {
      mode: 'all-versions',
      start: { kind: 'after', position },
      scope: {},
      maxItemCount: 10,
    });
    expect(changes).toMatchObject([{ kind: 'deleted', id: 'a', expired: true }]);
  },
);
