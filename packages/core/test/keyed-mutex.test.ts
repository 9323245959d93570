import { describe, expect, it } from 'vitest';
import { KeyedMutex } from '@epitaph/core/keyed-mutex.ts';

describe('a mutex with keys', () => {
  it('admits one after the other for a key, in order of arrival, and others concurrently', async () => {
    const mutex = new KeyedMutex();
    const told: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const first = mutex.run('a', async () => {
      await promise;
      told.push('a 1');
    });
    const both = mutex.runAll(['b', 'a', 'b'], async () => void told.push('a and b'));
    const last = mutex.run('a', async () => void told.push('a 2'));
    await mutex.run('c', async () => void told.push('c'));
    resolve();
    await Promise.all([first, both, last]);
    expect(told).toEqual(['c', 'a 1', 'a and b', 'a 2']);
  });

  it('begins at once if nothing is running or waiting, with one key or several', () => {
    const mutex = new KeyedMutex();
    let begun = 0;
    void mutex.run('a', async () => void begun++);
    void mutex.runAll(['b', 'c'], async () => void begun++);
    expect(begun).toBe(2);
  });

  it('continues after work that failed', async () => {
    const mutex = new KeyedMutex();
    const failing = async () => {
      throw new Error('no');
    };
    await expect(mutex.run('a', failing)).rejects.toThrow('no');
    await expect(mutex.runAll(['a', 'b'], failing)).rejects.toThrow('no');
    expect(await mutex.runAll(['b', 'a'], async () => 'done')).toBe('done');
  });

  it('accepts any number of keys', async () => {
    const mutex = new KeyedMutex();
    const keys = Array.from({ length: 20_000 }, (_, n) => `${n}`);
    const { promise, resolve } = Promise.withResolvers<void>();
    const before = mutex.run('7', () => promise);
    const all = mutex.runAll(keys, async () => 'done');
    resolve();
    await before;
    expect(await all).toBe('done');
  });
});
