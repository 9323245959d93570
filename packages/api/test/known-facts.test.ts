import { describe, expect, it } from 'vitest';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { type FoundPlaces, parseQuery, placesText, planQuery, type QueryParameter } from '@epitaph/query';
import { FactCache, type KnownOrder } from '@epitaph/api/store/queries/known-facts.ts';

const DEFINITION: ContainerDefinition = {
  partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 },
  indexingPolicy: { indexingMode: 'consistent' },
};
const container = { rid: 'rid', definition: DEFINITION } as ContainerState;
/** The known order of a query over all items that orders them by a property. */
const orderOf = (orders: FactCache, property: string, of = container) =>
  askedFor(orders, `SELECT * FROM c ORDER BY c.${property}`, [], of);
const askedFor = (orders: FactCache, sql: string, parameters: QueryParameter[] = [], of = container) =>
  orders.of<FoundPlaces>(of, placesText(planQuery(parseQuery(sql), parameters), parameters), true);
const at = (key: string): FoundPlaces => ({
  rows: [{ keys: [key], inside: 0 }],
  bytes: 64 + 2 * key.length,
  extraWork: 0,
});
/** Some 3 KB. */
const LONG = at('x'.repeat(1_500));

describe('the known order of a query', () => {
  it('has the places that were kept for the same query over the same definition', () => {
    const orders = new FactCache();
    const order = orderOf(orders, 'one');
    order.keep(7, at('a'));
    expect(orderOf(orders, 'one').get(7)).toEqual(at('a'));
    expect(orderOf(orders, 'two').get(7)).toBeUndefined();
    expect(orderOf(orders, 'one', { ...container, rid: 'other' }).get(7)).toBeUndefined();
    expect(orderOf(orders, 'one', { ...container, definition: { ...DEFINITION } }).get(7)).toBeUndefined();
  });

  it('is the same for queries that select and limit the same rows differently, and for no others', () => {
    const orders = new FactCache();
    const sql = 'SELECT c.a FROM c WHERE c.b > @b ORDER BY c.one';
    askedFor(orders, sql, [{ name: '@b', value: 1 }]).keep(7, at('a'));
    const isKnown = (text: string, b: number, ...parameters: QueryParameter[]) =>
      askedFor(orders, text, [{ name: '@b', value: b }, ...parameters]).get(7) !== undefined;
    expect(isKnown(sql, 1)).toBe(true);
    expect(isKnown(`${sql} OFFSET @o LIMIT 5`, 1, { name: '@o', value: 10 })).toBe(true);
    expect(isKnown('SELECT TOP 9 c.z, c.y FROM c WHERE c.b > @b ORDER BY c.one', 1)).toBe(true);
    expect(isKnown(sql, 2)).toBe(false);
    expect(isKnown('SELECT c.a FROM c WHERE c.b >= @b ORDER BY c.one', 1)).toBe(false);
    expect(isKnown('SELECT c.a FROM c WHERE c.b > @b ORDER BY c.one DESC', 1)).toBe(false);
    expect(isKnown('SELECT VALUE c.a FROM c WHERE c.b > @b ORDER BY c.one', 1)).toBe(false);
    expect(isKnown('SELECT c.a FROM c JOIN x IN c.list WHERE c.b > @b ORDER BY c.one', 1)).toBe(false);
  });

  it('is the same for queries that make the same groups, and for no others', () => {
    const orders = new FactCache();
    const sql = 'SELECT c.a, SUM(c.n) AS n FROM c GROUP BY c.a';
    askedFor(orders, sql).keep(7, at('a'));
    const isKnown = (text: string) => askedFor(orders, text).get(7) !== undefined;
    expect(isKnown(`${sql} OFFSET 5 LIMIT 5`)).toBe(true);
    expect(isKnown('SELECT c.a, SUM(c.m) AS n FROM c GROUP BY c.a')).toBe(false);
    expect(isKnown('SELECT c.a, MAX(c.n) AS n FROM c GROUP BY c.a')).toBe(false);
    expect(isKnown('SELECT c.a, SUM(c.n) AS n FROM c GROUP BY c.a, c.b')).toBe(false);
    expect(isKnown('SELECT c.a, SUM(c.n) AS n FROM c WHERE c.b GROUP BY c.a')).toBe(false);
  });

  it('loses the places of versions that are erased', () => {
    const orders = new FactCache();
    for (const sql of ['one', 'two']) {
      const order = orderOf(orders, sql);
      for (const position of [1, 2, 3]) order.keep(position, at('a'));
    }
    orders.erased([1, 3]);
    for (const sql of ['one', 'two']) {
      const order = orderOf(orders, sql);
      expect([1, 2, 3].map((position) => order.get(position) !== undefined)).toEqual([false, true, false]);
    }
    orders.erased(undefined);
    expect(orderOf(orders, 'one').get(2)).toBeUndefined();
  });

  it('does not keep a version that was erased after a run opened it', () => {
    const orders = new FactCache();
    const order = orderOf(orders, 'one');
    order.runBegins();
    order.runBegins();
    orders.erased([5]);
    order.runEnds(0);
    for (const position of [5, 6]) order.keep(position, at('a'));
    order.runEnds(0);
    expect([5, 6].map((position) => order.get(position) !== undefined)).toEqual([false, true]);
  });

  /** Keeps places under ascending positions until there is no room for more. Returns the first position without room. */
  function fill(order: KnownOrder): number {
    for (let position = 1; ; position += 1) {
      order.keep(position, LONG);
      if (order.get(position) === undefined) return position;
    }
  }

  it('has limited room, for which the least recently used one is forgotten', () => {
    const orders = new FactCache();
    for (const name of ['older', 'newer']) orderOf(orders, name).keep(0, LONG);
    // This one is used later than the other now.
    const last = orderOf(orders, 'older');
    fill(last);
    expect(last.bytes).toBeGreaterThan(1024 * 1024);
    expect(last.bytes).toBeLessThanOrEqual(32 * 1024 * 1024);
    expect(orderOf(orders, 'newer').get(0)).toBeUndefined();
    expect(orderOf(orders, 'older').get(0)).toBeDefined();
  });

  it('counts places that two runs have kept once', () => {
    const orders = new FactCache();
    const order = orderOf(orders, 'one');
    order.keep(1, LONG);
    const { bytes } = order;
    order.keep(1, LONG);
    expect(order.bytes).toBe(bytes);
  });

  it('begins anew when it is full of places that are not used any more', () => {
    const orders = new FactCache();
    const order = orderOf(orders, 'one');
    const kept = fill(order) - 1;
    for (const used of [kept, undefined]) {
      order.runBegins();
      order.runEnds(used);
      expect(orderOf(orders, 'one')).toBe(order);
    }
    order.runBegins();
    order.runEnds(kept / 2 - 1);
    expect(orderOf(orders, 'one')).not.toBe(order);
  });

  it('is forgotten when many other queries were asked', () => {
    const orders = new FactCache();
    orderOf(orders, 'first').keep(1, at('a'));
    for (let number = 0; number < 64; number += 1) orderOf(orders, `p${number}`);
    expect(orderOf(orders, 'first').get(1)).toBeUndefined();
  });
});
