import { once } from 'node:events';
import { Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { defaultLimits } from '@epitaph/api/http/limits.ts';
import { Pages } from '@epitaph/api/http/pages.ts';

describe('concurrent pages', () => {
  test('are begun in order and, if each takes long, each in a turn of the event loop of its own', async () => {
    const busy = () => {
      const untilMs = performance.now() + 6;
      while (performance.now() < untilMs);
    };
    let turn = 0;
    const begun: (readonly [page: number, turn: number])[] = [];
    const count = () => {
      turn += 1;
      if (begun.length < 5) setImmediate(count);
    };
    setImmediate(count);
    const pages = new Pages(defaultLimits);
    await Promise.all([0, 1, 2, 3, 4].map((page) => pages.make(async () => (busy(), begun.push([page, turn])))));
    expect(begun.map(([page]) => page)).toEqual([0, 1, 2, 3, 4]);
    expect(new Set(begun.map(([, at]) => at)).size).toBe(5);
  });

  test('wait if the maximum number is in progress, in which a failed page no longer counts', async () => {
    const pages = new Pages({ ...defaultLimits, pagesInFlight: 2 });
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const first = pages.make(() => held);
    const failing = pages.make(() => Promise.reject(new Error('failed')));
    await expect(failing).rejects.toThrow('failed');
    const second = pages.make(() => held);
    let isThirdBegun = false;
    const third = pages.make(async () => {
      isThirdBegun = true;
    });
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
    expect(isThirdBegun).toBe(false);
    release();
    await Promise.all([first, second, third]);
    expect(isThirdBegun).toBe(true);
  });

  test('let others be made while they wait for something, and then continue in their turn', async () => {
    const pages = new Pages({ ...defaultLimits, pagesInFlight: 1 });
    const { promise: awaited, resolve: come } = Promise.withResolvers<void>();
    const steps: string[] = [];
    const first = pages.make(async (standAside) => {
      await standAside(() => awaited);
      steps.push('first');
    });
    await pages.make(async () => steps.push('second'));
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const third = pages.make(() => held);
    come();
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
    expect(steps).toEqual(['second']);
    release();
    await Promise.all([first, third]);
    expect(steps).toEqual(['second', 'first']);
    await expect(pages.make((standAside) => standAside(() => Promise.reject(new Error('gone'))))).rejects.toThrow(
      'gone',
    );
    await pages.make(async () => steps.push('last'));
  });

  test('may continue after their request was answered, and take no room then', async () => {
    const pages = new Pages({ ...defaultLimits, pagesInFlight: 1 });
    const [early, late, ready] = [1, 2, 3].map(() => Promise.withResolvers<void>());
    let made: Promise<void> | undefined;
    await pages.make(async (standAside) => {
      made = (async () => {
        await standAside(() => early!.promise);
        await standAside(() => late!.promise);
      })();
    });
    await pages.make(async () => {
      early!.resolve();
      late!.resolve();
      await made;
    });
    const other = pages.make(() => ready!.promise);
    let isBegun = false;
    const next = pages.make(async () => {
      isBegun = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isBegun).toBe(false);
    ready!.resolve();
    await Promise.all([other, next]);
  });

  test('do not wait for the unsent answer of a client that had left before it was ready', async () => {
    const pages = new Pages({ ...defaultLimits, unsentBytes: 1 });
    const left = Object.assign(new PassThrough(), { socket: new Socket() });
    left.destroy();
    await once(left, 'close');
    pages.handedOver(left, 1);
    let isBegun = false;
    const page = pages.make(async () => {
      isBegun = true;
    });
    expect(isBegun).toBe(true);
    await page;
  });
});
