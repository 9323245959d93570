import { describe, expect, test } from 'vitest';
import { Places } from '@epitaph/core/places.ts';

const settled = async (promise: Promise<void>): Promise<boolean> => {
  const later = new Promise<false>((resolve) => setImmediate(() => resolve(false)));
  return Promise.race([promise.then(() => true), later]);
};

describe('places', () => {
  test('are given to waiting callers in the order in which they came', async () => {
    const places = new Places(2);
    await Promise.all([places.take(), places.take()]);
    const third = places.take();
    const fourth = places.take();
    expect(await settled(third)).toBe(false);
    places.giveBack();
    expect([await settled(third), await settled(fourth)]).toEqual([true, false]);
    places.giveBack();
    expect(await settled(fourth)).toBe(true);
    places.giveBack();
    places.giveBack();
    await Promise.all([places.take(), places.take()]);
    expect(await settled(places.take())).toBe(false);
  });

  test('are taken without waiting only if one is free', async () => {
    const places = new Places(1);
    expect([places.takeIfFree(), places.takeIfFree()]).toEqual([true, false]);
    places.giveBack();
    expect(places.takeIfFree()).toBe(true);
  });

  test('go to the next caller when one cancels its wait, or has cancelled before', async () => {
    const places = new Places(1);
    await places.take();
    const controller = new AbortController();
    const givenUp = places.take(controller.signal);
    const next = places.take();
    controller.abort(new Error('no more'));
    await expect(givenUp).rejects.toThrow('no more');
    await expect(places.take(controller.signal)).rejects.toThrow('no more');
    places.giveBack();
    expect(await settled(next)).toBe(true);
    places.giveBack();
    expect(await settled(places.take())).toBe(true);
  });
});
