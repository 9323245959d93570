import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';
const IDS = ['first', 'damaged', 'last'];

const folders: string[] = [];
afterAll(() => folders.forEach((folder) => removeFolder(folder)));

it.each([
  { what: 'is cut short', set: 'data = substr(data, 1, 20)', says: 'ItemUpserted at' },
  { what: 'was written by a newer version', set: 'version = 99', says: 'written by a newer Epitaph' },
])('a purge that meets a life of which an event $what says so, and goes on with all others', async ({ set, says }) => {
  const folder = newFolder('damaged-log');
  folders.push(folder);
  const { store } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  await store.createDatabase(CALLER, 'd');
  for (const name of ['overdue', 'deleted', 'next']) {
    const { resource: container } = await store.createContainer(CALLER, 'd', name, DEFINITION, 100);
    for (const id of IDS) {
      const document = { id, pk: 'p', ...(name === 'deleted' ? { ttl: -1 } : {}) };
      const item = { id, partitionKey: PK, document, json: JSON.stringify(document) };
      await store.writeItem(CALLER, container, 'create', item);
    }
    if (name !== 'deleted') continue;
    for (const id of IDS) await store.deleteItem(CALLER, container, id, PK);
  }
  const log = new DatabaseSync(join(folder, 'log.db'));
  const names = log.prepare("SELECT DISTINCT stream FROM events WHERE stream LIKE 'item-%' ORDER BY position").all();
  // Of each container the item in the middle: streams are in the order in which the items were made.
  for (const place of [1, 4]) {
    const { stream } = names[place] as { stream: string };
    log.prepare(`UPDATE events SET ${set} WHERE stream = ? AND revision = 0`).run(stream);
  }
  log.close();
  try {
    await store.advanceClock(200_000);
    await expect(store.runPurge()).rejects.toThrow(says);
    const stateOf = async (name: string, id: string) => {
      const explained = await store.explain(store.container('d', name), id, PK).catch((error: Error) => error);
      return explained instanceof Error ? explained.name : explained.state;
    };
    const statesIn = (name: string) => Promise.all(IDS.map((id) => stateOf(name, id)));
    expect(await statesIn('overdue')).toEqual(['purged', 'UnreadableEvent', 'purged']);
    expect(await statesIn('deleted')).toEqual(['purged', 'UnreadableEvent', 'purged']);
    expect(await statesIn('next')).toEqual(['purged', 'purged', 'purged']);
    const examined = await store.fsck().then(
      ({ problems }) => problems.map(({ message }) => message),
      (error: Error) => [error.message],
    );
    expect(examined).not.toEqual([]);
    for (const message of examined) expect(message).toContain(says);
  } finally {
    await store.close();
  }
});
