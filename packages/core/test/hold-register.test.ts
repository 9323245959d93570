import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { HoldRegister } from '../src/retention/hold-register.ts';
import { evolveRetention } from '../src/retention/evolve.ts';
import { initialRetention } from '../src/retention/state.ts';

const hold = (number: number) => ({
  holdId: `case ${number}`,
  scope: { kind: 'container' as const },
  reason: 'litigation',
  tooLateFor: 0,
  placedBy: 'key:primary',
  placedAtMs: number,
  position: number,
});
/** A released hold, of which the register only keeps where its release is recorded. */
const released = (number: number, releasePosition: number) => ({
  holdId: `case ${number}`,
  position: number,
  releasePosition,
});

const registerOf = (...numbers: readonly number[]): HoldRegister =>
  numbers.reduce((register, number) => register.withPlaced(hold(number)), HoldRegister.empty);

describe('a register of holds', () => {
  it('lists all holds in the order in which they were placed, released or not', () => {
    const register = registerOf(1, 2, 3).withReleased('case 2', 9);
    expect([...register]).toEqual([hold(1), released(2, 9), hold(3)]);
    expect(register).toMatchObject({ length: 3, standing: 2 });
    expect(register.find('case 2')).toEqual(released(2, 9));
    expect(register.find('case 4')).toBeUndefined();
    expect([...HoldRegister.of(register)]).toEqual([...register]);
  });

  it('is immutable: two registers derived from one don’t see each other’s changes', () => {
    const before = registerOf(1, 2);
    const left = before.withReleased('case 1', 9).withPlaced(hold(3));
    const right = before.withPlaced(hold(4)).withReleased('case 2', 9);
    expect([...before]).toEqual([hold(1), hold(2)]);
    expect([...left]).toEqual([released(1, 9), hold(2), hold(3)]);
    expect([...right]).toEqual([hold(1), released(2, 9), hold(4)]);
    expect(left.find('case 4')).toBeUndefined();
    expect(before.find('case 3')).toBeUndefined();
    expect([...HoldRegister.empty]).toEqual([]);
    const fresh = registerOf(1, 2);
    const gone = fresh.withReleased('case 1', 9);
    fresh.withPlaced(hold(4));
    expect([...gone.withPlaced(hold(3))]).toEqual([released(1, 9), hold(2), hold(3)]);
  });

  it('ignores the release of a hold that does not exist or is released', () => {
    const register = registerOf(1).withReleased('case 1', 9);
    expect(register.withReleased('case 1', 10)).toBe(register);
    expect(register.withReleased('case 7', 9)).toBe(register);
  });

  it('accepts changes, whichever of them it has already', () => {
    const before = registerOf(1, 2, 3).withReleased('case 1', 9);
    const changed = [released(1, 9), released(2, 10), hold(3), hold(4), released(5, 11)];
    const now = before.with(changed);
    expect([...now]).toEqual(changed);
    expect(now).toMatchObject({ length: 5, standing: 2 });
    expect([...before]).toEqual([released(1, 9), hold(2), hold(3)]);
    expect([...HoldRegister.of(now)]).toEqual(changed);
  });

  it('finds the holds placed after a position', () => {
    const register = registerOf(2, 4, 6).withReleased('case 6', 9);
    expect([...register.after(4)]).toEqual([released(6, 9)]);
    expect([...register.after(3)]).toEqual([hold(4), released(6, 9)]);
    expect([...register.after(0)]).toEqual([...register]);
    expect([...register.after(6)]).toEqual([]);
  });

  it('forgets the details of released holds, while every version stays as it is', () => {
    const versions = [HoldRegister.empty];
    for (let number = 1; number <= 500; number += 1) {
      const placed = versions.at(-1)!.withPlaced(hold(number));
      versions.push(number % 5 === 0 ? placed : placed.withReleased(`case ${number}`, 1_000 + number));
    }
    for (const [index, version] of versions.entries()) {
      const numbers = Array.from({ length: index }, (_, place) => place + 1);
      const known = numbers.map((number) => (number % 5 === 0 ? hold(number) : released(number, 1_000 + number)));
      expect([...version]).toEqual(known);
      expect(version).toMatchObject({ length: index, standing: Math.floor(index / 5) });
      for (const each of known.slice(-3)) expect(version.find(each.holdId)).toEqual(each);
    }
  });

  it('keeps no details of released holds in memory, except for the last few', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    let register = HoldRegister.empty;
    const named = Array.from({ length: 400 }, (_, number) => {
      const scope = { kind: 'items' as const, items: [`item ${number}`] };
      register = register.withPlaced({ ...hold(number), scope });
      if (number >= 10) register = register.withReleased(`case ${number}`, 1_000 + number);
      return new WeakRef(scope);
    });
    await new Promise((resolve) => setImmediate(resolve));
    collect();
    const kept = named.flatMap((scope, number) => (scope.deref() === undefined ? [] : [number]));
    expect(kept.filter((number) => number < 10)).toHaveLength(10);
    expect(kept.length).toBeLessThan(10 + 400 / 8 + 2);
    expect(register).toMatchObject({ length: 400, standing: 10 });
  });

  it('places and releases a hold in the same time, however many it has', () => {
    const facts = { occurredAtMs: 1, actor: 'key:primary', id: 'e', version: 1, data: {} };
    const recorded = {
      ...facts,
      type: '',
      stream: 's',
      revision: 0,
      position: 1,
      correlationId: 'c',
      causationId: 'c',
    };
    const many = 40_000;
    let state = initialRetention;
    for (let number = 0; number < many; number += 1) {
      const { holdId, scope, reason, tooLateFor } = hold(number);
      state = evolveRetention(state, { type: 'HoldPlaced', data: { holdId, scope, reason, tooLateFor } }, recorded);
      state = evolveRetention(state, { type: 'HoldReleased', data: { holdId, reason } }, recorded);
    }
    expect(state.holds).toMatchObject({ length: many, standing: 0 });
  });
});
