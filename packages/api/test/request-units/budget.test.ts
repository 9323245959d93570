import { describe, expect, test } from 'vitest';
import { Budget } from '@epitaph/api/request-units/budget.ts';

describe('a budget of 400 request units a second', () => {
  test('admits operations while something is left, and is overdrawn once', () => {
    const budget = new Budget(400, 0);
    expect(budget.waitMs(0)).toBe(0);
    budget.spend(399);
    expect(budget.waitMs(0)).toBe(0);
    budget.spend(1_000);
    expect(budget.balance(0)).toBe(-999);
    // 999 units at 400 a second.
    expect(budget.waitMs(0)).toBe(2_498);
    expect(budget.waitMs(2_000)).toBe(498);
    expect(budget.waitMs(2_498)).toBe(0);
  });

  test('that is exactly used up makes the next operation wait for at least a millisecond', () => {
    const budget = new Budget(400, 0);
    budget.spend(400);
    expect(budget.waitMs(0)).toBe(1);
    expect(budget.waitMs(1)).toBe(0);
  });

  test('tells refused operations to come one after the other, within five seconds', () => {
    const budget = new Budget(400, 0);
    budget.spend(800);
    expect([1, 2, 3].map(() => budget.waitMs(0, 100))).toEqual([1_000, 1_250, 1_500]);
    // An operation no longer waits behind those whose time has come.
    expect(budget.waitMs(500, 100)).toBe(1_250);
    for (let refused = 0; refused < 100; refused += 1) budget.waitMs(500, 100);
    expect(budget.waitMs(500)).toBe(5_500);
    expect(budget.waitMs(1_001)).toBe(0);
  });

  test('assumes that refused operations will cost what the latest operations have cost', () => {
    // given
    const budget = new Budget(400, 0);
    for (let operations = 0; operations < 100; operations += 1) budget.settle(0, 0);
    for (let operations = 0; operations < 100; operations += 1) budget.settle(50, 50);
    budget.spend(800);
    // when
    const waits = [1, 2, 3].map(() => budget.waitMs(0, 5));
    // then
    expect(waits).toEqual([1_000, 1_125, 1_250]);
  });

  test('admits nearly all clients that wait as told and try nine times, whatever their operations cost', () => {
    // given clients that send another operation, of another cost, as soon as one is answered
    const COSTS = [1, 1, 1, 1, 1, 7, 7, 15, 15, 50];
    let state = 1;
    const random = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
    const budget = new Budget(4_000, 0);
    const clients = Array.from({ length: 50 }, () => ({ comesMs: Math.floor(random() * 200), refusals: 0, cost: 1 }));
    let [operations, givenUp, spent] = [0, 0, 0];
    // when
    for (let nowMs = 0; nowMs < 20_000; nowMs += 1) {
      for (const client of clients) {
        if (client.comesMs !== nowMs) continue;
        const waitMs = budget.waitMs(nowMs, 2);
        client.comesMs += waitMs + 1 + Math.floor(random() * 3);
        if (waitMs > 0) {
          client.refusals += 1;
          continue;
        }
        budget.settle(client.cost, 0);
        operations += 1;
        if (client.refusals > 9) givenUp += 1;
        spent += client.cost;
        client.refusals = 0;
        client.cost = COSTS[Math.floor(random() * COSTS.length)]!;
      }
    }
    // then
    expect(givenUp / operations).toBeLessThan(0.001);
    expect(spent / 84_000).toBeCloseTo(1, 1);
  });

  test('that is lowered makes nobody wait for more than five seconds of its new rate', () => {
    // given
    const budget = new Budget(10_000, 0);
    budget.spend(10_000);
    for (let refused = 0; refused < 100; refused += 1) budget.waitMs(0, 1_000);
    expect(budget.waitMs(0)).toBe(5_000);
    // when
    budget.provision(400, 0);
    // then
    expect(budget.waitMs(0)).toBe(5_000);
  });

  test('makes nobody wait for operations whose time has come', () => {
    const budget = new Budget(400, 0);
    budget.spend(800);
    for (let refused = 0; refused < 4; refused += 1) budget.waitMs(0, 100);
    expect(budget.waitMs(0)).toBe(2_000);
    expect(budget.balance(2_000)).toBe(400);
    budget.spend(800);
    expect(budget.waitMs(2_000)).toBe(1_000);
  });

  test('holds at most the units of one second, however long it was idle', () => {
    const budget = new Budget(400, 0);
    expect(budget.balance(3_600_000)).toBe(400);
  });

  test('leaves over what users did not use, at most one second of it', () => {
    const budget = new Budget(400, 0);
    expect(budget.leftOver(0)).toBe(0);
    expect(budget.leftOver(250)).toBe(100);
    // When users come back, what they spend is refilled before anything is left over again.
    budget.spend(200);
    expect(budget.leftOver(750)).toBe(100);
    expect(budget.leftOver(1_000)).toBe(200);
    expect(budget.leftOver(3_600_000)).toBe(400);
  });

  test("the purge never spends users' part", () => {
    const budget = new Budget(400, 0);
    budget.leftOver(1_000);
    budget.spendLeftOver(900);
    expect(budget.leftOver(1_000)).toBe(-500);
    expect(budget.balance(1_000)).toBe(400);
    expect(budget.leftOver(2_250)).toBe(0);
  });

  test('applies another rate from the moment of the change', () => {
    const budget = new Budget(400, 0);
    budget.spend(800);
    budget.provision(4_000, 0);
    expect(budget.waitMs(0)).toBe(100);
    expect(budget.balance(1_000)).toBe(3_600);
    budget.provision(1_000, 1_000);
    expect(budget.balance(1_000)).toBe(1_000);
  });

  test('fills by the former rate up to the moment of the change', () => {
    const budget = new Budget(400, 0);
    budget.spend(800);
    budget.provision(4_000, 500);
    expect(budget.balance(500)).toBe(-200);
    expect(budget.balance(1_000)).toBe(1_800);
  });

  test('leaves over no more than a second of the new rate, and no more than before the change', () => {
    const budget = new Budget(400, 0);
    expect(budget.leftOver(1_000)).toBe(400);
    budget.provision(4_000, 1_000);
    expect(budget.leftOver(1_000)).toBe(400);
    budget.provision(100, 1_000);
    expect(budget.leftOver(1_000)).toBe(100);
  });

  test('takes nothing back when its clock stands still', () => {
    const budget = new Budget(400, 5);
    budget.spend(400);
    expect(budget.balance(5)).toBe(0);
    expect(budget.balance(4)).toBe(0);
  });
});
