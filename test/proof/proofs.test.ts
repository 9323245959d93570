import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { renameItem } from '@epitaph/api/cosmos/rename.ts';
import { EMULATOR_KEY, KeyRing } from '@epitaph/api/http/keys.ts';
import { buildServer } from '@epitaph/api/http/server.ts';
import { registerManagement } from '@epitaph/api/management/plugin.ts';
import type { ItemToWrite } from '@epitaph/api/store/api/items-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { type CertifiedFact, type DisposalCertificate, disposalStatement } from '@epitaph/core/proof/certificate.ts';
import type { FactLeaf } from '@epitaph/core/proof/leaf.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { SqliteEventLog } from '@epitaph/storage/sqlite/sqlite-event-log.ts';
import { SqliteKeyVault } from '@epitaph/storage/sqlite/sqlite-key-vault.ts';
import { sha256 } from '@epitaph/projections/proof/proof-tree.ts';
import { type PurgeRunCertificate, purgeRunStatement } from '@epitaph/projections/proof/run-certificate.ts';
import { command } from '../../packages/api/test/cli/process.ts';

const caller = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000001' };
const START_MS = Date.UTC(2026, 10, 21, 10);
const SECRET = 'ann@example.com';

let folder: string;
let store: Store;
let endpoint: string;
let closeServer: () => Promise<void>;

async function open(): Promise<void> {
  store = await openEmbeddedStore({
    folder: join(folder, 'data'),
    clock: 'manual',
    startMs: START_MS,
    writers: 'inline',
    durable: false,
    automaticPurge: false,
  });
  const keys = new KeyRing({ primary: EMULATOR_KEY });
  const app = buildServer({ store, keys, plugins: [(server) => registerManagement(server, { store, keys })] });
  endpoint = await app.listen({ host: '127.0.0.1', port: 0 });
  closeServer = async () => {
    await app.close();
    await store.close();
  };
}

const container = () => store.container('shop', 'orders');

function itemOf(id: string): ItemToWrite {
  const document = { id, customer: SECRET, text: 'what it is about' };
  return { id, partitionKey: JSON.stringify([SECRET]), document, json: JSON.stringify(document) };
}

async function write(id: string): Promise<void> {
  await store.writeItem(caller, container(), 'upsert', itemOf(id));
}

const ask = (...args: string[]) => command(args, { EPITAPH_ENDPOINT: endpoint });

const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const fetched = async (path: string): Promise<string> => {
  const answer = await fetch(`${endpoint}/_epitaph${path}`, { headers: { authorization: `Bearer ${EMULATOR_KEY}` } });
  expect(answer.status).toBe(200);
  return answer.text();
};
const named = (id: string) => new URLSearchParams({ id, partitionKey: JSON.stringify([SECRET]) }).toString();
const certificateOf = (id: string) => fetched(`/dbs/shop/colls/orders/certificate?${named(id)}`);

/** Changes a file of the closed store by SQL and opens it again. */
async function tamper(name: string, ...statements: readonly string[]): Promise<void> {
  await closeServer();
  const database = new DatabaseSync(join(folder, 'data', name));
  for (const statement of statements) expect(database.prepare(statement).run().changes).toBe(1);
  database.close();
  await open();
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'epitaph-proof-'));
  await open();
  await store.createDatabase(caller, 'shop');
  const definition = {
    partitionKey: { paths: ['/customer'], kind: 'Hash' as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
  };
  await store.createContainer(caller, 'shop', 'orders', definition, 60);
  for (const id of ['one', 'two', 'three']) await write(id);
  await store.deleteItem(caller, container(), 'three', JSON.stringify([SECRET]));
  await store.advanceClock(61_000);
  await store.runPurge();
  await write('four');
});
afterEach(async () => {
  await closeServer();
  rmSync(folder, { recursive: true, force: true });
});

