import { describe, expect, it, onTestFinished } from 'vitest';
import type { ChangeFeedRequest } from '@epitaph/api/store/api/change-feed-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { describeError } from '@epitaph/api/cosmos/errors.ts';
import { CALLER, DamagedFolder, PK } from './damaged-folder.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';

/*
 * One part of a container is damaged, and its change feed is read. Everything readable is shown. For the rest the reader gets an error that
 * says how to continue.
 */

const damage = {
  'a write that was replaced': ['log.db', cut('LIKE \'["a"%\' AND revision = 0')],
  'the last write of an item': ['log.db', cut('LIKE \'["b"%\'')],
  'the only write of an item that was deleted': ['log.db', cut('LIKE \'["c"%\' AND revision = 0')],
  'the only write of an item that left with its partition key': ['log.db', cut('LIKE \'["g"%\'')],
  'the end of an item': ['log.db', cut('LIKE \'["c"%\' AND revision = 1')],
  'the purge of an item': ['log.db', cut('LIKE \'["e"%\' AND revision = 2')],
  'the key of an item': ['vault.db', 'DELETE FROM keys WHERE id = 2'],
  'the content of an item': ['log.db', `UPDATE events SET body = substr(body, 1, 20) WHERE data LIKE '["b"%'`],
} as const;

function cut(which: string): string {
  return `UPDATE events SET data = substr(data, 1, 12) WHERE data ${which}`;
}

interface Read {
  /** The changes shown, in order; `!` for one that can't be shown. */
  readonly shown: readonly string[];
  readonly errors: readonly unknown[];
}

/** Reads to the end. If a change can't be shown, it continues as the error says. */
async function readThrough(store: Store, request: Pick<ChangeFeedRequest, 'mode' | 'scope'>): Promise<Read> {
  const container = store.container('d', 'c');
  const shown: string[] = [];
  const errors: unknown[] = [];
  let position = 0;
  for (let pages = 0; pages < 20; pages++) {
    try {
      const start = { kind: 'after', position } as const;
      const page = await store.readChangeFeed(container, { ...request, start, maxItemCount: 10 });
      for (const change of page.changes) {
        const { id } = change.kind === 'written' ? (JSON.parse(change.item.json) as { readonly id: string }) : change;
        shown.push(change.kind === 'written' ? id : `-${id}`);
      }
      if (page.reachedEnd) break;
      ({ position } = page);
    } catch (error) {
      errors.push(error);
      shown.push('!');
      position = Number(/continue after "(\d+)"/.exec((error as Error).message)?.[1]);
    }
  }
  return { shown, errors };
}

async function damaged(name: keyof typeof damage): Promise<Store> {
  const folder = new DamagedFolder('damaged-feed');
  let store = await folder.open();
  await store.createDatabase(CALLER, 'd');
  const feed = { ...DEFINITION, changeFeedPolicy: { retentionDuration: 60 } };
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', feed, null);
  const write = (id: string, kind: 'create' | 'upsert' = 'create', pk = 'p') =>
    store.writeItem(CALLER, container, kind, itemToWrite({ id, pk, ttl: -1 }));
  for (const id of ['a', 'b', 'c', 'd', 'e']) await write(id);
  await write('a', 'upsert');
  for (const id of ['c', 'e']) await store.deleteItem(CALLER, container, id, PK);
  await store.eraseItem(CALLER, container, 'e', PK, { reason: 'asked', requestedBy: 'e' });
  await write('g', 'create', 'r');
  await store.deletePartitionKey(CALLER, container, '["r"]');
  await write('f', 'create', 'q');
  await store.close();
  const [file, sql] = damage[name];
  expect(folder.change(file, (database) => database.prepare(sql).run().changes)).toBe(1);
  store = await folder.open();
  onTestFinished(() => store.close());
  return store;
}

const ALL = {};
const OF_Q = { partitionKey: '["q"]' };

describe('the latest version of each item', () => {
  it.each([
    ['a write that was replaced', ['b', 'd', 'a', 'f']],
    ['the last write of an item', ['b', 'd', 'a', 'f']],
    ['the only write of an item that was deleted', ['b', 'd', 'a', 'f']],
    ['the only write of an item that left with its partition key', ['b', 'd', 'a', 'f']],
    ['the end of an item', ['b', 'd', 'a', 'f']],
    ['the purge of an item', ['b', 'd', 'a', 'f']],
    ['the key of an item', ['!', 'd', 'a', 'f']],
    ['the content of an item', ['!', 'd', 'a', 'f']],
  ] as const)('is shown as far as possible if %s is damaged', async (name, expected) => {
    const store = await damaged(name);
    const { shown } = await readThrough(store, { mode: 'latest', scope: ALL });
    expect(shown).toEqual(expected);
  });
});

describe('every change', () => {
  it.each([
    ['a write that was replaced', ['!', 'b', 'c', 'd', 'a', '-c', '-e', 'g', 'f']],
    ['the last write of an item', ['a', '!', 'c', 'd', 'a', '-c', '-e', 'g', 'f']],
    ['the only write of an item that was deleted', ['a', 'b', '!', 'd', 'a', '!', '-e', 'g', 'f']],
    ['the only write of an item that left with its partition key', ['a', 'b', 'c', 'd', 'a', '-c', '-e', '!', 'f']],
    ['the end of an item', ['a', 'b', 'c', 'd', 'a', '!', '-e', 'g', 'f']],
    ['the purge of an item', ['a', 'b', 'c', 'd', 'a', '-c', '-e', 'g', 'f']],
    ['the key of an item', ['a', '!', 'c', 'd', 'a', '-c', '-e', 'g', 'f']],
    ['the content of an item', ['a', '!', 'c', 'd', 'a', '-c', '-e', 'g', 'f']],
  ] as const)('is shown, or reported as unreadable, if %s is damaged', async (name, expected) => {
    const store = await damaged(name);
    const { shown, errors } = await readThrough(store, { mode: 'all-versions', scope: ALL });
    expect(shown).toEqual(expected);
    for (const error of errors) {
      const { shape, message } = describeError(error)!;
      expect(shape.status).toBe(500);
      expect(message).toMatch(/^The change at \d+ can not be shown/);
    }
  });

  it.each(Object.keys(damage) as (keyof typeof damage)[])(
    'of a partition key is complete if %s of another one is damaged, which is reported only if nothing tells whose it is',
    async (name) => {
      const store = await damaged(name);
      const { shown } = await readThrough(store, { mode: 'all-versions', scope: OF_Q });
      const isAnybodys = name === 'the only write of an item that left with its partition key';
      expect(shown).toEqual(isAnybodys ? ['!', 'f'] : ['f']);
    },
  );
});
