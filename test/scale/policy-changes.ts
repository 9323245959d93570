import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { openEmbedded, type Embedded, newFolder, removeFolder } from '../simulation/embedded.ts';
import {
  addPolicy,
  type ModelContainer,
  newContainer,
  newLife,
  type Policy,
  visibleLife,
} from '../simulation/model.ts';
import { Random } from '../simulation/random.ts';
import { DEFINITION } from '../support/definition.ts';

const START_MS = 1_700_000_000_000;
const CALLER = { actor: 'key:primary', correlationId: '00000000-0000-4000-8000-000000000001' };
const DATABASE = 'scale';

/** The same container in the store and as a plain list. */
interface Filled {
  readonly state: ContainerState;
  readonly model: ModelContainer;
}

/**
 * Policy changes over many items must be as fast as over one, and have the same meaning. `slower` is how many times longer a change over
 * all items may take than one over a single item.
 */
export function describePolicyChanges(items: number, slower: number): void {
  const folder = newFolder('scale');
  const random = new Random(items);
  let embedded: Embedded;
  const timeout = 20_000 + items * 4;

  beforeAll(async () => {
    embedded = await openEmbedded({ folder, time: START_MS, newId: () => crypto.randomUUID(), policyGraceSeconds: 0 });
    await embedded.store.createDatabase(CALLER, DATABASE);
  });
  afterAll(async () => {
    await embedded.store.close();
    removeFolder(folder);
  });

  async function fill(name: string, count: number, policy: Policy): Promise<Filled> {
    const { store } = embedded;
    const { resource: state } = await store.createContainer(CALLER, DATABASE, name, DEFINITION, policy);
    const nowMs = store.nowMs();
    const has = { hasUniqueKey: false, hasClearPaths: false };
    const model = newContainer({ name, rid: state.rid, createdAtMs: nowMs, policy, graceSeconds: 0, ...has });
    let next = 0;
    const write = async () => {
      while (next < count) {
        const index = next++;
        const ttl = random.pick([undefined, undefined, undefined, -1, 30, 300, 3_000]);
        const document = { id: `item ${index}`, pk: `p${index % 50}`, v: index, ...(ttl === undefined ? {} : { ttl }) };
        const item = { id: document.id, partitionKey: JSON.stringify([document.pk]) };
        const json = JSON.stringify(document);
        const { resource } = await store.writeItem(CALLER, state, 'create', { ...item, document, json });
        const life = newLife({ atMs: resource.ts * 1000, document, etag: '' });
        model.items.set(`${document.pk}/${document.id}`, [life]);
        // The items differ in age, because time passes while they are written.
        if (index % Math.max(1, Math.floor(count / 20)) === 0) await store.advanceClock(10_000);
      }
    };
    await Promise.all(Array.from({ length: Math.min(count, 64) }, write));
    return { state, model };
  }

  async function setPolicy({ model }: Filled, policy: Policy): Promise<void> {
    const { resource } = await embedded.store.replaceContainer(CALLER, DATABASE, model.name, DEFINITION, policy);
    addPolicy(model, resource.timeline.at(-1)!.fromMs, policy);
  }

  /** Compares counts and a sample of items with the plain list. What had ended before must still have ended. */
  async function compare({ state, model }: Filled, gone: Set<string>, what: string): Promise<number> {
    const { store } = embedded;
    const nowMs = store.nowMs();
    const visible = new Set([...model.items.keys()].filter((item) => visibleLife(model, item, nowMs) !== undefined));
    const { rows } = await store.queryItems(state, {
      sql: 'SELECT VALUE COUNT(1) FROM c',
      parameters: [],
      maxItemCount: 10,
    });
    expect(rows, `${what}: the count`).toEqual([visible.size]);
    for (let looked = 0; looked < 200; looked++) {
      const index = random.int(0, model.items.size - 1);
      const item = `p${index % 50}/item ${index}`;
      const shown = await store
        .readItem(state, `item ${index}`, JSON.stringify([`p${index % 50}`]))
        .catch(() => undefined);
      expect(shown !== undefined, `${what}: ${item}`).toBe(visible.has(item));
    }
    for (const item of gone) expect(visible.has(item), `${what}: ${item} must not come back`).toBe(false);
    for (const item of model.items.keys()) if (!visible.has(item)) gone.add(item);
    return visible.size;
  }

  describe(`a change of policy over ${items} items`, () => {
    it(`takes at most ${slower} times as long as one over a single item`, { timeout }, async () => {
      const one = await fill('one item', 1, null);
      const many = await fill('many items', items, null);
      const times = { one: [] as number[], many: [] as number[] };
      // Alternately, so that other load on the machine affects both.
      for (let round = 0; round < 31; round++) {
        for (const [name, filled] of Object.entries({ one, many }) as ['one' | 'many', Filled][]) {
          const startedMs = performance.now();
          await setPolicy(filled, 1_000_000 + round);
          times[name].push(performance.now() - startedMs);
        }
      }
      const median = (numbers: readonly number[]) => numbers.toSorted((left, right) => left - right)[15]!;
      expect(median(times.many)).toBeLessThan(Math.max(median(times.one), 0.2) * slower);
    });

    it(
      'off to on, on to off, shorter and longer have the right effect, and nothing ever comes back',
      { timeout },
      async () => {
        const filled = await fill('changes', items, null);
        const { store } = embedded;
        const gone = new Set<string>();
        const pass = (milliseconds: number) => store.advanceClock(milliseconds);
        expect(await compare(filled, gone, 'off')).toBe(items);
        // The items are up to 200 s old by now.
        const steps: readonly { readonly policy: Policy; readonly thenMs: number; readonly purge?: boolean }[] = [
          { policy: -1, thenMs: 1 },
          { policy: null, thenMs: 50_000 },
          { policy: 100_000, thenMs: 100_000 },
          { policy: 290, thenMs: 20_000 },
          { policy: 100_000, thenMs: 5_000, purge: true },
          { policy: null, thenMs: 1_000_000 },
          { policy: -1, thenMs: 0 },
          { policy: 1_300, thenMs: 30_000, purge: true },
          { policy: 2_147_483_647, thenMs: 3_000_000 },
          { policy: null, thenMs: 0 },
          { policy: 1, thenMs: 0 },
          { policy: null, thenMs: 1, purge: true },
        ];
        let left = items;
        for (const [index, { policy, thenMs, purge }] of steps.entries()) {
          await setPolicy(filled, policy);
          await compare(filled, gone, `step ${index}, ${policy} at once`);
          await pass(thenMs);
          const now = await compare(filled, gone, `step ${index}, ${policy} for ${thenMs} ms`);
          expect(now).toBeLessThanOrEqual(left);
          left = now;
          if (purge !== true) continue;
          await store.runPurge();
          expect(await compare(filled, gone, `step ${index}, purged`)).toBe(left);
        }
        // Only items that never expire are left.
        const never = [...filled.model.items.values()].filter(([life]) => life!.writes[0]!.document['ttl'] === -1);
        expect(left).toBe(never.length);
        const report = await store.fsck();
        expect(report.problems).toEqual([]);
      },
    );
  });
}
