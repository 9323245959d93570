import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type ArchivedFile, readTar, writeTar } from '@epitaph/api/archive/tar.ts';
import { command, start } from '../cli/process.ts';
import { AUDITOR_KEY, createOrders, openWorld, ORDERS, WRITER, type World } from './world.ts';

const CONTENT = 'what nobody but a reader may see';
let world: World;
let folder: string;
let endpoint: string;
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'epitaph-bundle-'));
  world = await openWorld();
  endpoint = await world.app.listen({ host: '127.0.0.1', port: 0 });
  await world.write('early', { secret: CONTENT });
  await world.store.advanceClock(100_000);
  await world.ask('POST', '/purge/run');
  await world.write('late, with "quotes"', { secret: CONTENT });
  await world.write('kept', { ttl: -1, secret: CONTENT });
  await world.store.deleteItem(WRITER, world.store.container('shop', 'orders'), 'kept', '["ann"]');
  await world.store.advanceClock(100_000);
  await world.ask('POST', '/purge/run');
});
afterEach(async () => {
  await world.close();
  rmSync(folder, { recursive: true, force: true });
});

const CONTAINER_FACTS = 'container-facts/000001.ndjson';
const MIDDLE = '2026-11-21T10:02:00Z';

const epitaph = (...args: string[]) => command(args, { EPITAPH_ENDPOINT: endpoint, EPITAPH_KEY: AUDITOR_KEY });

async function keyFile(): Promise<string> {
  const file = path.join(folder, 'key');
  writeFileSync(file, (await world.ask('GET', '/proof/key')).body);
  return file;
}

async function makeBundle(...period: string[]): Promise<string> {
  const file = path.join(folder, 'bundle.tar.gz');
  const made = await epitaph('bundle', 'shop', 'orders', ...period, '--output', file);
  expect(made).toMatchObject({ code: 0, stdout: expect.stringContaining('Written to') as string });
  return file;
}

async function filesIn(file: string): Promise<ArchivedFile[]> {
  const files: ArchivedFile[] = [];
  for await (const found of readTar(Readable.from([gunzipSync(readFileSync(file))]))) files.push(found);
  return files;
}

/** A bundle with changed files. */
async function changed(file: string, edit: (files: ArchivedFile[]) => readonly ArchivedFile[]): Promise<string> {
  const files = edit(await filesIn(file));
  const chunks: Buffer[] = [];
  for await (const chunk of writeTar(Readable.from(files), 0)) chunks.push(chunk);
  const other = path.join(folder, 'changed.tar.gz');
  writeFileSync(other, gzipSync(Buffer.concat(chunks)));
  return other;
}

const replacing = (name: string, replace: (text: string) => string) => (files: ArchivedFile[]) =>
  files.map((one) => (one.name === name ? { name, content: Buffer.from(replace(one.content.toString())) } : one));

