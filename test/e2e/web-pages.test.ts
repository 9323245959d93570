import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { whyWithout } from '../support/programs.ts';
import { keyHeader, raw, signature } from './support/raw.ts';
import { World } from './support/world.ts';

const APP = 'https://app.example.com';
const ITEM = '/dbs/shop/colls/c1/docs/a';
/** The preflight request, which a browser sends first if a request is not as simple as that of a form. */
const PREFLIGHT = {
  authorization: null,
  headers: {
    origin: APP,
    'access-control-request-method': 'GET',
    'access-control-request-headers': 'authorization,x-ms-date,x-ms-documentdb-partitionkey,x-ms-version',
  },
};

let world: World;
afterEach(() => world.end());

async function open(origins?: readonly string[]): Promise<void> {
  world = await World.open(origins === undefined ? {} : { origins });
  const container = await world.container();
  await container.items.create({ id: 'a', customer: 'ann', total: 7 });
  await container.items.create({ id: 'b', customer: 'bob', total: 8 });
}

describe('web pages of other origins', () => {
  test('that are allowed may send requests, and read answers and refusals with all their headers', async () => {
    await open([APP, 'http://localhost:5173']);
    const asked = await raw(world.endpoint, 'OPTIONS', ITEM, PREFLIGHT);
    expect(asked).toMatchObject({
      status: 204,
      headers: {
        'access-control-allow-origin': APP,
        'access-control-allow-methods': 'GET,HEAD,POST,PUT,PATCH,DELETE',
        'access-control-allow-headers': PREFLIGHT.headers['access-control-request-headers'],
        'access-control-max-age': '7200',
      },
    });
    const headers = { origin: APP, ...keyHeader('ann') };
    const shared = { 'access-control-allow-origin': APP, 'access-control-expose-headers': '*' };
    const read = await raw(world.endpoint, 'GET', ITEM, { headers });
    expect(read).toMatchObject({ status: 200, headers: shared, json: { total: 7 } });
    expect(read.headers['vary']).toMatch(/Origin/);
    expect(read.headers['x-ms-request-charge']).toBe('1');
    expect(await raw(world.endpoint, 'GET', `${ITEM}b`, { headers })).toMatchObject({ status: 404, headers: shared });
    expect(await raw(world.endpoint, 'GET', ITEM, { headers, authorization: null })).toMatchObject({
      status: 401,
      headers: shared,
    });
  });

  test('that are not allowed learn nothing, and no page does from the management plane', async () => {
    await open([APP]);
    const other = { origin: 'https://app.example.com.evil.example', ...keyHeader('ann') };
    const asked = await raw(world.endpoint, 'OPTIONS', ITEM, { headers: { ...PREFLIGHT.headers, ...other } });
    const read = await raw(world.endpoint, 'GET', ITEM, { headers: other });
    const managed = await raw(world.endpoint, 'GET', '/_epitaph/purge', {
      headers: { origin: APP },
      authorization: `Bearer ${EMULATOR_KEY}`,
    });
    expect(managed.status).toBe(200);
    for (const { headers } of [asked, read, managed]) expect(headers).not.toHaveProperty('access-control-allow-origin');
    expect((await raw(world.endpoint, 'OPTIONS', '/_epitaph/purge', PREFLIGHT)).status).not.toBe(204);
  });

  test('of any origin may call if all are allowed', async () => {
    await open(['*']);
    const { headers } = await raw(world.endpoint, 'GET', ITEM, { headers: { origin: APP, ...keyHeader('ann') } });
    expect(headers).toMatchObject({ 'access-control-allow-origin': '*', 'access-control-expose-headers': '*' });
  });

  test('are not allowed by default', async () => {
    await open();
    expect((await raw(world.endpoint, 'OPTIONS', ITEM, PREFLIGHT)).status).toBe(401);
    const { headers } = await raw(world.endpoint, 'GET', ITEM, { headers: { origin: APP, ...keyHeader('ann') } });
    expect(headers).not.toHaveProperty('access-control-allow-origin');
  });

  const skipped = whyWithout('chromium');
  test.skipIf(skipped !== '')(`read in a real browser what they are allowed to${skipped}`, async () => {
    const told = await inBrowser(`[
      await tell('${ITEM}', ${JSON.stringify(signed('docs', ITEM.slice(1), 'ann'))}),
      await tell('/_epitaph/purge', ${JSON.stringify({ authorization: `Bearer ${EMULATOR_KEY}` })}),
    ]`);
    const [item, managed] = told as [[number, string, string], string];
    expect(item.slice(0, 2)).toEqual([200, '1']);
    expect(JSON.parse(item[2])).toMatchObject({ id: 'a', total: 7 });
    expect(managed).toBe('Failed to fetch');
  });

  test.skipIf(skipped !== '')(
    `get the changes of the partition key that they ask for, not those of another that their browser has cached${skipped}`,
    async () => {
      const changesOf = (customer: string) =>
        `await tell('/dbs/shop/colls/c1/docs', ${JSON.stringify({
          ...signed('docs', 'dbs/shop/colls/c1', customer),
          'a-im': 'Incremental feed',
        })})`;
      const told = await inBrowser(`[${changesOf('ann')}, ${changesOf('bob')}]`);
      const items = (told as [number, string, string][]).map(
        ([, , page]) => (JSON.parse(page) as { readonly Documents: readonly { readonly id: string }[] }).Documents,
      );
      expect(items).toMatchObject([[{ id: 'a' }], [{ id: 'b' }]]);
    },
  );
});

const signed = (type: string, link: string, customer: string): Readonly<Record<string, string>> => {
  const date = new Date().toUTCString();
  return {
    authorization: signature('GET', type, link, date, EMULATOR_KEY),
    'x-ms-date': date,
    'x-ms-version': '2020-07-15',
    ...keyHeader(customer),
  };
};

/**
 * What a page on a server of its own finds out in a real browser.
 *
 * @param asked an expression for the page's script. It may call `tell` with a path and headers for the store's answer
 */
async function inBrowser(asked: string): Promise<unknown> {
  const page = createServer((_request, response) => {
    response.setHeader('content-type', 'text/html').end(`<p id="told"></p><script type="module">
      const tell = async (path, headers) => {
        try {
          const answer = await fetch(${JSON.stringify(world.endpoint)} + path, { headers });
          return [answer.status, answer.headers.get('x-ms-request-charge'), await answer.text()];
        } catch (error) {
          return error.message;
        }
      };
      document.getElementById('told').textContent = JSON.stringify(${asked});
    </script>`);
  });
  await new Promise<void>((resolve) => page.listen(0, '127.0.0.1', resolve));
  const origin = `http://127.0.0.1:${(page.address() as AddressInfo).port}`;
  const profile = await mkdtemp(join(tmpdir(), 'epitaph-chromium-'));
  try {
    await open([origin]);
    const { stdout } = await promisify(execFile)(
      'chromium',
      [
        '--headless=new',
        '--no-sandbox',
        '--disable-gpu',
        `--user-data-dir=${profile}`,
        '--virtual-time-budget=20000',
        '--dump-dom',
        `${origin}/`,
      ],
      { timeout: 25_000 },
    );
    return JSON.parse(/<p id="told">(.*)<\/p>/.exec(stdout)![1]!);
  } finally {
    page.closeAllConnections();
    page.close();
    await rm(profile, { recursive: true, force: true });
  }
}
