import { randomUUID } from 'node:crypto';
import { beforeEach, describe, expect, it } from 'vitest';
import type { ChangeFeedPage } from '@epitaph/api/store/api/change-feed-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { itemToWrite } from '../support/item.ts';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
/** Positions of the log that one look covers, so the hundred looks of a page don't get far. */
const LOOK = 10;
const PAGE = 100 * LOOK;

describe('the estimate of the remaining changes, for a client that reads one change at a time', () => {
  let store: Store;
  /** The number of positions examined. */
  let looked: number;

  const write = async (container: string, count: number) => {
    for (let n = 0; n < count; n += 1) {
      const item = itemToWrite({ id: `i${n}`, pk: 'p' });
      // Each by a request of its own, because a page never has a part of one request's changes.
      const caller = { ...CALLER, correlationId: randomUUID() };
      await store.writeItem(caller, store.container('d', container), 'upsert', item);
    }
  };
  const read = async (position: number): Promise<ChangeFeedPage> =>
    store.readChangeFeed(store.container('d', 'c'), {
      mode: 'latest',
      start: { kind: 'after', position },
      scope: {},
      maxItemCount: 1,
      countsLeft: true,
    });

  beforeEach(async () => {
    looked = 0;
    ({ store } = await openInlineStore('feed-left', ({ log }) => {
      const scan = log.scan.bind(log);
      log.scan = async (after, maxCount, ...rest) => {
        const part = await scan(after, Math.min(maxCount, LOOK), ...rest);
        looked += part.position - after;
        return part;
      };
    }));
    await store.createDatabase(CALLER, 'd');
    for (const name of ['c', 'other']) await store.createContainer(CALLER, 'd', name, DEFINITION, -1);
  });

  it('is found by repeated requests from the same place, however much was written to other containers meanwhile', async () => {
    const start = store.headPosition();
    await write('other', 2.5 * PAGE);
    await write('c', 1);
    const pages: ChangeFeedPage[] = [];
    while (pages.at(-1)?.changes.length !== 1 && pages.length < 5) pages.push(await read(start));
    expect(pages.map(({ changes, reachedEnd }) => [changes.length, reachedEnd])).toEqual([
      [0, false],
      [0, false],
      [1, false],
    ]);
    expect(pages.at(-1)!.left).toBe(0);
    looked = 0;
    expect((await read(start)).changes).toEqual(pages.at(-1)!.changes);
    expect(looked).toBeLessThanOrEqual(2 * LOOK);
  });

  it('includes what is not examined yet, and is exact once that is done', async () => {
    const start = store.headPosition();
    await write('c', 5);
    await write('other', PAGE);
    const counts: (number | undefined)[] = [];
    while (counts.at(-1) !== 4 && counts.length < 20) counts.push((await read(start)).left);
    expect(counts.length).toBeGreaterThan(2);
    expect(counts).toEqual(counts.toSorted((one, other) => other! - one!));
    expect(counts.at(-1)).toBe(4);
  });

  it('does not need another search of the log for each change', async () => {
    let position = store.headPosition();
    await write('c', 200);
    for (let left = 199; left >= 0; left -= 1) {
      const page = await read(position);
      expect(page.left).toBe(left);
      ({ position } = page);
    }
    expect(looked).toBeLessThan(200 * 2 * LOOK);
  });
});
