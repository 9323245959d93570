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
const released = { by: 'key:primary', atMs: 9, reason: 'settled' };

const registerOf = (...numbers: readonly number[]): HoldRegister =>
  numbers.reduce((register, number) => register.withPlaced(hold(number)), HoldRegister.empty);

describe('a register of holds', () => {
  it('has what was placed in that order, released or not', () => {
    const register = registerOf(1, 2, 3).withReleased('case 2', released);
    expect([...register]).toEqual([hold(1), { ...hold(2), released }, hold(3)]);
    expect(register).toMatchObject({ length: 3, standing: 2 });
    expect(register.find('case 2')).toEqual({ ...hold(2), released });
    expect(register.find('case 4')).toBeUndefined();
    expect([...HoldRegister.of(register)]).toEqual([...register]);
  });

  it('stays as it is when another is made of it, and of two that are made of one neither has what is the other’s', () => {
    const before = registerOf(1, 2);
    const left = before.withReleased('case 1', released).withPlaced(hold(3));
    const right = before.withPlaced(hold(4)).withReleased('case 2', released);
    expect([...before]).toEqual([hold(1), hold(2)]);
    expect([...left]).toEqual([{ ...hold(1), released }, hold(2), hold(3)]);
    expect([...right]).toEqual([hold(1), { ...hold(2), released }, hold(4)]);
    expect(left.find('case 4')).toBeUndefined();
    expect(before.find('case 3')).toBeUndefined();
    expect([...HoldRegister.empty]).toEqual([]);
  });

  it('takes no notice of a release of what is not there, or is released', () => {
    const register = registerOf(1).withReleased('case 1', released);
    expect(register.withReleased('case 1', { ...released, reason: 'again' })).toBe(register);
    expect(register.withReleased('case 7', released)).toBe(register);
  });

  it('says what an earlier version does not have, or has otherwise', () => {
    const before = registerOf(1, 2, 3).withReleased('case 1', released);
    const now = before
      .withReleased('case 2', released)
      .withPlaced(hold(4))
      .withPlaced(hold(5))
      .withReleased('case 5', released);
    expect([...now.since(before)]).toEqual([
      [1, { ...hold(2), released }],
      [3, hold(4)],
      [4, { ...hold(5), released }],
    ]);
    expect([...now.since(now)]).toEqual([]);
    expect([...registerOf(1).since(HoldRegister.empty)]).toEqual([[0, hold(1)]]);
    expect([...now.since(HoldRegister.of(before))].map(([place]) => place)).toEqual([0, 1, 2, 3, 4]);
  });

  it('takes as long to place and release one whatever there is', () => {
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
