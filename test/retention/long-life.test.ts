import { hash } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { type ItemPurged, isItemWrite } from '@epitaph/core/item/events.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

const folder = newFolder('long-life');
afterAll(() => removeFolder(folder));

/** Counts the events read from streams from now on. */
function watchReads(log: EventLog) {
  const reads = { looks: 0, events: 0, most: 0 };
  const [readLast, readStream] = [log.readLast.bind(log), log.readStream.bind(log)];
  log.readLast = (stream) => {
    reads.looks += 1;
    return readLast(stream);
  };
  log.readStream = async (...args) => {
    const events = await readStream(...args);
    reads.looks += 1;
    reads.events += events.length;
    reads.most = Math.max(reads.most, events.length);
    return events;
  };
  return reads;
}

it('a purge has only a few bodies of a life in memory at a time, and all of them in the ledger', async () => {
  const { store, log } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    for (let write = 0; write < 30; write++) {
      const item = itemToWrite({ id: 'i', pk: 'p', write, text: 'x'.repeat(100_000) });
      await store.writeItem(CALLER, container, 'upsert', item);
    }
    const events = await log.readAll(0, 100);
    const bodies = events.filter(isItemWrite).map(({ body }) => body!);
    const readStream = log.readStream.bind(log);
    let most = 0;
    log.readStream = async (...args) => {
      const read = await readStream(...args);
      most = Math.max(
        most,
        read.reduce((sum, { body }) => sum + (body?.length ?? 0), 0),
      );
      return read;
    };
    await store.advanceClock(200_000);
    expect(await store.runPurge()).toMatchObject({ expired: 1, purged: 1 });
    expect(most).toBeLessThan(1024 * 1024);
    const purged = (await log.readAll(0, 100)).find(({ type }) => type === 'ItemPurged')!.data as unknown as ItemPurged;
    expect(decodeLedger(purged.ledger).map(({ digest }) => digest)).toEqual(
      bodies.map((body) => hash('sha256', body, 'base64url')),
    );
    expect(purged.remains!.sealedBytes).toBe(bodies.reduce((sum, { length }) => sum + length, 0));
  } finally {
    await store.close();
  }
});

it('only the requested revision of a life is read', async () => {
  const { store, storage } = await openInlineStore('one-revision');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (let write = 0; write < 5; write++) {
    const item = itemToWrite({ id: 'i', pk: 'p', write });
    await store.writeItem(CALLER, container, 'upsert', item);
  }
  const reads = watchReads(storage.log);
  const { json, revision } = await store.contentAt(container, 'i', '["p"]', { revision: 2 });
  const { events: read } = reads;
  expect({ write: (JSON.parse(json) as { write: number }).write, revision, read }).toEqual({
    write: 2,
    revision: 2,
    read: 1,
  });
  const missing = store.contentAt(container, 'i', '["p"]', { revision: 5 });
  await expect(missing).rejects.toMatchObject({ code: 'item-not-found' });
});

it('an item with many writes is read in small parts, whatever is asked about it', async () => {
  const { store, storage } = await openInlineStore('often-written');
  const { log } = storage;
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 1_000);
  const writtenAtMs: number[] = [];
  for (let write = 0; write < 600; write++) {
    const item = itemToWrite({ id: 'i', pk: 'p', write });
    await store.writeItem(CALLER, container, 'upsert', item);
    writtenAtMs.push(store.nowMs());
    await store.advanceClock(1_000);
  }
  const reads = watchReads(log);
  const instants = [0, 1, 255, 256, 300, 598, 599].map((write) => ({ write, atMs: writtenAtMs[write]! }));
  const toldOf = async (atMs: number) => {
    const { state, lastWrite } = await store.explain(container, 'i', '["p"]', atMs);
    return { state, atMs: lastWrite?.atMs };
  };
  const tell = async () => {
    for (const { atMs } of instants) {
      expect(await toldOf(atMs + 999)).toEqual({ state: 'live', atMs });
      expect(await toldOf(atMs)).toEqual({ state: 'live', atMs });
    }
    expect(await toldOf(writtenAtMs[0]! - 1)).toEqual({ state: 'never-existed', atMs: undefined });
  };
  await tell();
  for (const { write, atMs } of instants) {
    const { json, revision } = await store.contentAt(container, 'i', '["p"]', { atMs: atMs + 999 });
    expect({ json: JSON.parse(json) as unknown, revision }).toMatchObject({ json: { write }, revision: write });
  }
  const before = store.contentAt(container, 'i', '["p"]', { atMs: writtenAtMs[0]! - 1 });
  await expect(before).rejects.toMatchObject({ code: 'item-not-found' });
  let items = 0;
  await store.asOf(container, writtenAtMs[300]!, {
    onRow: (row) => void (items += row.writtenAtMs === writtenAtMs[300] ? 1 : 0),
  });
  expect(items).toBe(1);
  expect(await store.replay(container, [{ fromMs: 0, defaultTtl: 1_000 }])).toMatchObject({ counts: { same: 1 } });
  expect((await store.fsck()).problems).toEqual([]);
  await store.eraseItem(CALLER, container, 'i', '["p"]', { reason: 'article 17', requestedBy: 'desk 3' });
  await tell();
  expect(reads.most).toBeLessThanOrEqual(256);
});

