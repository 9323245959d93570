import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Explained, type Fields, World } from '../e2e/support/world.ts';

/**
 * A data folder of the version of 2026-11-21 (253f2f5), each file compressed, and the last answers of that version. Only its clock is now
 * declared as manual, which it was not, so that it stands still.
 */
interface Former {
  readonly files: Readonly<Record<string, string>>;
  readonly expected: {
    readonly rows: Readonly<Record<string, readonly Fields[]>>;
    readonly explain: Readonly<Record<string, Partial<Explained>>>;
  };
}

let former: Former;
let folder: string;
let world: World;

beforeAll(async () => {
  former = JSON.parse(await readFile(join(import.meta.dirname, '../data/former-folder.json'), 'utf8')) as Former;
  folder = await mkdtemp(join(tmpdir(), 'epitaph-former-'));
  for (const [name, zipped] of Object.entries(former.files)) {
    await writeFile(join(folder, name), gunzipSync(Buffer.from(zipped, 'base64')), { mode: 0o600 });
  }
  world = await World.open({ folder });
});
afterAll(async () => {
  await world.end();
  await rm(folder, { recursive: true, force: true });
});

const SESSIONS = '/dbs/shop/colls/sessions';
const of = (id: string, user: string) => `id=${id}&partitionKey=${encodeURIComponent(JSON.stringify([user]))}`;

const explain = async (key: string) => {
  const [user, id] = key.split('/') as [string, string];
  return (await world.manage<Explained>('GET', `${SESSIONS}/explain?${of(id, user)}`)).body;
};

async function expectAllAsBefore(): Promise<void> {
  for (const [name, rows] of Object.entries(former.expected.rows)) {
    const { resources } = await world.of(name).items.query<Fields>('SELECT * FROM c ORDER BY c.id').fetchAll();
    expect(resources).toEqual(rows.map((row) => expect.objectContaining(row)));
  }
  for (const [key, explained] of Object.entries(former.expected.explain)) {
    expect(await explain(key), key).toMatchObject(explained);
  }
  expect((await world.store.fsck()).problems).toEqual([]);
}

describe('a data folder of a former version', () => {
  it('shows and explains what that version did, and agrees with its log', expectAllAsBefore);

  it('does the same with rebuilt read models', async () => {
    expect((await world.manage('POST', '/projections/items/rebuild', {})).status).toBe(202);
    await expect
      .poll(async () => (await world.manage('GET', '/projections')).body)
      .toMatchObject({ projections: [{ rebuild: { state: 'done' } }] });
    await expectAllAsBefore();
  });

  it('still keeps what is under a hold, and erases it when the hold is released', async () => {
    await world.store.runPurge();
    const held = await world.manage<{ document: Fields }>(
      'GET',
      `${SESSIONS}/held-content?${of('held', 'bob')}&reason=look`,
    );
    expect(held.body.document).toMatchObject({ id: 'held', n: 5 });
    await world.manage('DELETE', `${SESSIONS}/holds/case-7`, { reason: 'settled' });
    await world.store.runPurge();
    expect(await explain('bob/held')).toMatchObject({ state: 'purged' });
    const certificate = await world.manage('GET', `${SESSIONS}/certificate?${of('held', 'bob')}`);
    expect(certificate.status).toBe(200);
  });

  it('can be written to: unique keys are effective, and a new life begins after an ended one', async () => {
    const taken = world.of('names').items.create({ id: 'k2', user: 'ann', name: 'one' });
    await expect(taken).rejects.toMatchObject({ code: 409 });
    await world.of('sessions').items.create({ id: 'expired', user: 'ann', n: 8, ttl: -1 });
    expect(await explain('ann/expired')).toMatchObject({ state: 'live', life: 1 });
    await world.restart();
    expect(await explain('ann/expired')).toMatchObject({ state: 'live', life: 1 });
    expect((await world.store.fsck()).problems).toEqual([]);
  });
});