describe('a certificate of disposal', () => {
  test('can be verified with the public key alone, and contains nothing personal', async () => {
    const text = await certificateOf('one');
    expect(text).not.toContain(SECRET);
    expect(text).not.toContain('"one"');
    const key = file('key', await fetched('/proof/key'));
    expect(JSON.parse(text)).toMatchObject({
      statement: {
        cause: 'expired',
        life: 0,
        writes: 1,
        expiry: { ttl: 60, rule: 'container-default' },
        checks: { holds: 0, floorSeconds: 0, graceSeconds: 0 },
        remains: { sealedBytes: expect.any(Number), removedBy: 'truncation' },
      },
    });
    await closeServer();
    const verdict = await ask('verify', 'certificate', file('certificate', text), '--public-key', key);
    expect(verdict).toMatchObject({ code: 0, stderr: '' });
    expect(verdict.stdout).toMatch(/^good: life 0 of item-\S+, expired at 2026-11-21T10:01:00\.000Z, erased at 2026-/);
    await open();
  });

  test('tells of a delete by partition key when it was and who asked for it, and of a deleted container no more than it knows', async () => {
    const key = file('key', await fetched('/proof/key'));
    const checked = (certificate: string) =>
      ask('verify', 'certificate', file('certificate', certificate), '--public-key', key);
    const deletedAtMs = store.nowMs();
    await store.deletePartitionKey(caller, container(), JSON.stringify([SECRET]));
    await store.advanceClock(60_000);
    await store.runPurge();
    const text = await certificateOf('four');
    const { statement } = JSON.parse(text) as DisposalCertificate;
    expect(statement).toMatchObject({
      cause: 'deleted',
      endedAtMs: deletedAtMs,
      endedBy: 'key:primary',
      erasedAtMs: deletedAtMs + 60_000,
    });
    expect((await checked(text)).stdout).toContain(`deleted at ${new Date(deletedAtMs).toISOString()}, erased at`);
    // As certificates of the former format stated it.
    const first = { endedAtMs: deletedAtMs + 60_000, endedBy: 'system:purge' };
    const given = { ...(JSON.parse(text) as object), statement: { ...statement, ...first } };
    const format = 'epitaph.certificate-of-disposal/1';
    expect((await checked(JSON.stringify({ ...given, format }))).code).toBe(0);
    expect((await checked(JSON.stringify(given))).code).toBe(1);

    await write('five');
    const { rid } = container();
    await store.deleteContainer(caller, 'shop', 'orders');
    await store.advanceClock(60_000);
    await store.runPurge();
    const gone = await fetched(`/dbs/shop/colls/orders/certificate?${named('five')}&rid=${encodeURIComponent(rid)}`);
    expect((await checked(gone)).stdout).toMatch(/deleted with its container, erased at/);
  });

  test('of an item that was replaced under another id names the stream of what continues it', async () => {
    await write('old');
    await renameItem({ store, caller }, container(), {
      kind: 'rename',
      id: 'old',
      item: itemOf('new'),
      precondition: undefined,
    });
    await store.advanceClock(60_000);
    await store.runPurge();
    const text = await certificateOf('old');
    const { renamedTo } = (JSON.parse(text) as DisposalCertificate).statement;
    expect(renamedTo).toBe((JSON.parse(await certificateOf('new')) as DisposalCertificate).statement.stream);
    const key = file('key', await fetched('/proof/key'));
    const { stdout } = await ask('verify', 'certificate', file('certificate', text), '--public-key', key);
    expect(stdout).toContain(`, continued under another id as ${renamedTo} at `);
  });

  test('of an erasure on request tells how the item had ended before, if it had', async () => {
    const key = file('key', await fetched('/proof/key'));
    const checked = async (id: string) => {
      const text = await certificateOf(id);
      return (await ask('verify', 'certificate', file('certificate', text), '--public-key', key)).stdout;
    };
    await store.setRecoveryWindow(caller, container(), 86_400, 'mistakes');
    for (const id of ['five', 'six']) await write(id);
    await store.deleteItem(caller, container(), 'five', JSON.stringify([SECRET]));
    const deletedAt = new Date(store.nowMs()).toISOString();
    await store.advanceClock(60_000);
    const expiredAt = new Date(store.nowMs()).toISOString();
    await store.advanceClock(60_000);
    await store.runPurge();
    await write('seven');
    for (const id of ['five', 'six', 'seven']) {
      const why = { reason: 'article 17', requestedBy: 'ann' };
      await store.eraseItem(caller, container(), id, JSON.stringify([SECRET]), why);
    }
    const erasedAt = new Date(store.nowMs()).toISOString();
    const erased = `erased on request at ${erasedAt} by key:primary`;
    expect(await checked('five')).toContain(`, deleted at ${deletedAt}, ${erased}.`);
    expect(await checked('six')).toContain(`, expired at ${expiredAt}, ${erased}.`);
    expect(await checked('seven')).toContain(`, ended by an erasure on request at ${erasedAt}, erased at ${erasedAt}`);
  });

  test('with any part changed is not good, and neither is one signed by another store', async () => {
    const text = await certificateOf('three');
    const key = file('key', await fetched('/proof/key'));
    const check = (certificate: string, by = key) =>
      ask('verify', 'certificate', file('changed', certificate), '--public-key', by);
    expect(await check(text)).toMatchObject({ code: 0 });
    const change = (
      edit: (certificate: { -readonly [K in keyof DisposalCertificate]: DisposalCertificate[K] }) => void,
    ) => {
      const certificate = JSON.parse(text) as DisposalCertificate;
      edit(certificate);
      return JSON.stringify(certificate);
    };
    const derived = 'What it states does not follow from its facts.';
    const facts = 'Its facts are not exactly the end and the erasure of one life.';
    const proven = /^NOT good: The fact Item\w+ of item-\S+ is not in the tree that was signed\.\n$/;
    const signed = 'The checkpoint is not signed by this key.';
    const changes: readonly (readonly [string, string | RegExp])[] = [
      [change((certificate) => (certificate.statement = { ...certificate.statement, endedAtMs: 0 })), derived],
      [change((certificate) => (certificate.facts = certificate.facts.slice(0, 1))), facts],
      [change((certificate) => (certificate.facts = certificate.facts.toReversed())), facts],
      // A statement that follows from these facts, which were never recorded.
      ...[0, 1].map((changed): [string, RegExp] => [
        change((certificate) => {
          certificate.facts = certificate.facts.map((one, index) =>
            index === changed ? { ...one, fact: { ...one.fact, actor: 'nobody' } } : one,
          );
          certificate.statement = disposalStatement(
            certificate.facts.map(({ fact }) => fact),
            { sha256 },
          )!;
        }),
        proven,
      ]),
      ...[
        ({ leaf, path }: CertifiedFact) => ({ leaf: leaf + 1, path }),
        ({ leaf, path }: CertifiedFact) => ({ leaf, path: path.toReversed() }),
        ({ leaf, path }: CertifiedFact) => ({ leaf, path: path.with(0, 'no hash') }),
        ({ leaf }: CertifiedFact) => ({ leaf, path: [] }),
      ].map((edit): [string, RegExp] => [
        change((certificate) => {
          certificate.facts = certificate.facts.map((one) => ({ ...one, ...edit(one) }));
        }),
        proven,
      ]),
      [change((certificate) => (certificate.checkpoint = certificate.checkpoint.replace(/\n\d+\n/, '\n99\n'))), signed],
      [change((certificate) => (certificate.checkpoint = certificate.checkpoint.split('— ')[0]!)), signed],
      [change((certificate) => (certificate.checkpoint = '')), signed],
    ];
    for (const [changed, reason] of changes) {
      const stdout = typeof reason === 'string' ? `NOT good: ${reason}\n` : expect.stringMatching(reason);
      expect(await check(changed)).toMatchObject({ code: 1, stdout });
    }
    const other = 'PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW';
    expect(await check(text, other)).toMatchObject({ code: 1, stdout: `NOT good: ${signed}\n` });
  });

  test('without the fact of the end is not good, although the remaining facts are recorded: it would state another end', async () => {
    const key = file('key', await fetched('/proof/key'));
    for (const id of ['one', 'three']) {
      const certificate = JSON.parse(await certificateOf(id)) as DisposalCertificate;
      const facts = certificate.facts.slice(1);
      const statement = disposalStatement([facts[0]!.fact], { sha256 }) ?? {
        ...certificate.statement,
        endedAtMs: certificate.statement.erasedAtMs,
        endedBy: 'system:purge',
        expiry: undefined,
      };
      const forged = JSON.stringify({ ...certificate, facts, statement });
      const verdict = await ask('verify', 'certificate', file('forged', forged), '--public-key', key);
      expect(verdict).toMatchObject({ code: 1, stdout: expect.stringContaining('of one life') as string });
    }
  });

  test('verification of an empty file fails: it proves nothing', async () => {
    const key = file('key', await fetched('/proof/key'));
    for (const text of ['', '\n']) {
      expect(await ask('verify', 'certificate', file('nothing', text), '--public-key', key)).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/nothing contains no certificate/) as string,
      });
    }
  });

  test('with the end of another life instead of its own is not good, although both are recorded', async () => {
    const [one, three] = await Promise.all(
      ['one', 'three'].map(async (id) => JSON.parse(await certificateOf(id)) as DisposalCertificate),
    );
    const key = file('key', await fetched('/proof/key'));
    expect(three!.checkpoint.split('\n')[1]).toBe(one!.checkpoint.split('\n')[1]);
    const { endedAtMs, endedBy, expiry } = one!.statement;
    const forged = {
      ...three,
      statement: { ...three!.statement, endedAtMs, endedBy, expiry },
      facts: [one!.facts[0], three!.facts.at(-1)],
    };
    const verdict = await ask('verify', 'certificate', file('forged', JSON.stringify(forged)), '--public-key', key);
    expect(verdict).toMatchObject({ code: 1, stdout: expect.stringContaining('of one life') as string });
  });

  test('is given for what a purge run has erased so far, while the run goes on', async () => {
    await store.advanceClock(61_000);
    const begun = Promise.withResolvers<void>();
    const { promise, resolve: goOn } = Promise.withResolvers<void>();
    vi.spyOn(SqliteKeyVault.prototype, 'destroyKeys').mockImplementationOnce(async function (
      this: SqliteKeyVault,
      keys,
    ) {
      begun.resolve();
      await promise;
      return this.destroyKeys(keys);
    });
    const purge = store.runPurge();
    await begun.promise;
    const { runs } = await store.purgeRuns(0, 10);
    const statements: unknown[] = [];
    for await (const page of store.runCertificates(runs.at(-1)!.id)) {
      statements.push(...page.map((line) => 'statement' in line && line.statement));
      goOn();
      await purge;
    }
    expect(statements).toMatchObject([{ id: runs.at(-1)!.id, completedAtMs: null, purged: null }]);
  });

  test('is given once for each life, if more lives were erased at the same instant than are looked up at a time', async () => {
    const ids = Array.from({ length: 1_100 }, (_, index) => `many ${index}`);
    await Promise.all(ids.map(write));
    await store.advanceClock(61_000);
    await store.runPurge();
    const lines = (await fetched(`/dbs/shop/colls/orders/certificates?from=${store.nowMs()}`)).trim().split('\n');
    const certified = lines.map((line) => (JSON.parse(line) as DisposalCertificate).statement);
    // One more: the item that existed before.
    expect(new Set(certified.map(({ stream }) => stream)).size).toBe(ids.length + 1);
    expect(certified.length).toBe(ids.length + 1);
    expect(new Set(certified.map(({ erasedAtMs }) => erasedAtMs))).toEqual(new Set([store.nowMs()]));
  });

  test('of an unknown format is not good, whatever it says', async () => {
    const key = file('key', await fetched('/proof/key'));
    const certificate = JSON.parse(await certificateOf('one')) as DisposalCertificate;
    for (const unknown of [{ ...certificate, format: 'epitaph.certificate-of-disposal/3' }, {}, [], 'good']) {
      const verdict = await ask('verify', 'certificate', file('other', JSON.stringify(unknown)), '--public-key', key);
      expect(verdict).toMatchObject({
        code: 1,
        stdout: expect.stringMatching(/^NOT good: .*of a known format/) as string,
      });
    }
  });

  test('is given neither while the content exists nor for an item that never existed', async () => {
    const refused = async (id: string) =>
      (await ask('history', 'shop', 'orders')).code === 0 &&
      (
        await fetch(`${endpoint}/_epitaph/dbs/shop/colls/orders/certificate?${named(id)}`, {
          headers: { authorization: `Bearer ${EMULATOR_KEY}` },
        })
      ).json();
    expect(await refused('four')).toMatchObject({ status: 409, code: 'not-erased' });
    expect(await refused('nobody')).toMatchObject({ status: 404, code: 'item-not-found' });
  });
});

