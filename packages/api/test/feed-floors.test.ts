import { expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { ContainerFloors, KeyVault } from '@epitaph/core/vault/key-vault.ts';
import { Catalog } from '@epitaph/projections/catalog/catalog.ts';
import { FeedFloors } from '../src/store/change-feed/feed-floors.ts';
import { Retries } from '../src/store/retries.ts';

/** A feed of a minute. The floor is longer by the slack. */
const FEED = { changeFeedPolicy: { retentionDuration: 1 } };
const SECONDS = 120;

const isGone = (number: number): boolean => number % 5 === 0;

it.each([true, false])(
  'the floors of many containers, some of them deleted, are corrected by asking the vault for them once, and again for those raised beside other nodes (%s)',
  async (othersRaise) => {
    const catalog = new Catalog();
    const floors = new Map<string, ContainerFloors>([['never came to be', { 'change-feed': 5 }]]);
    for (let number = 1; number <= 100; number++) {
      const rid = `rid ${number}`;
      const definition = number % 2 === 0 ? FEED : {};
      const end = isGone(number) ? { status: 'deleted', deletedAtMs: 1 } : { status: 'live', deletedAtMs: null };
      const state = { rid, databaseRid: 'd', name: rid, ...end, definition };
      catalog.put({ kind: 'container', number, state: state as unknown as ContainerState });
      if (number % 3 === 0) floors.set(rid, { 'change-feed': 5 });
    }
    let asked = 0;
    const vault = {
      floors: () => {
        asked += 1;
        return new Map(floors);
      },
      setFloor: (rid: string, _kind: string, seconds: number) => {
        floors.set(rid, { 'change-feed': seconds });
        return Promise.resolve();
      },
    } as unknown as KeyVault;
    const options = {
      log: new MemoryEventLog(),
      vault,
      catalog: () => catalog,
      othersRaise,
      confirmCatalog: async () => {},
      onLowered: () => {},
      retries: new Retries(() => {}, { mayAppendLate: true }),
    };
    await new FeedFloors(options).settleAll();
    // None of the 40 that should have a floor has one. Another node may have lowered it at that moment, so each is checked again.
    expect(asked).toBe(othersRaise ? 1 + 2 * 40 : 1);
    const left = othersRaise ? 5 : 0;
    expect(floors.get('never came to be')).toEqual({ 'change-feed': left });
    for (let number = 1; number <= 100; number++) {
      const without = number % 3 === 0 ? { 'change-feed': isGone(number) ? 0 : left } : undefined;
      const isKept = number % 2 === 0 && !isGone(number);
      expect(floors.get(`rid ${number}`)).toEqual(isKept ? { 'change-feed': SECONDS } : without);
    }
  },
);
