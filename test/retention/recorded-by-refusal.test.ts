import { expect, it } from 'vitest';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
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

it('what a refusal or the reads of a batch tell of others’ writes, every reader sees from then on', async () => {
  const { store } = await openInlineStore('told-by-refusal', ({ log }) => tellLate(log));
  await store.createDatabase(CALLER, 'd');
  const definition = { ...DEFINITION, uniqueKeyPolicy: { uniqueKeys: [{ paths: ['/n'] }] } };
  const { resource: plain } = await store.createContainer(CALLER, 'd', 'plain', DEFINITION, null);
  const { resource: unique } = await store.createContainer(CALLER, 'd', 'unique', definition, null);
  const shown = (container = plain) =>
    store.readItem(container, 'a', PK).then(
      ({ json }) => JSON.parse(json) as unknown,
      () => 'gone',
    );
  const first = { id: 'a', pk: 'p', n: 1 };
  const second = { id: 'a', pk: 'p', n: 2 };
  const read = { kind: 'read', id: 'a', partitionKey: PK } as const;
  const create = { kind: 'write', operation: 'create', item: itemToWrite(first) } as const;

  // Each command is decided when what came before it is recorded, and is answered before its client knows that.
  const created = store.writeItem(CALLER, plain, 'create', itemToWrite(first));
  await expect(store.writeItem(CALLER, plain, 'create', itemToWrite(first))).rejects.toMatchObject({
    code: 'already-exists',
  });
  expect(await shown()).toEqual(first);
  const { etag } = (await created).resource;

  const replaced = store.writeItem(CALLER, plain, 'replace', itemToWrite(second));
  await expect(store.writeItem(CALLER, plain, 'replace', itemToWrite(first), { ifMatch: etag })).rejects.toMatchObject({
    code: 'precondition-failed',
  });
  expect(await shown()).toEqual(second);
  await replaced;

  const replacedAgain = store.writeItem(CALLER, plain, 'replace', itemToWrite(first));
  expect(await store.batchItems(CALLER, plain, [read])).toMatchObject({
    results: [{ item: { json: JSON.stringify(first) } }],
  });
  expect(await shown()).toEqual(first);
  await replacedAgain;

  const deleted = store.deleteItem(CALLER, plain, 'a', PK);
  await expect(store.deleteItem(CALLER, plain, 'a', PK)).rejects.toMatchObject({ code: 'item-not-found' });
  expect(await shown()).toBe('gone');
  await deleted;

  const createdAgain = store.writeItem(CALLER, plain, 'create', itemToWrite(first));
  expect(await store.batchItems(CALLER, plain, [create])).toMatchObject({ refusal: { code: 'already-exists' } });
  expect(await shown()).toEqual(first);
  await createdAgain;

  const holder = store.writeItem(CALLER, unique, 'create', itemToWrite(first));
  const other = itemToWrite({ ...first, id: 'b' });
  await expect(store.writeItem(CALLER, unique, 'create', other)).rejects.toMatchObject({ code: 'unique-key-taken' });
  expect(await shown(unique)).toEqual(first);
  await holder;
});

it('a strong read finds an item that another node wrote just before its deadline, while the read waited', async () => {
  let beforeHead: (() => Promise<unknown>) | undefined;
  const { store, storage, clock } = await openInlineStore('read-at-deadline', ({ log }) => {
    tellLate(log);
    const head = log.head.bind(log);
    log.head = async () => {
      const position = await head();
      await beforeHead?.();
      return position;
    };
  });
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 60);
  await store.writeItem(CALLER, container, 'create', written('a'));
  clock.advance(59_900);
  // This node gives up its write, so it knows nothing of it. The other node records the same.
  const append = storage.log.append.bind(storage.log);
  let recording: Parameters<EventLog['append']> | undefined;
  storage.log.append = async (...args) => {
    recording = args;
    throw new StorageUnavailable('the log', new Error('cut off'));
  };
  await expect(store.writeItem(CALLER, container, 'replace', written('a'))).rejects.toThrow();
  storage.log.append = append;
  beforeHead = async () => {
    beforeHead = undefined;
    await append(...recording!);
    clock.advance(200);
  };
  const { position } = await store.readItem(container, 'a', PK, 'head');
  expect(position).toBe(await storage.log.head());
});
