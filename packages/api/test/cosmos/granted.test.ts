import { beforeAll, describe, expect, test } from 'vitest';
import { checkTargetGranted, grantedStore } from '@epitaph/api/cosmos/granted.ts';
import type { BatchOperation, FoundItem } from '@epitaph/api/store/api/items-api.ts';
import type { Grant } from '@epitaph/api/store/api/users-api.ts';
import type { StoreApi } from '@epitaph/api/store/store-api.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { effectivePartitionKey, rangeOfKey } from '@epitaph/core/partition-key/effective-partition-key.ts';
import type { Scope } from '@epitaph/core/partition-key/scope.ts';
import { call, keyHeader, testServer } from './support/client.ts';
import { fakeStore } from './support/fake-store.ts';

const ANN = '["ann"]';
const BOB = '["bob"]';
const caller = { actor: 'token:p', correlationId: '' };
const definition = {
  partitionKey: { paths: ['/customer'], kind: 'Hash' as const, version: 2 as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};
const patch = { operations: [] };
const shown = (id: string, partitionKey: string): FoundItem => ({
  id,
  partitionKey,
  json: '{}',
  birth: 1,
  position: 1,
  ts: 1,
  etag: '"e"',
});
const byBirth = [shown('o1', ANN), shown('o2', ANN), shown('o1', BOB)];

/** The calls that reached the inner store. Their answers are empty. */
const reached: unknown[][] = [];
const store: StoreApi = Object.assign(fakeStore(), {
  itemByBirth: async (_container: ContainerState, birth: number, isWanted = (_name: FoundItem) => true) =>
    [byBirth[birth]].find((found) => found !== undefined && isWanted(found)),
  ...Object.fromEntries(
    [
      'readItem',
      'countItems',
      'listItems',
      'queryItems',
      'readChangeFeed',
      'writeItem',
      'patchItem',
      'deleteItem',
      'batchItems',
      'snapshotItems',
      'listScripts',
      'scriptToRun',
    ].map((name) => [name, async (...asked: unknown[]) => void reached.push(asked)]),
  ),
});

let orders: ContainerState;
let others: ContainerState;
let databaseRid: string;
beforeAll(async () => {
  databaseRid = (await store.createDatabase(caller, 'shop')).resource.rid;
  await store.createDatabase(caller, 'elsewhere');
  orders = (await store.createContainer(caller, 'shop', 'orders', definition, null)).resource;
  others = (await store.createContainer(caller, 'shop', 'others', definition, null)).resource;
});

/** A call, and what it accesses. */
interface Asked {
  readonly what: string;
  readonly call: (granted: StoreApi) => unknown;
  readonly inOrders: boolean;
  /** The id of the one item; undefined if the call is about several. */
  readonly id?: string;
  /** Undefined if the call is about all partition keys. */
  readonly partitionKey?: string;
  readonly writes: boolean;
}

function everything(): Asked[] {
  const asked: Asked[] = [];
  for (const container of [orders, others]) {
    const inOrders = container === orders;
    for (const id of ['o1', 'o2']) {
      for (const partitionKey of [ANN, BOB]) {
        const item = { id, partitionKey, document: { id }, json: '{}' };
        const one = (what: string, writes: boolean, call: Asked['call']) =>
          asked.push({ what, call, inOrders, id, partitionKey, writes });
        one('readItem', false, (granted) => granted.readItem(container, id, partitionKey));
        one('replace', true, (granted) => granted.writeItem(caller, container, 'replace', item));
        one('patchItem', true, (granted) => granted.patchItem(caller, container, id, partitionKey, patch));
        one('deleteItem', true, (granted) => granted.deleteItem(caller, container, id, partitionKey));
        for (const operation of ['create', 'upsert'] as const) {
          const call: Asked['call'] = (granted) => granted.writeItem(caller, container, operation, item);
          asked.push({ what: operation, call, inOrders, partitionKey, writes: true });
        }
        const operations: readonly BatchOperation[] = [
          { kind: 'read', id, partitionKey },
          { kind: 'delete', id, partitionKey },
          { kind: 'patch', id, partitionKey, patch },
          { kind: 'write', operation: 'replace', item },
        ];
        for (const operation of operations) {
          const call: Asked['call'] = (granted) =>
            granted.batchItems(caller, container, [{ kind: 'read', id: 'o1', partitionKey: ANN }, operation]);
          const of = partitionKey === ANN ? { partitionKey } : {};
          asked.push({ what: `batch ${operation.kind}`, call, inOrders, ...of, writes: operation.kind !== 'read' });
        }
      }
    }
    for (const partitionKey of [undefined, ANN, BOB]) {
      const scope: Scope = partitionKey === undefined ? {} : { partitionKey };
      const feed = { ...scope, sql: '', parameters: [], maxItemCount: 1 };
      const changes = { mode: 'latest', start: { kind: 'beginning' }, scope, maxItemCount: 1 } as never;
      const several = (what: string, call: Asked['call']) =>
        asked.push({ what, call, inOrders, ...scope, writes: false } as Asked);
      several('listItems', (granted) => granted.listItems(container, feed));
      several('queryItems', (granted) => granted.queryItems(container, feed));
      several('readChangeFeed', (granted) => granted.readChangeFeed(container, changes));
    }
    const call: Asked['call'] = (granted) => granted.countItems(container);
    asked.push({ what: 'countItems', call, inOrders, writes: false });
  }
  return asked;
}

const refusal = 'Insufficient permissions';
const isLet = async (call: () => unknown): Promise<boolean> => {
  try {
    await call();
    return true;
  } catch (error) {
    expect(String(error)).toContain(refusal);
    return false;
  }
};
const grantOf = (target: object, writes: boolean): Grant => ({
  actor: 'token:p',
  databaseRid,
  target: { containerRid: orders.rid, ...target },
  writes,
});

describe('the store that a token’s holder gets', () => {
  test.each([
    ['a container', {}, () => true],
    ['a partition key', { partitionKey: ANN }, ({ partitionKey }: Asked) => partitionKey === ANN],
    [
      'an item',
      { item: { id: 'o1', partitionKey: ANN } },
      ({ id, partitionKey }: Asked) => id === 'o1' && partitionKey === ANN,
    ],
    ['an item by its name alone', { item: { id: 'o1' } }, ({ id }: Asked) => id === 'o1'],
  ] as const)('for %s allows what the grant covers, and nothing else', async (_, target, covers) => {
    for (const writes of [false, true]) {
      const granted = grantedStore(store, grantOf(target, writes));
      for (const asked of everything()) {
        reached.length = 0;
        const expected = asked.inOrders && covers(asked) && (writes || !asked.writes);
        const about = JSON.stringify([writes, asked]);
        expect(await isLet(() => asked.call(granted)), about).toBe(expected);
        if (!expected) expect(reached, about).toEqual([]);
      }
      // By rid, an item outside the grant looks as if it had never existed.
      for (const [birth, found] of byBirth.entries()) {
        const { id, partitionKey } = found;
        const expected = covers({ id, partitionKey, what: 'itemByBirth', inOrders: true, writes, call: () => 0 });
        expect(await granted.itemByBirth(orders, birth)).toEqual(expected ? found : undefined);
        expect(await isLet(() => granted.itemByBirth(others, birth))).toBe(false);
      }
    }
  });

  test('with a grant for a partition key allows the range of exactly that key', async () => {
    const granted = grantedStore(store, grantOf({ partitionKey: ANN }, false));
    const range = rangeOfKey(effectivePartitionKey(definition.partitionKey, ANN));
    reached.length = 0;
    const page = { maxItemCount: 1 };
    expect(await isLet(() => granted.listItems(orders, { ...page, range }))).toBe(true);
    expect(reached).toEqual([[orders, { ...page, range, partitionKey: ANN }]]);
    for (const wider of [
      { ...range, min: '' },
      { ...range, max: 'FF' },
    ]) {
      expect(await isLet(() => granted.listItems(orders, { ...page, range: wider }))).toBe(false);
    }
    expect(await isLet(() => granted.listItems(orders, { ...page, range, partitionKey: BOB }))).toBe(false);
  });

  test('has the scripts of its container, unless the grant is for one item, and runs them only if it may write', async () => {
    for (const [target, writes] of [
      [{}, true],
      [{}, false],
      [{ partitionKey: ANN }, true],
      [{ item: { id: 'o1' } }, true],
    ] as const) {
      const granted = grantedStore(store, grantOf(target, writes));
      for (const container of [orders, others]) {
        const isOfAll = container === orders && !('item' in target);
        const lists = await isLet(() => granted.listScripts(container, 'user-defined-function'));
        const runs = await isLet(() => granted.scriptToRun(container, 'stored-procedure', 'p'));
        const reads = await isLet(() => granted.snapshotItems(container));
        const about = JSON.stringify([target, writes, container.name]);
        expect([lists, runs, reads], about).toEqual([isOfAll, isOfAll && writes, container === orders]);
      }
    }
  });

  test('finds the database and container of the grant, and no others', async () => {
    const granted = grantedStore(store, grantOf({}, true));
    expect(granted.listDatabases().map(({ name }) => name)).toEqual(['shop']);
    expect(granted.database('shop').rid).toBe(databaseRid);
    expect(granted.container('shop', 'orders')).toBe(orders);
    expect(granted.containerByRid(orders.rid)).toBe(orders);
    expect(granted.databaseByRid(databaseRid)?.name).toBe('shop');
    expect(granted.deletedContainers('shop', 'orders')).toEqual([]);
    expect(await granted.itemByBirth(orders, 9)).toBe(undefined);
    for (const call of [
      () => granted.database('elsewhere'),
      () => granted.container('shop', 'others'),
      () => granted.containerByRid(others.rid),
      () => granted.databaseByRid(store.database('elsewhere').rid),
      () => granted.deletedContainers('shop', 'others'),
      // The error does not reveal what else exists.
      () => granted.database('nothing'),
      () => granted.container('shop', 'nothing'),
      () => granted.container('elsewhere', 'orders'),
      () => granted.container('nothing', 'orders'),
      () => granted.containerByRid('nothing'),
    ]) {
      expect(call).toThrow(refusal);
    }
  });

  test('has no other methods of the store', () => {
    const granted = grantedStore(store, grantOf({}, true)) as unknown as Record<string, () => unknown>;
    for (const name of ['createDatabase', 'replaceContainer', 'deletePartitionKey', 'history', 'tokens']) {
      expect(() => granted[name]!(), name).toThrow(refusal);
    }
  });
});

describe('a request with a token', () => {
  test('does not ask other nodes for names outside its grant, because the time would reveal which exist', async () => {
    const settled: (string | undefined)[] = [];
    const shared: StoreApi = Object.assign(Object.create(store) as StoreApi, {
      settleNames: (_database: string | undefined, container: string | undefined) => void settled.push(container),
      verifyResourceToken: async () => ({ ok: true, grant: grantOf({}, false) }),
    });
    const app = testServer({ store: shared });
    const authorization = encodeURIComponent('type=resource&ver=1&sig=x;x;');
    for (const name of ['others', 'nothing']) {
      const target = `/dbs/shop/colls/${name}/docs/o1`;
      expect((await call(app, 'GET', target, { headers: { authorization, ...keyHeader('ann') } })).status).toBe(403);
      expect(settled).toEqual([]);
    }
    // For the container itself the answer is confirmed with other nodes, whether or not the container is known.
    await call(app, 'GET', '/dbs/shop/colls/others', { headers: { authorization } });
    expect(settled.splice(0)).toEqual(['others']);
    await call(app, 'GET', '/dbs/shop/colls/nothing/docs/o1', { headers: keyHeader('ann') });
    expect(settled).toEqual(['nothing']);
  });
});

describe('a target', () => {
  const targets: readonly (readonly [path: string, method: string])[] = [
    '',
    'dbs',
    'dbs/shop',
    'dbs/shop/colls',
    'dbs/shop/users/ann',
    'offers',
    'offers/x/colls/orders',
    'dbs/shop/colls/orders',
    'dbs/shop/colls/orders/pkranges',
    'dbs/shop/colls/orders/pkranges/0',
    'dbs/shop/colls/orders/docs',
    'dbs/shop/colls/orders/docs/o1',
    'dbs/shop/colls/orders/docs/o1/attachments',
    'dbs/shop/colls/orders/sprocs',
    'dbs/shop/colls/orders/sprocs/s1',
    'dbs/shop/users/ann/docs',
  ].flatMap((path) => ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].map((method) => [path, method] as const));
  const reached = (target: object, writes: boolean) =>
    targets
      .filter(([path, method]) => {
        const segments = path.split('/').filter((segment) => segment !== '');
        try {
          checkTargetGranted(grantOf(target, writes), { segments, method, isRead: method === 'GET' });
          return true;
        } catch (error) {
          expect(String(error)).toContain(refusal);
          return false;
        }
      })
      .map(([path, method]) => `${method} /${path}`);
  const read = [
    'GET /',
    'GET /dbs/shop/colls/orders',
    'GET /dbs/shop/colls/orders/pkranges',
    'GET /dbs/shop/colls/orders/docs',
    'GET /dbs/shop/colls/orders/docs/o1',
  ];
  const changes = (path: string) => ['POST', 'PUT', 'PATCH', 'DELETE'].map((method) => `${method} ${path}`);

  test('that a token can reach is the account, a container’s definition, ranges and documents, or a stored procedure to run', () => {
    expect(reached({}, false)).toEqual(read);
    expect(reached({}, true).toSorted()).toEqual(
      [
        ...read,
        ...changes('/dbs/shop/colls/orders/docs'),
        ...changes('/dbs/shop/colls/orders/docs/o1'),
        'POST /dbs/shop/colls/orders/sprocs/s1',
      ].toSorted(),
    );
  });

  test('with several items can’t be reached by a token for one item', () => {
    const item = { item: { id: 'o1', partitionKey: ANN } };
    expect(reached(item, false)).toEqual(read.filter((target) => !target.endsWith('/docs')));
  });
});