it('the request by which an item was erased is found among many others', async () => {
  const { store, storage } = await openInlineStore('many-erasures');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  const erased = async (id: string, reason: string) => {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id, pk: 'p' }));
    await store.eraseItem(CALLER, container, id, '["p"]', { reason, requestedBy: 'desk 3' });
  };
  await erased('again', 'first');
  for (let index = 0; index < 150; index++) await erased(`i${index}`, `reason ${index}`);
  await erased('again', 'second');
  const reads = watchReads(storage.log);
  const reasonFor = async (id: string, atMs?: number) => {
    reads.events = 0;
    const { erasure } = await store.explain(container, id, '["p"]', atMs);
    expect(reads.events).toBeLessThan(100);
    return erasure?.reason;
  };
  for (const index of [0, 1, 77, 149]) expect(await reasonFor(`i${index}`)).toBe(`reason ${index}`);
  expect(await reasonFor('again')).toBe('second');
});

it('the lives asked about are found with few reads for an item with many lives', async () => {
  const { store, storage } = await openInlineStore('many-lives');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 5);
  const writtenAtMs: number[] = [];
  for (let life = 0; life < 300; life++) {
    const item = itemToWrite({ id: 'i', pk: 'p', life });
    await store.writeItem(CALLER, container, 'create', item);
    writtenAtMs.push(store.nowMs());
    await store.advanceClock(10_000);
    if (life === 250) await store.runPurge();
  }
  const reads = watchReads(storage.log);
  const fewLooks = async <Result>(asked: Promise<Result>): Promise<Result> => {
    reads.looks = 0;
    const answer = await asked;
    expect(reads.looks).toBeLessThan(100);
    return answer;
  };
  for (const life of [0, 1, 149, 250, 251, 298, 299]) {
    const atMs = writtenAtMs[life]!;
    const lastWrite = { atMs, ts: atMs / 1000, ttl: null };
    const live = await fewLooks(store.explain(container, 'i', '["p"]', atMs + 4_999));
    expect(live).toMatchObject({ state: 'live', life, lastWrite });
    const gone = await fewLooks(store.explain(container, 'i', '["p"]', atMs + 9_999));
    expect(gone).toMatchObject({ state: 'expired', life, lastWrite });
  }
  expect(await fewLooks(store.explain(container, 'i', '["p"]'))).toMatchObject({ state: 'expired', life: 299 });
  const never = await fewLooks(store.explain(container, 'i', '["p"]', writtenAtMs[0]! - 1));
  expect(never.state).toBe('never-existed');
  expect((await fewLooks(store.certificate(container, 'i', '["p"]'))).statement).toMatchObject({ life: 250 });
  const { json } = await fewLooks(store.heldContent(CALLER, container, 'i', '["p"]', { reason: 'a test', life: 270 }));
  expect(JSON.parse(json)).toMatchObject({ life: 270 });
  expect(await fewLooks(store.recoverItem(CALLER, container, 'i', '["p"]', { reason: 'a test' }))).toMatchObject({
    fromLife: 299,
    life: 300,
  });
  const erased = await store.eraseItem(CALLER, container, 'i', '["p"]', {
    reason: 'article 17',
    requestedBy: 'desk 3',
  });
  expect(erased).toMatchObject({ erasedLives: 50, alreadyErasedLives: 251 });
});
