import { describe, expect, it } from 'vitest';
import { CommandOrder } from '@epitaph/api/store/command-order.ts';

describe('the order of commands', () => {
  it('lets commands that wait for the one in progress go before later ones', async () => {
    const order = new CommandOrder();
    const told: string[] = [];
    const command = (name: string) =>
      order.run('c', async () => {
        told.push(`${name} begins`);
        await new Promise((resolve) => setImmediate(resolve));
        told.push(`${name} ends`);
      });
    const all = ['first', 'second', 'third'].map(command);
    const reading = (async () => {
      for (let busy = order.underWay('c'); busy !== undefined; busy = order.underWay('c')) await busy;
      told.push('read');
    })();
    await Promise.all([...all, reading]);
    expect(told).toEqual([
      'first begins',
      'first ends',
      'read',
      'second begins',
      'second ends',
      'third begins',
      'third ends',
    ]);
    expect(order.underWay('c')).toBe(undefined);
  });

  it('begins at once if nothing is in progress, and continues after a failure', async () => {
    const order = new CommandOrder();
    const failing = order.run('c', () => Promise.reject(new Error('out of order')));
    expect(order.underWay('c')).toBeInstanceOf(Promise);
    expect(order.underWay('d')).toBe(undefined);
    const next = order.run('c', async () => 'done');
    await expect(failing).rejects.toThrow('out of order');
    expect(await next).toBe('done');
  });
});
