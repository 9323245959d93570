import { beforeEach, describe, expect, it } from 'vitest';
import type { ManualClock } from '@epitaph/core/clock.ts';
import { LOG_TIME_SLACK_SECONDS } from '@epitaph/core/container/change-feed.ts';
import type { ChangeFeedRequest } from '@epitaph/api/store/api/change-feed-api.ts';
import type { Store } from '@epitaph/api/store/store.ts';
import type { SqliteStorage } from '@epitaph/storage/sqlite/open-sqlite-storage.ts';
import { DEFINITION } from './definition.ts';
import { itemToWrite } from '../support/item.ts';
import { openInlineStore } from './inline-store.ts';

const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };
const PK = '["p"]';
const KEPT_MINUTES = 60;
const TOO_LATE = { code: 'bad-request', message: expect.stringContaining('retention period') as string };

describe('an all-versions feed', () => {
  let store: Store;
  let storage: SqliteStorage;
  let clock: ManualClock;
  let sinceMs: number;

  const write = (id: string) => {
    const item = itemToWrite({ id, pk: 'p' });
    return store.writeItem(CALLER, store.container('d', 'c'), 'upsert', item);
  };
  const read = (start: ChangeFeedRequest['start']) =>
    store.readChangeFeed(store.container('d', 'c'), { mode: 'all-versions', start, scope: {}, maxItemCount: 10 });

  // The events before the policy are of the same instant.
  beforeEach(async () => {
    ({ store, storage, clock } = await openInlineStore('feed-starts'));
    await store.createDatabase(CALLER, 'd');
    await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
    await write('before');
    sinceMs = clock.now();
    const changeFeedPolicy = { retentionDuration: KEPT_MINUTES };
    await store.replaceContainer(CALLER, 'd', 'c', { ...DEFINITION, changeFeedPolicy }, -1);
  });

  it('begins with its policy for start times from the second of the policy on, and is refused for earlier ones', async () => {
    await write('after');
    for (const atMs of [sinceMs, sinceMs - 999]) {
      expect((await read({ kind: 'time', atMs })).changes).toMatchObject([{ kind: 'written', item: { id: 'after' } }]);
    }
    await expect(read({ kind: 'time', atMs: sinceMs - 1_000 })).rejects.toMatchObject(TOO_LATE);
  });

  it('can be continued until the next change may be older than it keeps, by any clock', async () => {
    const { position } = await read({ kind: 'now' });
    await write('next');
    clock.advance((KEPT_MINUTES * 60 + LOG_TIME_SLACK_SECONDS) * 1_000);
    expect((await read({ kind: 'after', position })).changes).toHaveLength(1);
    clock.advance(1);
    await expect(read({ kind: 'after', position })).rejects.toMatchObject(TOO_LATE);
  });

  it('is refused, instead of showing less, if the next change is erased at that moment', async () => {
    const { position } = await read({ kind: 'now' });
    await write('gone');
    await store.deleteItem(CALLER, store.container('d', 'c'), 'gone', PK);
    const overMs = clock.now() + (KEPT_MINUTES * 60 + LOG_TIME_SLACK_SECONDS) * 1_000;
    clock.advance(overMs - 1 - clock.now());
    expect((await read({ kind: 'after', position })).changes).toMatchObject([
      { kind: 'written', item: { id: 'gone' } },
      { kind: 'deleted', previous: { id: 'gone' } },
    ]);
    const { log } = storage;
    const scan = log.scan.bind(log);
    log.scan = async (...args) => {
      log.scan = scan;
      const found = await scan(...args);
      clock.advance(1);
      expect(await store.runPurge()).toMatchObject({ purged: 1 });
      return found;
    };
    await expect(read({ kind: 'after', position })).rejects.toMatchObject(TOO_LATE);
    await expect(read({ kind: 'after', position })).rejects.toMatchObject(TOO_LATE);
  });

  it('continues past items that were erased on request', async () => {
    const { position } = await read({ kind: 'now' });
    await write('erased');
    await store.deleteItem(CALLER, store.container('d', 'c'), 'erased', PK);
    await write('stays');
    const why = { reason: 'article 17', requestedBy: 'request 41' };
    await store.eraseItem(CALLER, store.container('d', 'c'), 'erased', PK, why);
    const { changes } = await read({ kind: 'after', position });
    expect(changes).toMatchObject([
      { kind: 'deleted', id: 'erased' },
      { kind: 'written', item: { id: 'stays' } },
    ]);
    expect(changes[0]).not.toHaveProperty('previous');
  });

  it('tells when an item was deleted and where it began, without reading all of its life', async () => {
    for (let times = 0; times < 3; times += 1) await write('before');
    const { position } = await read({ kind: 'now' });
    clock.advance(2_000);
    await store.deleteItem(CALLER, store.container('d', 'c'), 'before', PK);
    const { log } = storage;
    const readStream = log.readStream.bind(log);
    let events = 0;
    log.readStream = async (stream, options) => {
      const found = await readStream(stream, options);
      if (stream.startsWith('item-')) events += found.length;
      return found;
    };
    const [begun] = await store.history(store.container('d', 'c'), 'before', PK);
    events = 0;
    const { changes } = await read({ kind: 'after', position });
    expect(changes).toMatchObject([
      { kind: 'deleted', id: 'before', atMs: sinceMs + 2_000, expired: false, previous: { birth: begun!.position } },
    ]);
    expect(events).toBe(1);
  });
});

describe('a feed whose log is behind the read models, which another node has written', () => {
  it('shows the missing changes with the next page, and skips nothing', async () => {
    // Given a log that is behind, as after its server has lost the lead
    let isBehind = false;
    const { store } = await openInlineStore('feed-behind', ({ log }) => {
      const scan = log.scan.bind(log);
      log.scan = (after, ...rest) => (isBehind ? { events: [], position: after } : scan(after, ...rest));
    });
    await store.createDatabase(CALLER, 'd');
    const { resource } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
    const read = (start: ChangeFeedRequest['start']) =>
      store.readChangeFeed(resource, { mode: 'latest', start, scope: {}, maxItemCount: 10 });
    const item = itemToWrite({ id: 'a', pk: 'p' });
    await store.writeItem(CALLER, resource, 'create', item);
    // When the feed is read meanwhile
    isBehind = true;
    const { changes, position, reachedEnd } = await read({ kind: 'beginning' });
    expect([changes, reachedEnd]).toEqual([[], true]);
    isBehind = false;
    // Then it continues from where the log was
    expect((await read({ kind: 'after', position })).changes).toMatchObject([{ kind: 'written', item: { id: 'a' } }]);
  });
});
