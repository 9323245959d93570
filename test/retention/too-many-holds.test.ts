import { afterAll, expect, it, vi } from 'vitest';
import { MAX_STANDING_HOLDS } from '@epitaph/core/retention/decide.ts';
import { TURN_MS } from '@epitaph/core/turn.ts';
import { itemToWrite } from '../support/item.ts';
import { newFolder, openEmbedded, removeFolder } from '../simulation/embedded.ts';
import { DEFINITION } from './definition.ts';
import { openInlineStore } from './inline-store.ts';

const START_MS = Date.UTC(2026, 10, 21, 10);
const CALLER = { actor: 'key:primary', correlationId: 'c0ffee00-0000-4000-8000-000000000000' };

const folder = newFolder('too-many-holds');
afterAll(() => removeFolder(folder));

it('of two holds of which only one fits, the vault keeps the recorded one', async () => {
  const { store, log, storage } = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID() });
  try {
    await store.createDatabase(CALLER, 'd');
    const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, -1);
    const reason = 'case 7';
    const { correlationId, actor } = CALLER;
    const facts = { version: 1, occurredAtMs: START_MS, actor, correlationId, causationId: correlationId };
    const events = Array.from({ length: MAX_STANDING_HOLDS - 1 }, (_, index) => ({
      ...facts,
      id: crypto.randomUUID(),
      type: 'HoldPlaced',
      data: { holdId: `h${index}`, scope: { kind: 'items', items: [`i${index}`] }, reason, tooLateFor: 0 },
    }));
    const stream = `container-${container.rid}`;
    await log.append([{ stream, expectedRevision: 0, events }]);
    await store.setRecoveryWindow(CALLER, container, 60, reason);
    const scope = { kind: 'container' } as const;
    const placed = await Promise.allSettled(
      ['one', 'other'].map((holdId) => store.placeHold(CALLER, container, holdId, { scope, reason })),
    );
    expect(placed.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    const standing = placed[0]!.status === 'fulfilled' ? 'one' : 'other';
    expect(storage.vault.holds().map(({ holdId }) => holdId)).toEqual([expect.stringContaining(standing)]);
  } finally {
    await store.close();
  }
}, 60_000);

it('placing a hold by query gives other work turns, however many lives it names', async () => {
  const { store, storage } = await openInlineStore('hold-on-many');
  await store.createDatabase(CALLER, 'd');
  const { resource: container } = await store.createContainer(CALLER, 'd', 'c', DEFINITION, null);
  for (let index = 0; index < 30; index++) {
    await store.writeItem(CALLER, container, 'create', itemToWrite({ id: `${index}`, pk: 'p' }));
  }
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const seen = new Set<number>();
  const findKey = storage.vault.findKey.bind(storage.vault);
  // For each life it asks whether it is erased already.
  vi.spyOn(storage.vault, 'findKey').mockImplementation((...args) => {
    const untilMs = performance.now() + TURN_MS + 1;
    while (performance.now() < untilMs);
    seen.add(turns);
    return findKey(...args);
  });
  const scope = { kind: 'query', sql: 'SELECT * FROM c', parameters: [] } as const;
  const { hold } = await store.placeHold(CALLER, container, 'h', { scope, reason: 'case 7' });
  isOver = true;
  expect(hold.scope).toMatchObject({ kind: 'query', lives: { length: 30 } });
  expect(seen.size).toBeGreaterThanOrEqual(30);
});
