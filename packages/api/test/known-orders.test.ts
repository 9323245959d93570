import { describe, expect, it } from 'vitest';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { RowPlace } from '@epitaph/query';
import { KnownOrders } from '@epitaph/api/store/queries/known-orders.ts';

const DEFINITION: ContainerDefinition = {
  partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 },
  indexingPolicy: { indexingMode: 'consistent' },
};
const container = { rid: 'rid', definition: DEFINITION } as ContainerState;
const query = (sql: string) => ({ sql, parameters: [], maxItemCount: 10 });
const at = (key: string): RowPlace[] => [{ keys: [key], inside: 0 }];
/** Some 3 KB. */
const LONG = at('x'.repeat(1_500));

describe('the known order of a query', () => {
  it('has the places that were kept for the same query over the same definition', () => {
    const orders = new KnownOrders();
    const order = orders.of(container, query('one'));
    orders.keep(order, 7, at('a'));
    expect(order.get(7)).toEqual(at('a'));
    expect(orders.of(container, query('one')).get(7)).toEqual(at('a'));
    expect(orders.of(container, query('other')).get(7)).toBeUndefined();
    expect(orders.of(container, { ...query('one'), parameters: [{ name: '@p', value: 1 }] }).get(7)).toBeUndefined();
    expect(orders.of({ ...container, rid: 'other' }, query('one')).get(7)).toBeUndefined();
    expect(orders.of({ ...container, definition: { ...DEFINITION } }, query('one')).get(7)).toBeUndefined();
  });

  it('loses the places of versions that are erased', () => {
    const orders = new KnownOrders();
    for (const sql of ['one', 'two']) {
      const order = orders.of(container, query(sql));
      for (const position of [1, 2, 3]) orders.keep(order, position, at('a'));
    }
    orders.erased([1, 3]);
    for (const sql of ['one', 'two']) {
      const order = orders.of(container, query(sql));
      expect([1, 2, 3].map((position) => order.get(position) !== undefined)).toEqual([false, true, false]);
    }
    orders.erased(undefined);
    expect(orders.of(container, query('one')).get(2)).toBeUndefined();
  });

  it('does not keep a version that was erased after a run opened it', async () => {
    const orders = new KnownOrders();
    const order = orders.of(container, query('one'));
    await order.during(async () => {
      await order.during(async () => {
        orders.erased([5]);
      });
      orders.keep(order, 5, at('a'));
      orders.keep(order, 6, at('a'));
    });
    expect(order.get(5)).toBeUndefined();
    expect(order.get(6)).toBeDefined();
  });

  it('does not keep places of a document with very long values', () => {
    const orders = new KnownOrders();
    const order = orders.of(container, query('one'));
    orders.keep(order, 1, at('x'.repeat(3_000)));
    expect(order.get(1)).toBeUndefined();
  });

  it('has limited room: the least recently used one is forgotten, and one that fills all of it begins anew', () => {
    const orders = new KnownOrders();
    const [older, newer] = ['older', 'newer'].map((sql) => orders.of(container, query(sql)));
    for (const order of [older!, newer!]) orders.keep(order, 0, LONG);
    // This one is now used later than the other.
    const last = orders.of(container, query('older'));
    let position = 1;
    while (!last.isFull && position < 1_000_000) {
      orders.keep(last, position, LONG);
      position += 1;
    }
    expect(last.bytes).toBeGreaterThan(1024 * 1024);
    expect(last.bytes).toBeLessThanOrEqual(32 * 1024 * 1024);
    expect(last.get(0)).toBeDefined();
    expect(last.get(position - 1)).toBeUndefined();
    expect(orders.of(container, query('newer')).get(0)).toBeUndefined();
    expect(orders.of(container, query('older')).get(0)).toBeUndefined();
  });

  it('is forgotten when many other queries were asked', () => {
    const orders = new KnownOrders();
    orders.keep(orders.of(container, query('first')), 1, at('a'));
    for (let number = 0; number < 16; number += 1) orders.of(container, query(String(number)));
    expect(orders.of(container, query('first')).get(1)).toBeUndefined();
  });
});