describe("an auditor's bundle", () => {
  test('for which there is no room on the disk reports that, and leaves no file', async () => {
    const file = path.join(folder, 'full.tar.gz');
    const named = vi.spyOn(crypto, 'randomUUID').mockReturnValue('abcdef01-0000-4000-8000-000000000000');
    symlinkSync('/dev/full', `${file}.abcdef01.part`);
    const { code, stderr } = await epitaph('bundle', 'shop', 'orders', '--output', file);
    named.mockRestore();
    expect(code).toBe(2);
    expect(stderr).toMatch(/full\.tar\.gz can't be written: ENOSPC/);
    expect(readdirSync(folder).filter((name) => name.startsWith('full'))).toEqual([]);
  });

  test('is complete even if others write to the same file at the same time', async () => {
    const file = path.join(folder, 'same.tar.gz');
    const made = await Promise.all([1, 2, 3].map(() => epitaph('bundle', 'shop', 'orders', '--output', file)));
    expect(made.map(({ code, stderr }) => [code, stderr])).toEqual([1, 2, 3].map(() => [0, '']));
    expect((await filesIn(file)).length).toBeGreaterThan(5);
    expect(readdirSync(folder).filter((name) => name.startsWith('same'))).toEqual(['same.tar.gz']);
  });

  test('replaces only a regular file, also through a link', async () => {
    const at = (name: string) => path.join(folder, name);
    for (const [link, target] of [
      ['link-to-device', '/dev/null'],
      ['link-to-file', at('linked.tar.gz')],
    ] as const) {
      symlinkSync(target, at(link));
    }
    writeFileSync(at('linked.tar.gz'), 'earlier');
    expect(await epitaph('bundle', 'shop', 'orders', '--output', at('link-to-device'))).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('link-to-device is not a regular file') as string,
    });
    expect(await epitaph('bundle', 'shop', 'orders', '--output', at('link-to-file'))).toMatchObject({ code: 0 });
    expect((await filesIn(at('linked.tar.gz'))).length).toBeGreaterThan(5);
    expect([readlinkSync(at('link-to-device')), readlinkSync(at('link-to-file'))]).toEqual([
      '/dev/null',
      at('linked.tar.gz'),
    ]);
    expect((await epitaph('bundle', 'shop', 'orders', '--output', '')).code).toBe(2);
  });

  test('leaves no file if a signal ends it', async () => {
    const slow = createServer((_request, response) => response.write('half')).listen(0, '127.0.0.1');
    await once(slow, 'listening');
    const { port } = slow.address() as { port: number };
    const file = path.join(folder, 'ended.tar.gz');
    const { child, finished } = start(
      ['bundle', 'shop', 'orders', '--output', file, '--endpoint', `http://127.0.0.1:${port}`],
      {},
    );
    const ended = finished();
    const isBegun = () => readdirSync(folder).some((name) => /^ended\.tar\.gz\..+\.part$/.test(name));
    await expect.poll(isBegun).toBe(true);
    child.kill('SIGTERM');
    expect((await ended).code).toBeNull();
    expect(child.signalCode).toBe('SIGTERM');
    expect(readdirSync(folder).filter((name) => name.startsWith('ended'))).toEqual([]);
    slow.closeAllConnections();
    slow.close();
  });

  test('holds what is recorded of a container, for the auditor key, and no content', async () => {
    const file = await makeBundle();
    const files = await filesIn(file);
    expect(files.map(({ name }) => name)).toEqual([
      'README.md',
      'bundle.json',
      'verifier-key.txt',
      'checkpoint.txt',
      'policies.json',
      'holds/000001.ndjson',
      'container-facts/000001.ndjson',
      'disappearances/000001.csv',
      'certificates/000001.ndjson',
    ]);
    const text = (name: string) => files.find((one) => one.name === name)!.content.toString();
    expect(text('disappearances/000001.csv').split('\r\n')).toHaveLength(5);
    expect(text('certificates/000001.ndjson').trim().split('\n')).toHaveLength(3);
    expect(text('certificates/000001.ndjson')).not.toMatch(/ann|early|quotes/);
    expect(JSON.parse(text('policies.json'))).toMatchObject({ current: { version: 1, defaultTtl: 60 } });
    for (const { name, content } of files) expect([name, content.includes(CONTENT)]).toEqual([name, false]);
  });

  test('tells how many items expired in the period without a record yet, so that the list is not taken for complete', async () => {
    const { rid } = world.store.container('shop', 'orders');
    const textsOf = async (...period: string[]) => {
      const files = await filesIn(await makeBundle('--rid', rid, ...period));
      const text = (name: string) => files.find((one) => one.name === name)!.content.toString();
      const { unrecordedExpiries } = JSON.parse(text('bundle.json')) as { unrecordedExpiries: number };
      return { unrecordedExpiries, readme: text('README.md'), rows: text('disappearances/000001.csv').split('\r\n') };
    };
    const whole = {
      unrecordedExpiries: 0,
      readme: expect.not.stringContaining('This bundle lacks some items') as string,
    };
    await world.ask('POST', '/purge/pause');
    const behind = new Date(world.store.nowMs()).toISOString();
    for (const id of ['behind', 'behind, too']) await world.write(id);
    await world.store.advanceClock(59_999);
    expect(await textsOf()).toMatchObject(whole);
    await world.store.advanceClock(1);
    const expiredAt = new Date(world.store.nowMs()).toISOString();
    const told = {
      unrecordedExpiries: 2,
      readme: expect.stringContaining('the expiry of 2 was not recorded') as string,
    };
    expect(await textsOf()).toMatchObject(told);
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    await world.store.advanceClock(100_000);
    expect(await textsOf()).toMatchObject(told);
    expect(await textsOf('--from', expiredAt)).toMatchObject(told);
    expect(await textsOf('--from', behind, '--to', expiredAt)).toMatchObject(whole);
    await world.ask('POST', '/purge/resume');
    await world.ask('POST', '/purge/run');
    const later = await textsOf('--from', expiredAt);
    expect(later).toMatchObject(whole);
    expect(later.rows.filter((row) => row.includes('behind'))).toHaveLength(2);
  });

  test('names deleted containers of the same name, and when they were deleted, also with their database', async () => {
    const first = world.store.container('shop', 'orders').rid;
    const manifestOf = async (...more: string[]) => {
      const files = await filesIn(await makeBundle(...more));
      const text = (name: string) => files.find((one) => one.name === name)!.content.toString();
      return { ...(JSON.parse(text('bundle.json')) as object), readme: text('README.md') };
    };
    const named = 'bundle.json names them (`earlierContainers`)';
    const alone = { earlierContainers: [], readme: expect.not.stringContaining(named) as string };
    expect(await manifestOf()).toMatchObject(alone);
    await world.store.deleteContainer(WRITER, 'shop', 'orders');
    await createOrders(world.store, 60);
    const second = world.store.container('shop', 'orders').rid;
    await world.store.advanceClock(1_000);
    await world.store.deleteDatabase(WRITER, 'shop');
    await world.store.createDatabase(WRITER, 'shop');
    await createOrders(world.store, 60);
    const atFirst = { rid: first, name: 'orders', deletedAt: '2026-11-21T10:03:20.001Z' };
    const atSecond = { rid: second, name: 'orders', deletedAt: '2026-11-21T10:03:21.001Z' };
    expect(await manifestOf()).toMatchObject({
      earlierContainers: [atSecond, atFirst],
      readme: expect.stringContaining(named) as string,
    });
    const verdict = await epitaph('verify', 'bundle', await makeBundle(), '--public-key', await keyFile());
    expect(verdict.code).toBe(0);
    expect(await manifestOf('--rid', second)).toMatchObject({ container: atSecond, earlierContainers: [atFirst] });
    expect(await manifestOf('--rid', first)).toMatchObject({ container: atFirst, ...alone });
  });

  test('has all holds in several files, also released ones, and reads a few at a time', async () => {
    const container = world.store.container('shop', 'orders');
    const items = Array.from({ length: 100 }, (_, index) => ({ id: `${index}`, partitionKey: '["ann"]' }));
    const count = 330;
    for (let number = 0; number < count; number++) {
      const request = { scope: { kind: 'items' as const, items }, reason: `case ${number}`.padEnd(1_000) };
      await world.store.placeHold(WRITER, container, `h${number}`, request);
      if (number % 2 === 0) await world.store.releaseHold(WRITER, container, `h${number}`, 'closed');
    }
    const read = vi.spyOn(world.store, 'holds');
    const files = (await filesIn(await makeBundle())).filter(({ name }) => name.startsWith('holds'));
    expect(files.map(({ name }) => name)).toEqual(['holds/000001.ndjson', 'holds/000002.ndjson']);
    const pages = await Promise.all(read.mock.results.map(({ value }) => value as Promise<readonly unknown[]>));
    expect(pages.map((page) => page.length)).toEqual([100, 100, 100, 30, 0]);
    const lines = Buffer.concat(files.map(({ content }) => content)).toString();
    const holds = lines
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(holds).toEqual((await world.get(`${ORDERS}/holds`))['holds']);
    expect(holds[0]).toMatchObject({ id: 'h0', state: 'released', count: 100, released: { reason: 'closed' } });
    expect(holds[1]).toMatchObject({ id: 'h1', state: 'standing', count: 100 });
  });

  test('has the facts of the container in several files, and verification needs all of them', async () => {
    const container = world.store.container('shop', 'orders');
    const hold = { scope: { kind: 'container' as const }, reason: '\u0001'.repeat(1_000) };
    const ids = Array.from({ length: 180 }, (_, number) => `h${number}`);
    await Promise.all(ids.map((id) => world.store.placeHold(WRITER, container, id, hold)));
    const file = await makeBundle();
    const facts = (await filesIn(file)).filter(({ name }) => name.startsWith('container-facts'));
    expect(facts.map(({ name }) => name)).toEqual([CONTAINER_FACTS, 'container-facts/000002.ndjson']);
    for (const { content } of facts) expect(content.length).toBeLessThan(1_500_000);
    const verify = async (bundle: string) => epitaph('verify', 'bundle', bundle, '--public-key', await keyFile());
    const good = expect.stringContaining('good: 3 certificates and 181 facts of the container') as string;
    expect(await verify(file)).toMatchObject({ code: 0, stdout: good });
    const withoutFirst = await changed(file, (files) => files.filter(({ name }) => name !== CONTAINER_FACTS));
    const missing = expect.stringContaining('facts of the container are missing') as string;
    expect(await verify(withoutFirst)).toMatchObject({ code: 1, stdout: missing });
    // As in the first format.
    const together = await changed(file, (files) => {
      const old = { name: 'container-facts.ndjson', content: Buffer.concat(facts.map(({ content }) => content)) };
      const others = replacing('bundle.json', (text) => text.replace('bundle/2', 'bundle/1'))(files);
      return others.flatMap((one) =>
        one.name === CONTAINER_FACTS ? [old] : facts.some(({ name }) => name === one.name) ? [] : [one],
      );
    });
    expect(await verify(together)).toMatchObject({ code: 0, stdout: good });
  });

  test('is a plain tar archive for other programs', async () => {
    execFileSync('tar', ['-xzf', await makeBundle(), '-C', folder]);
    expect(readdirSync(path.join(folder, 'certificates'))).toEqual(['000001.ndjson']);
    expect(readFileSync(path.join(folder, 'README.md'), 'utf8')).toContain('epitaph verify bundle');
  });

  test('covers the period asked for', async () => {
    const after = await filesIn(await makeBundle('--from', MIDDLE));
    expect(after.at(-1)!.content.toString().trim().split('\n')).toHaveLength(2);
    expect(after.at(-2)!.content.toString()).not.toContain('early');
    const before = await filesIn(await makeBundle('--to', MIDDLE));
    expect(before.at(-1)!.content.toString().trim().split('\n')).toHaveLength(1);
  });

  test('is verified by the public key alone, and not if anything with a proof was changed', async () => {
    const file = await makeBundle('--from', MIDDLE);
    const key = await keyFile();
    const verify = async (bundle: string) => epitaph('verify', 'bundle', bundle, '--public-key', key);
    expect(await verify(file)).toEqual({
      code: 0,
      stdout: 'good: 2 certificates and 1 fact of the container, all in the tree that was signed.\n',
      stderr: '',
    });
    const certificates = 'certificates/000001.ndjson';
    const first = (name: string) => (text: string) => text.replace(name, `${name.slice(0, -1)}x`);
    const otherContainer = (await filesIn(file)).find(({ name }) => name === CONTAINER_FACTS)!;
    const cases: readonly [string, (files: ArchivedFile[]) => readonly ArchivedFile[]][] = [
      ['not in the tree', replacing(CONTAINER_FACTS, first('key:primary'))],
      ['facts of the container are missing', replacing(CONTAINER_FACTS, () => '')],
      ['does not follow from its facts', replacing(certificates, first('system:purge'))],
      [
        'It lacks parts of a certificate',
        replacing(certificates, () => '{"format":"epitaph.certificate-of-disposal/1"}\n'),
      ],
      ['another container', replacing('bundle.json', (text) => text.replace(/"rid": "./, '"rid": "!'))],
      ['names a container "invoices"', replacing('bundle.json', (text) => text.replace('"orders"', '"invoices"'))],
      [
        'another time of creation',
        replacing('bundle.json', (text) => text.replace(/"createdAtMs": 1/, '"createdAtMs": 2')),
      ],
      [
        'another time of creation',
        replacing('bundle.json', (text) => text.replace(/"createdAt": "2026/, '"createdAt": "2025')),
      ],
      ['outside of the period', replacing('bundle.json', (text) => text.replace(/"from": "2026/, '"from": "2027'))],
      ['another tree size', replacing('bundle.json', (text) => text.replace(/"treeSize": \d+/, '"treeSize": 1'))],
      ['not signed by this key', replacing('checkpoint.txt', (text) => text.replace(/\n\d+\n/, '\n1\n'))],
      ['checkpoint is missing', (files) => files.filter(({ name }) => name !== 'checkpoint.txt')],
      ['no signed checkpoint before it', (files) => [otherContainer, ...files]],
      ['certificates is missing', (files) => files.filter(({ name }) => name !== certificates)],
      ['not a bundle', (files) => files.filter(({ name }) => name !== 'bundle.json')],
    ];
    for (const [problem, edit] of cases) {
      const verdict = await verify(await changed(file, edit));
      expect([problem, verdict.code, verdict.stdout.includes(problem) ? '' : verdict.stdout]).toEqual([problem, 1, '']);
    }
    const cut = path.join(folder, 'cut');
    writeFileSync(cut, readFileSync(file).subarray(0, 900));
    expect(await verify(cut)).toMatchObject({ code: 1, stdout: expect.stringContaining("can't be read") as string });
    expect((await verify(path.join(folder, 'nothing'))).code).toBe(2);
  });

  test('is not verified with parts of an older bundle, although each part was signed', async () => {
    const older = await filesIn(await makeBundle());
    await world.store.placeHold(WRITER, world.store.container('shop', 'orders'), 'h', {
      scope: { kind: 'container' },
      reason: 'a case',
    });
    const file = await makeBundle();
    const key = await keyFile();
    const withOlder = (...names: string[]) =>
      changed(file, (files) =>
        files.map((one) => (names.includes(one.name) ? older.find(({ name }) => name === one.name)! : one)),
      );
    const verify = async (bundle: string) => epitaph('verify', 'bundle', bundle, '--public-key', key);
    expect((await verify(await withOlder('README.md'))).code).toBe(0);
    // Facts without the hold, once with all the certificates and once with none.
    const mixed = await verify(await withOlder('checkpoint.txt', CONTAINER_FACTS));
    expect(mixed).toMatchObject({ code: 1, stdout: expect.stringContaining('another tree size') as string });
    const without = await changed(await withOlder('checkpoint.txt', CONTAINER_FACTS), (files) =>
      replacing('certificates/000001.ndjson', () => '')(files),
    );
    expect(await verify(without)).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('another tree size') as string,
    });
  });

  test('is not verified if another program could unpack anything else than what was checked', async () => {
    const file = await makeBundle();
    const key = await keyFile();
    const verify = async (bundle: string) => epitaph('verify', 'bundle', bundle, '--public-key', key);
    const adding = (name: string, content: string) => (files: ArchivedFile[]) => [
      ...files,
      { name, content: Buffer.from(content) },
    ];
    const certificates = 'certificates/000001.ndjson';
    const twice = (files: ArchivedFile[]) =>
      replacing(certificates, (text) => `${text}${text.split('\n')[0]}\n`)(files);
    const notOf = 'not a file of a bundle';
    const cases: readonly [string, (files: ArchivedFile[]) => readonly ArchivedFile[]][] = [
      ['is in the bundle twice', adding(certificates, '')],
      ['is in the bundle twice', adding('disappearances/000001.csv', '')],
      ['is in the bundle twice', (files) => [...files, files.find(({ name }) => name === 'checkpoint.txt')!]],
      ['is in the bundle twice', (files) => [...files, files.find(({ name }) => name === 'bundle.json')!]],
      [notOf, adding(`./${certificates}`, '{}')],
      [notOf, adding(`x/../${certificates}`, '{}')],
      [notOf, adding(`C${certificates.slice(1)}`, '{}')],
      [notOf, adding('container-facts/../../README.md', '')],
      ['has two certificates', twice],
    ];
    for (const [problem, edit] of cases) {
      const verdict = await verify(await changed(file, edit));
      expect([problem, verdict.code, verdict.stdout.includes(problem) ? '' : verdict.stdout]).toEqual([problem, 1, '']);
    }
    const whole = gunzipSync(readFileSync(file));
    const packed = (bytes: Uint8Array) => {
      const other = path.join(folder, 'other.tar.gz');
      writeFileSync(other, bytes);
      return other;
    };
    // Another program would unpack this file under the name's prefix.
    const prefixed = Buffer.from(whole);
    prefixed.write('x', 345);
    prefixed.write((Number.parseInt(prefixed.toString('latin1', 148, 154), 8) + 120).toString(8).padStart(6, '0'), 148);
    expect((await verify(packed(gzipSync(prefixed)))).code).toBe(1);
    // A program that reads on after the end finds more files.
    expect((await verify(packed(gzipSync(Buffer.concat([whole, whole]))))).code).toBe(1);
    expect((await verify(packed(gzipSync(whole.subarray(0, -512))))).code).toBe(1);
    expect((await verify(packed(gzipSync(Buffer.concat([whole, Buffer.alloc(8192)]))))).code).toBe(0);
    const zipped = readFileSync(file);
    expect((await verify(packed(zipped.subarray(0, -4)))).code).toBe(1);
    zipped[zipped.length - 6]! ^= 1;
    expect((await verify(packed(zipped))).code).toBe(1);
  });

  test('is not begun for a container that does not exist', async () => {
    const made = await epitaph('bundle', 'shop', 'nothing', '--output', path.join(folder, 'x'));
    expect(made).toMatchObject({ code: 1, stderr: expect.stringContaining('container-not-found') as string });
    expect(readdirSync(folder)).toEqual([]);
    expect((await epitaph('bundle', 'shop', 'orders')).code).toBe(2);
    expect((await epitaph('bundle', 'shop', 'orders', '--output', path.join(folder, 'no/folder'))).code).toBe(2);
  });
});

describe('certificates', () => {
  test('of a period come line by line', async () => {
    const response = await world.ask('GET', `${ORDERS}/certificates?from=${MIDDLE}`, { key: AUDITOR_KEY });
    const certificates = response.body.trim().split('\n');
    expect(certificates.map((line) => (JSON.parse(line) as { statement: { cause: string } }).statement.cause)).toEqual([
      'deleted',
      'expired',
    ]);
    const file = path.join(folder, 'certificates');
    writeFileSync(file, response.body);
    const verdict = await epitaph('verify', 'certificate', file, '--public-key', await keyFile());
    expect([verdict.code, verdict.stdout.match(/^good: /gm)?.length]).toEqual([0, 2]);
  });

  test('of a purge run are that of the run and those of the lives that it erased', async () => {
    const { runs } = (await world.get('/purge/runs')) as { runs: readonly { readonly id: string }[] };
    expect(runs).toMatchObject([
      { expired: 1, purged: 1, heldBack: 0 },
      { expired: 1, purged: 2, heldBack: 0 },
    ]);
    const response = await world.ask('GET', `/purge/runs/${runs[1]!.id}/certificates`, { key: AUDITOR_KEY });
    const lines = response.body.trim().split('\n');
    expect(lines).toHaveLength(3);
    const file = path.join(folder, 'run');
    const key = await keyFile();
    writeFileSync(file, response.body);
    expect(await epitaph('verify', 'certificate', file, '--public-key', key)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^good: purge run \S+, 2026-11-21T10:03:20\.000Z to 2026-/) as string,
    });
    writeFileSync(file, response.body.replace('"purged":2', '"purged":1'));
    expect((await epitaph('verify', 'certificate', file, '--public-key', key)).code).toBe(1);
  });

  test('runs are listed page by page', async () => {
    const first = await world.get('/purge/runs?limit=1');
    expect(first).toMatchObject({ runs: [{ purged: 1 }], next: expect.any(Number) as number });
    const second = await world.get(`/purge/runs?limit=1&after=${String(first['next'])}`);
    expect(second).toEqual({ runs: [expect.objectContaining({ purged: 2 })] });
    const nothing = await world.ask('GET', '/purge/runs/nothing/certificates');
    expect([nothing.statusCode, nothing.json<{ code: string }>().code]).toEqual([404, 'purge-run-not-found']);
  });

  test('cover every life, in whatever tile of the tree its facts are', async () => {
    for (let n = 0; n < 300; n += 1) await world.write(`n${n}`);
    await world.store.advanceClock(100_000);
    await world.ask('POST', '/purge/run');
    const file = path.join(folder, 'many');
    writeFileSync(file, (await world.ask('GET', `${ORDERS}/certificates`)).body);
    const verdict = await epitaph('verify', 'certificate', file, '--public-key', await keyFile());
    expect([verdict.code, verdict.stdout.match(/^good: /gm)?.length]).toEqual([0, 303]);
  });
});