describe('with a damaged log', () => {
  const PURGE_OF_TWO = `position = (SELECT max(position) FROM events WHERE data LIKE '%"two"%')`;
  const EXPIRY_OF_TWO = `position = (SELECT min(position) FROM events WHERE body IS NULL AND data LIKE '%"two"%')`;
  test.each([
    [
      'with a record of its erasure that is cut short',
      `UPDATE events SET data = substr(data, 1, 20) WHERE ${PURGE_OF_TWO}`,
      'ItemPurged at \\d+ is damaged',
    ],
    [
      'with a record of its end that is cut short',
      `UPDATE events SET data = substr(data, 1, 20) WHERE ${EXPIRY_OF_TWO}`,
      'ItemExpired at \\d+ is damaged',
    ],
    [
      'with a record that was changed',
      `UPDATE events SET at = at + 1 WHERE ${PURGE_OF_TWO}`,
      'it differs from the proof tree',
    ],
    ['without the record of its end', `DELETE FROM events WHERE ${EXPIRY_OF_TWO}`, 'lacks events of'],
    [
      'without the record of its erasure',
      `DELETE FROM events WHERE ${PURGE_OF_TWO}`,
      'lost the record of the erasure of',
    ],
  ])(
    'a life %s does not prevent certificates of others, and is reported in lists and bundles as not proven',
    async (_, damage, reason) => {
      const key = file('key', await fetched('/proof/key'));
      await tamper('log.db', damage);
      const reasonFor = expect.stringMatching(reason) as string;
      const lists = [(await ask('certificate', 'shop', 'orders')).stdout];
      const [run] = (await store.purgeRuns(0, 10)).runs;
      // If no record of the erasure is left at all, the run does not know that it erased the life.
      if (!damage.startsWith('DELETE') || !damage.includes('max('))
        lists.push(await fetched(`/purge/runs/${run!.id}/certificates`));
      for (const list of lists) {
        const lines = list
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as { readonly format: string });
        const unproven = lines.filter(({ format }) => format === 'epitaph.unproven/1');
        expect(unproven).toEqual([
          {
            format: 'epitaph.unproven/1',
            stream: expect.stringMatching(/^item-/) as string,
            erasedAtMs: expect.any(Number) as number,
            reason: reasonFor,
          },
        ]);
        const { code, stdout } = await ask('verify', 'certificate', file('list', list), '--public-key', key);
        expect(code).toBe(1);
        expect(stdout.match(/^good: life/gm)).toHaveLength(2);
        expect(stdout.match(/^NOT good: item-\S+, erased at 2026-\S+, is not proven: .*$/gm)).toEqual([reasonFor]);
      }
      expect(await ask('certificate', 'shop', 'orders', 'two', '--partition-key', SECRET)).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(/^epitaph: .*Restore the event log from a backup\. \(unreadable\)\n$/) as string,
      });
      const bundle = join(folder, 'bundle');
      expect(await ask('bundle', 'shop', 'orders', '--output', bundle)).toMatchObject({ code: 0 });
      const verdict = await ask('verify', 'bundle', bundle, '--public-key', key, '--json');
      expect(JSON.parse(verdict.stdout)).toEqual({ ok: false, facts: 1, certificates: 3, problems: [reasonFor] });
    },
  );

  test.each([0, 2])(
    'a life %i whose records are all lost is told from one that never existed, if later lives exist',
    async (lost) => {
      for (let life = 1; life < 4; life++) {
        await write('one');
        if (life < 3) await store.deleteItem(caller, container(), 'one', JSON.stringify([SECRET]));
      }
      await closeServer();
      const database = new DatabaseSync(join(folder, 'data', 'log.db'));
      const [{ prefix }] = database
        .prepare("SELECT substr(name, 1, length(name) - 1) AS prefix FROM streams WHERE name LIKE 'item-%.3'")
        .all() as [{ prefix: string }];
      for (const [table, column] of [
        ['events', 'stream'],
        ['streams', 'name'],
      ])
        database.prepare(`DELETE FROM ${table} WHERE ${column} = ?`).run(`${prefix}${lost}`);
      database.close();
      await open();
      const certificate = (life?: number) => store.certificate(container(), 'one', JSON.stringify([SECRET]), life);
      const isLost = `the event log has nothing of ${prefix}${lost}, but has later lives`;
      await expect(certificate(lost)).rejects.toThrow(isLost);
      await expect(certificate()).rejects.toThrow(isLost);
      await expect(certificate(7)).rejects.toThrow('No such life');
    },
  );

  test('certificates cover what was recorded since the tree was read, and none is called unproven while the log is away', async () => {
    const tree = await store.proofTree();
    await store.advanceClock(61_000);
    // The writes of purged lives may still be in the log.
    const truncate = vi.spyOn(SqliteEventLog.prototype, 'truncateStream').mockResolvedValue();
    await store.runPurge();
    truncate.mockRestore();
    expect(JSON.parse(await certificateOf('four'))).toMatchObject({ statement: { writes: 1 } });
    const list = async () => {
      const lines = [];
      for await (const page of store.certificates(container(), { tree })) lines.push(...page);
      return lines;
    };
    expect((await list()).map(({ format }) => format)).toEqual(
      Array.from({ length: 3 }, () => 'epitaph.certificate-of-disposal/2'),
    );
    await store.setRetentionFloor(caller, container(), 1, 'a law');
    const ofContainer = [];
    for await (const page of store.containerFacts(container(), tree)) ofContainer.push(...page);
    expect(ofContainer).toMatchObject([{ fact: { type: 'ContainerCreated' } }]);
    const away = vi.spyOn(SqliteEventLog.prototype, 'readLast').mockImplementation(() => {
      throw new StorageUnavailable('it is away');
    });
    await expect(list()).rejects.toThrow('it is away');
    away.mockRestore();
  });

  test.each([
    ['a floor', `data LIKE '%law 2%'`, 'RetentionFloor\\w+'],
    ['its creation', `stream LIKE 'container-%' AND revision = 0`, 'ContainerCreated'],
  ])('if an event of a container (%s) can’t be read, its bundle says that it is not proven', async (_, which, type) => {
    const key = file('key', await fetched('/proof/key'));
    for (const seconds of [1, 2, 3]) await store.setRetentionFloor(caller, container(), seconds, `law ${seconds}`);
    await tamper('log.db', `UPDATE events SET data = substr(data, 1, 9) WHERE ${which}`);
    const bundle = join(folder, 'bundle');
    expect(await ask('bundle', 'shop', 'orders', '--output', bundle)).toMatchObject({ code: 0 });
    const verdict = await ask('verify', 'bundle', bundle, '--public-key', key, '--json');
    expect(JSON.parse(verdict.stdout)).toEqual({
      ok: false,
      facts: 4,
      certificates: 3,
      problems: [
        expect.stringMatching(
          new RegExp(
            String.raw`^container-facts/000001\.ndjson: container-\S+ is not proven: ${type} at \d+ is damaged`,
          ),
        ),
      ],
    });
  });

  test('a purge run whose record is damaged is listed as unproven, and what it erased keeps its certificates', async () => {
    await store.advanceClock(61_000);
    await store.runPurge();
    const [first, second] = (await store.purgeRuns(0, 10)).runs;
    const page = async (after: number) =>
      JSON.parse(await fetched(`/purge/runs?limit=1&after=${after}`)) as { readonly next: number };
    const begin = await page(0);
    expect(begin).toEqual({ runs: [first], next: expect.any(Number) as number });
    expect(await page(begin.next)).toEqual({ runs: [second] });
    await tamper(
      'log.db',
      `UPDATE events SET data = substr(data, 1, 5) WHERE stream = 'purge-run-${first!.id}' AND revision = 0`,
    );
    expect(JSON.parse(await fetched('/purge/runs'))).toEqual({
      runs: [second],
      unproven: [
        {
          format: 'epitaph.unproven/1',
          stream: `purge-run-${first!.id}`,
          reason: expect.stringMatching(/^PurgeRunStarted at \d+ is damaged/) as string,
        },
      ],
    });
    const lines = (await fetched(`/purge/runs/${first!.id}/certificates`)).trim().split('\n');
    expect(lines.map((line) => (JSON.parse(line) as { readonly format: string }).format)).toEqual([
      'epitaph.unproven/1',
      ...Array.from({ length: 3 }, () => 'epitaph.certificate-of-disposal/2'),
    ]);
  });
});

