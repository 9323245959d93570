import {
  type ChangeFeedMode,
  ChangeFeedStartFrom,
  CosmosClient,
  type FeedOptions,
  type FeedResponse,
} from '@azure/cosmos';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { brotliDecompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '@epitaph/api/cli/main.ts';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { type Explained, type Fields, World } from '../e2e/support/world.ts';

/**
 * What a store of the version of 2026-11-22 (872843ab) with a manual clock has left: its data folder, a backup taken before its last purge,
 * and a bundle, in one archive; and its answers to some questions.
 */
interface Former {
  readonly files: readonly { readonly name: string; readonly bytes: number }[];
  readonly content: string;
  readonly answers: string;
}

interface Answers {
  readonly nowMs: number;
  readonly ledgerHead: string;
  readonly checkpoint: string;
  /** A token of a permission for the partition key `c` of `orders`. */
  readonly token: string;
  readonly queries: readonly {
    readonly container: string;
    readonly query: string;
    /** The continuation after the first row. */
    readonly token: string;
    readonly rows: readonly unknown[];
  }[];
  readonly feeds: readonly {
    readonly mode: ChangeFeedMode;
    readonly token: string;
    readonly rows: readonly Fields[];
  }[];
  readonly rows: Readonly<Record<string, readonly Fields[]>>;
  /** The answers to management calls by their paths, without texts that later versions word differently. */
  readonly asks: Readonly<Record<string, Fields>>;
}

const unpacked = (text: string): Buffer => brotliDecompressSync(Buffer.from(text, 'base64'));

let answers: Answers;
let folder: string;
let world: World;
let restored: World | undefined;
const file = (name: string): string => join(folder, name);

beforeAll(async () => {
  const former = JSON.parse(await readFile(join(import.meta.dirname, '../data/former-store.json'), 'utf8')) as Former;
  answers = JSON.parse(unpacked(former.answers).toString()) as Answers;
  folder = await mkdtemp(join(tmpdir(), 'epitaph-former-store-'));
  const content = unpacked(former.content);
  let at = 0;
  for (const { name, bytes } of former.files) {
    await mkdir(dirname(file(name)), { recursive: true });
    await writeFile(file(name), content.subarray(at, at + bytes), { mode: 0o600 });
    at += bytes;
  }
  await writeFile(file('head'), answers.ledgerHead);
  await writeFile(file('checkpoint'), answers.checkpoint);
  await writeFile(file('key.json'), JSON.stringify(answers.asks['/proof/key']));
  await writeFile(file('former.key'), await readFile(file('data/master.key')));
  await writeFile(file('ledger'), await readFile(file('data/purge-ledger.ndjson')));
  world = await World.open({ folder: file('data'), startMs: answers.nowMs });
});
afterAll(async () => {
  await world.stop();
  await restored?.stop();
  await rm(folder, { recursive: true, force: true });
});

const of = (id: string, ...key: string[]) =>
  `id=${encodeURIComponent(id)}&partitionKey=${encodeURIComponent(JSON.stringify(key))}`;

const explain = async (store: World, container: string, item: string) =>
  (await store.manage<Explained>('GET', `/dbs/shop/colls/${container}/explain?${item}`)).body;

/** A command that needs no server. */
async function command(...args: string[]): Promise<{ readonly code: number; readonly printed: string }> {
  const printed: string[] = [];
  const output = {
    print: (line: string) => printed.push(line),
    stderr: { write: (text: string) => printed.push(text) },
  };
  const code = await run(args, {}, output);
  return { code, printed: printed.join('\n') };
}

describe('a store of a former version', () => {
  it('answers questions about its history as that version did', async () => {
    for (const [path, answer] of Object.entries(answers.asks)) {
      expect({ path, body: (await world.manage('GET', path)).body }).toMatchObject({ path, body: answer });
    }
    expect(Object.keys(answers.asks).length).toBeGreaterThan(60);
  });

  it('has its items as they were', async () => {
    for (const [container, rows] of Object.entries(answers.rows)) {
      const { resources } = await world.of(container).items.query('SELECT * FROM c ORDER BY c.id').fetchAll();
      expect(resources, container).toEqual(rows);
    }
  });

  it('agrees with its log', async () => {
    expect(await world.fsck()).toEqual([]);
  });

  it.each([0, 1, 2, 3, 4, 5])('continues a query from its old token (%i)', async (index) => {
    const { container, query, token, rows } = answers.queries[index]!;
    const found: unknown[] = [];
    let continuationToken: string | undefined = token;
    while (continuationToken !== undefined) {
      const options: FeedOptions = { maxItemCount: 1, continuationToken };
      const page: FeedResponse<unknown> = await world.of(container).items.query<unknown>(query, options).fetchNext();
      found.push(...page.resources);
      continuationToken = page.continuationToken;
    }
    expect(found).toEqual(rows);
  });

  it.each([0, 1])('continues a change feed from its old token (%i)', async (index) => {
    const { mode, token, rows } = answers.feeds[index]!;
    const changes = world.of('feed').items.getChangeFeedIterator({
      changeFeedStartFrom: ChangeFeedStartFrom.Continuation(token),
      changeFeedMode: mode,
    });
    const found: unknown[] = [];
    for (let page = await changes.readNext(); page.statusCode !== 304; page = await changes.readNext()) {
      found.push(...(page.result as unknown[]));
    }
    expect(JSON.parse(JSON.stringify(found))).toEqual(rows);
    expect(rows).not.toEqual([]);
  });

  it('accepts its old resource tokens, for what they are for and no more', async () => {
    const client = new CosmosClient({
      endpoint: world.endpoint,
      tokenProvider: () => Promise.resolve(answers.token),
    });
    const orders = client.database('shop').container('orders');
    expect((await orders.item('o1', 'c').read()).statusCode).toBe(200);
    await expect(orders.item('o1', 'd').read()).rejects.toMatchObject({ code: 403 });
    client.dispose();
  });

  it('has a bundle and a checkpoint that the present version verifies', async () => {
    const key = ['--public-key', file('key.json')];
    expect(await command('verify', 'bundle', file('bundle.tar.gz'), ...key)).toMatchObject({ code: 0 });
    const facts = await fetch(`${world.endpoint}/_epitaph/proof/facts`, {
      headers: { authorization: `Bearer ${EMULATOR_KEY}` },
    });
    await writeFile(file('facts'), await facts.text());
    const verdict = await command('verify', 'log', file('facts'), '--checkpoint', file('checkpoint'), ...key);
    expect(verdict).toMatchObject({ code: 0 });
  });

  it('goes on: overdue items are erased, held ones are kept, values of unique keys are taken or free as before', async () => {
    await world.manage('POST', '/purge/resume', {});
    await world.purge();
    expect(await explain(world, 'sessions', of('due', 'eve'))).toMatchObject({ state: 'purged', rule: 'item-ttl' });
    expect(await explain(world, 'sessions', of('held', 'bob'))).toMatchObject({ state: 'expired' });
    const names = world.of('names').items;
    await expect(names.create({ id: 'other', user: 'ann', name: 'one' })).rejects.toMatchObject({ code: 409 });
    await names.create({ id: 'other', user: 'ann', name: 'two' });
    const recovered = await world.manage('POST', '/dbs/shop/colls/tenants/recover', {
      policyVersion: 2,
      reason: 'back',
    });
    expect(recovered).toMatchObject({ status: 200, body: { recovered: 1 } });
    await world.restart();
    expect(await world.fsck()).toEqual([]);
  });

  it('can be restored from its old backup, and erases again what was erased since', async () => {
    const data = file('restored');
    const parts = ['--log', file('backup/log'), '--vault', file('backup/vault'), '--allow-lapsed'];
    const ledger = ['--ledger', file('ledger'), '--ledger-head', file('head')];
    const key = ['--master-key-file', file('former.key')];
    const { code, printed } = await command('restore', ...parts, ...ledger, ...key, '--to', data);
    expect({ code, printed }).toMatchObject({ code: 0 });
    restored = await World.open({ folder: data, startMs: answers.nowMs });
    expect(await explain(restored, 'sessions', of('late', 'cid'))).toMatchObject({ state: 'purged' });
    expect((await restored.of('names').item('after', 'ann').read()).statusCode).toBe(404);
    expect((await restored.of('names').item('one', 'ann').read()).statusCode).toBe(200);
    expect(await restored.fsck()).toEqual([]);
  });
});
