import { hash } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { type ItemPurged, isItemWrite } from '@epitaph/core/item/events.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

const folder = newFolder('long-life');
afterAll(() => removeFolder(folder));

it('a purge has few of the bodies of a life in memory at a time, and all of them in the ledger', async () => {
  const { store, log } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, 100);
    for (let write = 0; write < 30; write++) {
      const document = { id: 'i', pk: 'p', write, text: 'x'.repeat(100_000) };
      const item = { id: 'i', partitionKey: '["p"]', document, json: JSON.stringify(document) };
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
    await store.advanceClock(CALLER, 200_000);
    expect(await store.runPurge(CALLER)).toMatchObject({ expired: 1, purged: 1 });
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

it('of a revision that is asked for nothing else of its life is read', async () => {
  const { store, storage } = await openInlineStore('one-revision');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
  for (let write = 0; write < 5; write++) {
    const document = { id: 'i', pk: 'p', write };
    const item = { id: 'i', partitionKey: '["p"]', document, json: JSON.stringify(document) };
    await store.writeItem(CALLER, container, 'upsert', item);
  }
  const { log } = storage;
  const readStream = log.readStream.bind(log);
  let read = 0;
  log.readStream = async (...args) => {
    const events = await readStream(...args);
    read += events.length;
    return events;
  };
  const { json, revision } = await store.contentAt(container, 'i', '["p"]', { revision: 2 });
  expect({ write: (JSON.parse(json) as { write: number }).write, revision, read }).toEqual({
    write: 2,
    revision: 2,
    read: 1,
  });
  const missing = store.contentAt(container, 'i', '["p"]', { revision: 5 });
  await expect(missing).rejects.toMatchObject({ code: 'item-not-found' });
});