describe('a certificate of a run of the purge', () => {
  test('is good as it was given, and not with anything in the place of its facts', async () => {
    await store.advanceClock(61_000);
    await store.runPurge();
    const key = file('key', await fetched('/proof/key'));
    const { runs } = await store.purgeRuns(0, 10);
    const lines = await Promise.all(runs.map(({ id }) => fetched(`/purge/runs/${id}/certificates`)));
    const [first, second] = lines.map((text) => JSON.parse(text.split('\n')[0]!) as PurgeRunCertificate);
    expect(second!.checkpoint).toBe(first!.checkpoint);
    const checked = async ({ statement, facts }: Pick<PurgeRunCertificate, 'statement' | 'facts'>) => {
      const text = JSON.stringify({ ...first!, statement, facts });
      return (await ask('verify', 'certificate', file('run', text), '--public-key', key)).stdout;
    };
    expect(await checked(first!)).toMatch(/^good: /);
    const [start, end] = first!.facts;
    const disposal = JSON.parse(lines[0]!.split('\n')[1]!) as DisposalCertificate;
    const noEnd = { completedAtMs: null, expired: null, purged: null, heldBack: null };
    expect(purgeRunStatement([start!.fact])).toEqual({ ...first!.statement, ...noEnd });
    const damaged = (fact: FactLeaf) => ({ ...fact, data: {} });
    expect(purgeRunStatement([damaged(start!.fact), end!.fact])).toBe(undefined);
    expect(purgeRunStatement([start!.fact, damaged(end!.fact)])).toBe(undefined);
    for (const facts of [
      [],
      [end!],
      [start!, start!],
      [start!, end!, end!],
      [start!, second!.facts[1]!],
      [start!, disposal.facts.at(-1)!],
      disposal.facts,
    ]) {
      expect(await checked({ statement: first!.statement, facts })).toMatch(/^NOT good: Its facts are not those of /);
    }
    const statement = { ...first!.statement, purged: 100 };
    expect(await checked({ statement, facts: first!.facts })).toMatch(/^NOT good: What it states does not follow/);
    const fact = { ...end!.fact, data: { ...end!.fact.data, purged: 100 } };
    expect(await checked({ statement, facts: [start!, { ...end!, fact }] })).toMatch(
      /^NOT good: The fact PurgeRunCompleted of purge-run-\S+ is not in the tree/,
    );
  });
});

