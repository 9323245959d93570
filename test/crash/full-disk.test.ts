import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmdirSync, rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore } from '@epitaph/api/compose.ts';
import { metricsText } from '@epitaph/api/metrics/metrics.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import type { ReadModelChange } from '@epitaph/projections/read-model-store.ts';
import { checkMasterKey, readMasterKey } from '@epitaph/storage/sqlite/master-key.ts';
import { ReadModelWriterCore, toApplyJob } from '@epitaph/storage/sqlite/read-model-writer-core.ts';
import { newFolder, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from '../support/definition.ts';
import { itemToWrite } from '../support/item.ts';
import { Disk } from '../support/disk.ts';

const CALLER = { actor: 'key:primary', correlationId: crypto.randomUUID() };

let disk: Disk;
let store: Store;
beforeEach((context) => {
  disk = new Disk(newFolder('disk'));
  disk.mountOrSkip(context, 12);
});
afterEach(async () => {
  await store?.close().catch(() => {});
  disk.unmount();
  removeFolder(disk.path);
});

const data = () => join(disk.path, 'data');
const open = () => openEmbeddedStore({ folder: data(), clock: 'manual', automaticPurge: false, policyGraceSeconds: 0 });

async function write(id: string, ttl?: number): Promise<void> {
  const item = itemToWrite({ id, pk: 'p', ...(ttl === undefined ? {} : { ttl }), text: 'x'.repeat(20_000) });
  await store.writeItem(CALLER, store.container('db', 'c'), 'upsert', item);
}

/** Writes until a write is refused. Returns the acknowledged ids and the error. */
async function fill(from: number): Promise<{ readonly written: string[]; readonly error: Error }> {
  const written: string[] = [];
  for (let index = from; ; index++) {
    try {
      await write(`item-${index}`);
      written.push(`item-${index}`);
    } catch (error) {
      return { written, error: error as Error };
    }
  }
}

async function readAll(ids: readonly string[]): Promise<void> {
  for (const id of ids) expect((await store.readItem(store.container('db', 'c'), id, '["p"]')).id).toBe(id);
}

/** Fills the disk to the last page. */
function fillUp(): void {
  for (let size = 4 * 1024 * 1024, file = 0; size >= 4096; file++) {
    try {
      writeFileSync(join(disk.path, `ballast-${file}`), Buffer.alloc(size));
    } catch {
      size /= 2;
    }
  }
}

const makeRoom = () => execFileSync('find', [disk.path, '-name', 'ballast-*', '-delete']);

async function isSound(): Promise<void> {
  expect((await store.fsck()).problems).toEqual([]);
  expect((await store.verifyLog()).problems).toEqual([]);
}

describe('a disk that is full', () => {
  it('refuses writes with advice, keeps what was acknowledged, and accepts writes when there is room', async () => {
    const ballast = join(disk.path, 'ballast');
    writeFileSync(ballast, Buffer.alloc(8 * 1024 * 1024));
    store = await open();
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    const { written, error } = await fill(0);
    expect(written.length).toBeGreaterThan(20);
    expect(error).toBeInstanceOf(StorageUnavailable);
    expect(error.message).toContain('Free some space');
    await readAll(written);

    // It is unknown whether the delete happened: there may have been room for its record, and none for the read models.
    const [first, ...kept] = written;
    await expect(store.deleteItem(CALLER, store.container('db', 'c'), first!, '["p"]')).rejects.toBeInstanceOf(
      StorageUnavailable,
    );
    await readAll(kept);
    // The metrics show it, although not everything can be counted now.
    expect(await metricsText(store)).toMatch(/^epitaph_append_faults_total [1-9]/m);
    // The store can be stopped in this state, and gives the reason if it then can't be started.
    await store.close();
    const started = await open().catch((error: unknown) => error as Error);
    if (started instanceof Error) expect(String(started)).toMatch(/UnusableFile|StorageFault/);
    else await started.close();

    rmSync(ballast);
    store = await open();
    await readAll(kept);
    await store.deleteItem(CALLER, store.container('db', 'c'), first!, '["p"]').catch((error: unknown) => {
      expect(error).toMatchObject({ code: 'item-not-found' });
    });
    await write('after');
    await readAll([...kept, 'after']);
    expect((await store.runPurge()).purged).toBe(1);
    await isSound();
    await store.close();
    store = await open();
    await readAll([...kept, 'after']);
    await isSound();
  }, 60_000);

  it('in the middle of a purge leaves nothing half recorded: the purge completes when there is room', async () => {
    store = await open();
    await store.createDatabase(CALLER, 'db');
    const { resource } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    for (let index = 0; index < 60; index++) await write(`item-${index}`);
    await store.changeTtl(CALLER, 'db', 'c', { defaultTtl: 1, confirmed: false });
    await store.advanceClock(10_000);
    fillUp();
    await expect(store.runPurge()).rejects.toBeInstanceOf(StorageUnavailable);
    makeRoom();
    await store.runPurge();
    for (let index = 0; index < 60; index++) {
      expect((await store.explain(resource, `item-${index}`, '["p"]')).state).toBe('purged');
    }
    await isSound();
  }, 60_000);

  it('on which the journal of values in clear can’t be emptied fails nothing, and the journal is emptied when there is room', () => {
    const file = join(disk.path, 'items.db');
    const core = new ReadModelWriterCore({ file, synchronous: 'OFF' });
    const item = (index: number) => ({ container: 1, partitionKey: '["p"]', id: `item-${index}`, life: 0 });
    const written = (index: number, position: number): ReadModelChange => ({
      ...item(index),
      kind: 'item-written',
      revision: 0,
      position,
      ts: 1,
      ttl: null,
      key: index + 1,
      unreadableTtl: false,
      clear: Array.from({ length: 20 }, (_, path) => ({ path, value: `5${index} `.padEnd(128, 'secret') })),
    });
    const purged = (index: number, position: number): ReadModelChange[] => {
      const left = { ...item(index), position, cause: 'deleted' as const };
      const times = { atMs: 1, recordedAtMs: 1, purgedAtMs: null, actor: null, rule: null, ttl: null };
      const disappearance = { ...left, ...times, policyVersion: null };
      const row = { ...left, stream: `item-${index}`, endedAtMs: 1, byPolicyStart: false };
      return [
        { kind: 'item-ended', row, disappearance },
        { kind: 'item-purged', ...item(index), purgedAtMs: 2, disappearance },
      ];
    };
    const apply = (changes: readonly ReadModelChange[], checkpoint: number) =>
      core.execute([toApplyJob(changes, checkpoint)]);
    const many = Array.from({ length: 400 }, (_, index) => written(index, index + 1));
    expect(apply(many, 400)).toMatchObject([{ ok: true }]);
    // Room for one more transaction, but not for the whole journal.
    const { bavail, bsize } = statfsSync(disk.path);
    writeFileSync(join(disk.path, 'ballast'), Buffer.alloc(bavail * bsize - 1_000_000));
    expect(apply(purged(7, 401), 402)).toMatchObject([{ ok: true }]);
    expect(statSync(`${file}-wal`).size).toBeGreaterThan(0);
    rmSync(join(disk.path, 'ballast'));
    expect(apply([written(400, 403)], 403)).toMatchObject([{ ok: true }]);
    expect(statSync(`${file}-wal`).size).toBe(0);
    core.close();
  });

  it('refuses proofs for which there is no room, and gives them when there is', async () => {
    store = await open();
    await store.createDatabase(CALLER, 'db');
    const { resource } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    await write('item');
    await store.deleteItem(CALLER, resource, 'item', '["p"]');
    await store.runPurge();
    fillUp();
    const refused = { name: 'StorageFault', message: expect.stringContaining('Free some space') as unknown };
    await expect(store.certificate(resource, 'item', '["p"]')).rejects.toMatchObject(refused);
    makeRoom();
    expect((await store.certificate(resource, 'item', '["p"]')).facts.length).toBeGreaterThan(0);
  }, 60_000);

  it('stops neither time nor readers: items that expire meanwhile are gone', async () => {
    store = await openEmbeddedStore({ folder: data(), clock: 'system', automaticPurge: false, policyGraceSeconds: 0 });
    await store.createDatabase(CALLER, 'db');
    const { resource } = await store.createContainer(CALLER, 'db', 'c', DEFINITION, 2);
    await write('short', 1);
    await write('long', 600);
    fillUp();
    // Longer than the interval of saving the clock's mark.
    await setTimeout(2_500);
    await readAll(['long']);
    await expect(store.readItem(resource, 'short', '["p"]')).rejects.toMatchObject({ code: 'item-not-found' });
    await expect(fill(0)).resolves.toMatchObject({ error: expect.any(StorageUnavailable) as unknown });
    makeRoom();
    await write('after', 600);
    await readAll(['long', 'after']);
  });

  it('is reported to whoever starts a store on it', async () => {
    writeFileSync(join(disk.path, 'ballast'), Buffer.alloc(12 * 1024 * 1024 - 8192));
    await expect(open()).rejects.toThrow(/no space left|ENOSPC|disk is full/);
  });

  it('is reported as such even if there is no room for the lock, at a start and by commands for the master key', async () => {
    store = await open();
    await store.close();
    fillUp();
    await expect(open()).rejects.toThrow(
      /^There is no space left on the disk of the data folder .*\. Free some space, and run the same command again\.$/,
    );
    const master = readMasterKey(readFileSync(join(data(), 'master.key'), 'utf8'));
    expect(() => checkMasterKey(join(data(), 'vault.db'), master)).toThrow(/Its disk is full or fails; check it\.$/);
  });
});

describe('a data folder that can’t be written to', () => {
  it('in which the clock’s mark can’t be saved makes readers try again, and is not reported as a defect', async () => {
    store = await openEmbeddedStore({ folder: data(), clock: 'system', automaticPurge: false });
    await store.createDatabase(CALLER, 'db');
    await store.createContainer(CALLER, 'db', 'c', DEFINITION, -1);
    await write('item');
    rmSync(join(data(), 'clock'));
    mkdirSync(join(data(), 'clock'));
    await setTimeout(2_500);
    await expect(readAll(['item'])).rejects.toMatchObject({
      name: 'StorageFault',
      isForOperator: true,
      message: expect.stringMatching(/clock.* permissions/) as unknown,
    });
    // Readiness reports it as well.
    const reasons = [expect.stringMatching(/^the time can't be stored .* log says why$/)];
    expect(store.health()).toEqual({ ready: false, reasons });
    const metrics = await metricsText(store);
    expect(metrics).toContain('\nepitaph_storage_available 0\n');
    expect(metrics).not.toContain('\nepitaph_clock_stands_still_seconds ');
    rmdirSync(join(data(), 'clock'));
    await readAll(['item']);
    expect(store.health()).toEqual({ ready: true, reasons: [] });
    expect(await metricsText(store)).toContain('\nepitaph_storage_available 1\n');
  });

  it('is refused at the start with the reason', async () => {
    store = await open();
    await store.close();
    disk.remount('ro');
    await expect(open()).rejects.toThrow(/Check its owner, its permissions, and the disk/);
    disk.remount('rw');
    store = await open();
    await isSound();
  });
});
