import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { AUDITOR_KEY, openWorld, ORDERS, WRITER, type World } from './world.ts';

/** Each character takes six in JSON, so that hundreds of facts and not thousands make megabytes. */
const LONG = '\u0001'.repeat(1_000);
const HOLDS = 700;
/** The size limit of an answer: a page and one entry. */
const MOST_BYTES = 4_000_000;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

interface Page {
  readonly [name: string]: unknown;
  readonly continuation?: string;
}

async function pageOf(target: string, continuation?: string): Promise<{ readonly page: Page; readonly bytes: number }> {
  const more = continuation === undefined ? '' : `&continuation=${continuation}`;
  const { body, statusCode } = await world.ask('GET', `${ORDERS}/${target}?limit=1000${more}`, { key: AUDITOR_KEY });
  expect(statusCode).toBe(200);
  return { page: JSON.parse(body) as Page, bytes: Buffer.byteLength(body) };
}

async function allPagesOf(target: string, name: string): Promise<{ entries: unknown[]; pages: number; most: number }> {
  const found = { entries: [] as unknown[], pages: 0, most: 0 };
  let continuation: string | undefined;
  do {
    const { page, bytes } = await pageOf(target, continuation);
    found.entries.push(...(page[name] as unknown[]));
    found.pages += 1;
    found.most = Math.max(found.most, bytes);
    continuation = page.continuation;
  } while (continuation !== undefined);
  return found;
}

describe('lists of large facts', () => {
  test(
    'come in pages that end before they are very large, without gaps or repetitions',
    { timeout: 120_000 },
    async () => {
      const container = world.store.container('shop', 'orders');
      for (let n = 0; n < HOLDS; n += 50) {
        const ids = Array.from({ length: 50 }, (_, index) => `h${n + index}`);
        const hold = { reason: LONG, scope: { kind: 'container' } } as const;
        await Promise.all(ids.map((id) => world.store.placeHold(WRITER, container, id, hold)));
      }
      await world.ask('DELETE', `${ORDERS}/holds/h1`, { body: { reason: LONG } });
      for (const [target, name, count] of [
        ['holds', 'holds', HOLDS],
        ['history', 'events', HOLDS + 2],
      ] as const) {
        const { entries, pages, most } = await allPagesOf(target, name);
        expect([target, entries.length, most < MOST_BYTES, pages > 1]).toEqual([target, count, true, true]);
        // The whole list comes as well, but never all of it in memory.
        const sent = vi.spyOn(JSON, 'stringify');
        const whole = await world.ask('GET', `${ORDERS}/${target}`, { key: AUDITOR_KEY });
        const longest = Math.max(...sent.mock.results.map(({ value }) => (value as string | undefined)?.length ?? 0));
        sent.mockRestore();
        expect(whole.headers['content-type']).toBe('application/json; charset=utf-8');
        expect(whole.json<Page>()).toEqual({ container: expect.anything(), [name]: entries });
        expect(Buffer.byteLength(whole.body)).toBeGreaterThan(MOST_BYTES);
        expect(longest).toBeLessThan(MOST_BYTES);
      }
    },
  );
});