describe('a purge run whose record the log has lost', () => {
  const tamperedRun = async (revision: number) => {
    await store.advanceClock(61_000);
    await store.runPurge();
    const { id } = (await store.purgeRuns(0, 10)).runs[0]!;
    await tamper('log.db', `DELETE FROM events WHERE stream = 'purge-run-${id}' AND revision = ${revision}`);
    return id;
  };

  test('at its start gets no certificates of what other runs erased', async () => {
    const id = await tamperedRun(0);
    const lines = (await fetched(`/purge/runs/${id}/certificates`)).trim().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      {
        format: 'epitaph.unproven/1',
        stream: `purge-run-${id}`,
        reason: expect.stringMatching(/^the event log has no complete record of/) as string,
      },
    ]);
  });

  test('at its end is not reported as unknown', async () => {
    const id = await tamperedRun(1);
    const pages = store.runCertificates(id);
    await expect(pages.next()).rejects.toThrow(`the event log has lost the last event of purge-run-${id}`);
    await expect(store.runCertificates('unknown').next()).rejects.toThrow('No purge run of that id');
  });
});

describe('the whole log', () => {
  test('is verified as recorded, and as a continuation of an earlier checkpoint, also after a restart and with a new tree', async () => {
    const key = file('key', await fetched('/proof/key'));
    const checkpoint = file('checkpoint', await fetched('/proof/checkpoint'));
    await store.advanceClock(61_000);
    await store.runPurge();
    const good = { code: 0, stdout: expect.stringContaining('All is as it was recorded') as string };
    expect(await ask('verify', 'log', '--checkpoint', checkpoint, '--public-key', key)).toMatchObject(good);
    await closeServer();
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(folder, 'data', `proof.db${suffix}`), { force: true });
    await open();
    expect(await ask('verify', 'log', '--checkpoint', checkpoint, '--public-key', key)).toMatchObject(good);
    const signed = readFileSync(checkpoint, 'utf8');
    const size = Number(signed.split('\n')[1]);
    expect(await fetched(`/proof/checkpoint?size=${size}`)).toBe(signed);
    for (const from of [1, size]) await fetched(`/proof/consistency?from=${from}&to=${size}`);
    for (const wrong of [
      'checkpoint?size=1000',
      'consistency?from=0&to=1',
      'consistency?from=2&to=1',
      'consistency?from=1&to=1000',
    ]) {
      const headers = { authorization: `Bearer ${EMULATOR_KEY}` };
      const answer = await fetch(`${endpoint}/_epitaph/proof/${wrong}`, { headers });
      expect([answer.status, await answer.text()], wrong).toEqual([
        400,
        expect.stringContaining('sizes must be from 1'),
      ]);
    }
  });

  test('of a store that has lost its signing key is told from one that was changed', async () => {
    const key = file('key', await fetched('/proof/key'));
    const checkpoint = file('checkpoint', await fetched('/proof/checkpoint'));
    await closeServer();
    rmSync(join(folder, 'data', 'proof.key'));
    await open();
    const found = await ask('verify', 'log', '--checkpoint', checkpoint, '--public-key', key);
    expect(found).toMatchObject({ code: 1, stdout: expect.stringMatching(/^other-key: .*\n1 problem: /) as string });
    expect((await ask('verify', 'log')).code).toBe(0);
  });

  test('with any permanent fact changed, renamed or taken away is found out', async () => {
    const key = file('key', await fetched('/proof/key'));
    const checkpoint = file('checkpoint', await fetched('/proof/checkpoint'));
    await closeServer();
    const before = readFileSync(join(folder, 'data', 'log.db'));
    await open();
    const events = `(SELECT max(position) FROM events WHERE body IS NULL)`;
    const cases = [
      [`UPDATE events SET at = at + 1 WHERE position = ${events}`, 'fact-differs'],
      [
        `UPDATE events SET data = replace(data, '60', '61') WHERE position = (SELECT min(position) FROM events WHERE data LIKE '%60%')`,
        'fact-differs',
      ],
      [
        `UPDATE events SET data = replace(data, 'one', 'eno') WHERE data LIKE '%"one"%' AND position = (SELECT max(position) FROM events WHERE data LIKE '%"one"%')`,
        'name-differs',
      ],
      [`DELETE FROM events WHERE position = ${events}`, 'facts-missing: log: 1 facts'],
    ] as const;
    for (const [statement, code] of cases) {
      await tamper('log.db', statement);
      const found = await ask('verify', 'log');
      expect(found.code, statement).toBe(1);
      expect(found.stdout, statement).toContain(code);
      await closeServer();
      for (const suffix of ['-wal', '-shm']) rmSync(join(folder, 'data', `log.db${suffix}`), { force: true });
      writeFileSync(join(folder, 'data', 'log.db'), before);
      await open();
    }
    // If the tree is changed together with the log, an earlier checkpoint reveals it.
    await closeServer();
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(folder, 'data', `proof.db${suffix}`), { force: true });
    await open();
    await tamper('log.db', `UPDATE events SET at = at + 1 WHERE position = ${events}`);
    await closeServer();
    for (const suffix of ['', '-wal', '-shm']) rmSync(join(folder, 'data', `proof.db${suffix}`), { force: true });
    await open();
    expect((await ask('verify', 'log')).code).toBe(0);
    const found = await ask('verify', 'log', '--checkpoint', checkpoint, '--public-key', key);
    expect(found).toMatchObject({ code: 1, stdout: expect.stringContaining('checkpoint-differs') as string });
  });

  test('can be checked from exported facts without any server', async () => {
    // These characters are line separators elsewhere, but not in JSON lines.
    await store.setRetentionFloor(caller, container(), 1, 'one line\u2028and another\u2029');
    const key = file('key', await fetched('/proof/key'));
    const checkpoint = file('checkpoint', await fetched('/proof/checkpoint'));
    const facts = await fetched('/proof/facts');
    expect(facts).not.toContain(SECRET);
    const check = async (text: string) =>
      ask('verify', 'log', file('facts', text), '--checkpoint', checkpoint, '--public-key', key);
    expect(await check(facts)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^good: the first \d+ facts/) as string,
    });
    const lines = facts.trim().split('\n');
    expect((await check(lines.slice(1).join('\n'))).code).toBe(1);
    expect((await check(facts.replace('"ttl":60', '"ttl":61'))).code).toBe(1);
    expect((await check(lines.toReversed().join('\n'))).code).toBe(1);
    const noFacts = {
      code: 2,
      stderr: expect.stringMatching(/contains no facts: get them from GET \/_epitaph\/proof\/facts/) as string,
    };
    expect(await check('no facts')).toMatchObject(noFacts);
    const missing = await ask('verify', 'log', `${key}.gone`, '--checkpoint', checkpoint, '--public-key', key);
    expect(missing).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^epitaph: .*gone can't be read: ENOENT.*\n$/) as string,
    });
  });
});
