import { initialRetention } from '@epitaph/core/retention/state.ts';
import { describe, expect, it } from 'vitest';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import type { PurgeCause } from '@epitaph/core/item/events.ts';
import type { Watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { Catalog } from '@epitaph/projections/catalog/catalog.ts';
import { changesOf } from '@epitaph/projections/changes.ts';
import {
  type ClearCondition,
  clearCondition,
  type ClearCopy,
  clearValue,
} from '@epitaph/projections/items/clear-values.ts';
import {
  type CatalogEntry,
  type DisappearanceRow,
  type EndedRow,
  type ItemRow,
  type ItemScan,
  type ItemsReader,
  MOST_IDS_SOUGHT,
  type PartDigest,
  type ReadModelChange,
  type ReadModelStore,
  type UnrecordedEnd,
} from '@epitaph/projections/read-model-store.ts';
import { turn } from '@epitaph/core/turn.ts';
import { Random } from '../simulation/random.ts';

export interface ReadModelUnderTest {
  readonly store: ReadModelStore;
  /** A second, empty store of the same kind. */
  readonly another: () => Promise<ReadModelStore>;
  /** Opens the same store again after closing it. */
  readonly reopen: () => Promise<ReadModelStore>;
  readonly dispose: () => Promise<void>;
  /** True if a batch that can't be applied is refused only when something is read. */
  readonly refusesLate?: boolean;
}

const T0 = 1_700_000_000;

async function digestsOf(store: ReadModelStore): Promise<(readonly ['catalog' | number, PartDigest])[]> {
  const snapshot = await store.snapshot();
  try {
    return [...(await snapshot.digests())].toSorted(([left], [right]) => String(left).localeCompare(String(right)));
  } finally {
    await snapshot.close();
  }
}

const CONTAINERS = [2, 3] as const;
const PARTITIONS = ['["a"]', '["b"]', '[{}]', '["a","b"]', '["a","b","c"]', '["a","bb"]', '["ab","b"]', '["a\\"",1]'];
/** A prefix of partition key components, and the partitions above that begin with it. */
const PREFIXES: readonly (readonly [prefix: string, partitions: readonly string[]])[] = [
  ['["a"]', ['["a","b"]', '["a","b","c"]', '["a","bb"]']],
  ['["a","b"]', ['["a","b","c"]']],
  ['["b"]', []],
  ['["a\\""]', ['["a\\"",1]']],
];
const CAUSES: readonly (PurgeCause | undefined)[] = [undefined, 'expired', 'deleted', 'container-deleted', 'erasure'];

/** The content that the store should have, in plain lists that are searched row by row. */
class PlainModel {
  readonly items = new Map<string, ItemRow>();
  readonly ended = new Map<string, EndedRow>();
  readonly disappearances: DisappearanceRow[] = [];
  /** Lives that were deleted with their partition key and have no recorded end yet. The names are those of the ended lives. */
  readonly unrecorded = new Map<string, UnrecordedEnd>();
  /** The values in clear of each life, one for each clear path. Lives are named by their birth. */
  readonly clear = new Map<number, readonly unknown[]>();
  purged = 0;

  of(container: number): ItemRow[] {
    return [...this.items.values()]
      .filter((row) => row.container === container)
      .toSorted((left, right) => left.birth - right.birth);
  }

  visible(container: number, marks: Watermarks): ItemRow[] {
    return this.of(container).filter((row) => !isOverdue(row, marks));
  }

  /** The rows that satisfy every comparison of a clear path with a constant. */
  comparing(rows: readonly ItemRow[], comparisons: readonly Comparison[]): ItemRow[] {
    return rows.filter((row) =>
      comparisons.every(([path, op, constant]) => compares(this.clear.get(row.birth)?.[path], op, constant)),
    );
  }

  overdue(container: number, marks: Watermarks): ItemRow[] {
    const rows = this.of(container).filter((row) => isOverdue(row, marks));
    const byTime = (left: ItemRow, right: ItemRow) => left.ts + (left.ttl ?? 0) - (right.ts + (right.ttl ?? 0));
    return [
      ...rows.filter((row) => row.ttl === null).toSorted(byTime),
      ...rows.filter((row) => row.ttl !== null).toSorted(byTime),
    ];
  }

  endedIn(container: number, byPolicyStart: boolean, atOrBeforeMs: number): EndedRow[] {
    return [...this.ended.values()]
      .filter((row) => row.container === container && row.byPolicyStart === byPolicyStart)
      .filter((row) => row.endedAtMs <= atOrBeforeMs)
      .toSorted((left, right) => left.endedAtMs - right.endedAtMs || left.position - right.position);
  }

  unrecordedIn(container: number, byPolicyStart: boolean, atOrBeforeMs: number): UnrecordedEnd[] {
    if (byPolicyStart) return [];
    return [...this.unrecorded.values()]
      .filter((row) => row.container === container && row.endedAtMs <= atOrBeforeMs)
      .toSorted((left, right) => left.position - right.position);
  }

  disappeared(container: number, fromMs: number, toMs: number, cause: PurgeCause | undefined): DisappearanceRow[] {
    return this.disappearances
      .filter((row) => row.container === container && row.atMs >= fromMs && row.atMs < toMs)
      .filter((row) => cause === undefined || row.cause === cause)
      .toSorted((left, right) => left.atMs - right.atMs || left.position - right.position);
  }
}

function lastLifeIn(
  { items, ended, unrecorded }: PlainModel,
  name: { readonly container: number; readonly partitionKey: string; readonly id: string },
): number | undefined {
  const lives = [...items.values(), ...ended.values(), ...unrecorded.values()]
    .filter((row) => row.container === name.container && row.partitionKey === name.partitionKey && row.id === name.id)
    .map(({ life }) => life);
  return lives.length === 0 ? undefined : Math.max(...lives);
}

function isOverdue({ ts, ttl }: ItemRow, marks: Watermarks): boolean {
  if (ttl === null) return ts * 1000 <= marks.defaultMs;
  return ttl !== -1 && (ts + ttl) * 1000 <= marks.itemMs;
}

/** True for a third of the items without a ttl of their own, so that rows need no field for it. */
const hasUnreadableTtl = ({ ts, ttl }: ItemRow): boolean => ttl === null && ts % 3 === 0;

/** The clear paths of each container. */
const CLEAR_PATHS = [0, 1, 2] as const;
const CLEAR_VALUES = [
  undefined,
  null,
  false,
  true,
  -0,
  0,
  -1.5,
  -1e300,
  5e-324,
  7,
  1e21,
  '',
  '7',
  'a',
  'ab',
  'b\0',
  '\ud800',
  '🪦',
  '\uffff',
];
const OPERATORS = ['=', '<', '<=', '>', '>='] as const;
type Comparison = readonly [path: number, op: (typeof OPERATORS)[number], constant: unknown];

/** Compares as the query language does: only values of the same type, and null only with null. */
function compares(value: unknown, op: Comparison[1], constant: unknown): boolean {
  if (value === undefined || constant === undefined || typeof value !== typeof constant) return false;
  if (value === null || constant === null) return value === constant && op.includes('=');
  const [left, right] = [value as string, constant as string];
  if (left === right) return op.includes('=');
  return op !== '=' && left < right === op.startsWith('<');
}

/** The time by which a span is counted: `_ts`, or the deadline of an item with its own ttl. */
const timeOf = ({ ts, ttl }: ItemRow): number => ts + (ttl ?? 0);

function containerState(number: number): ContainerState {
  return {
    status: 'live',
    rid: `rid${number}`,
    databaseRid: 'database',
    name: `container ${number}`,
    definition: {
      partitionKey: { paths: ['/pk'], kind: 'Hash', version: 2 },
      indexingPolicy: { indexingMode: 'consistent' },
    },
    timeline: [{ fromMs: T0 * 1000, defaultTtl: -1, version: 1, setBy: 'test', recordedAtMs: T0 * 1000 }],
    policyGraceSeconds: 0,
    retention: initialRetention,
    partitionKeyDeletes: [],
    throughput: { kind: 'none' },
    highestThroughput: 0,
    throughputEtag: '"e"',
    throughputChangedAtMs: T0 * 1000,
    etag: '"e"',
    createdAtMs: T0 * 1000,
    changedAtMs: T0 * 1000,
    deletedAtMs: null,
  };
}

interface History {
  readonly changes: readonly ReadModelChange[];
  readonly model: PlainModel;
}

/** A history that a log could have led to: lives begin, are written again, end and are purged, in two containers. */
function randomHistory(random: Random, length: number): History {
  const model = new PlainModel();
  const database = {
    status: 'live' as const,
    rid: 'database',
    name: 'database',
    throughput: { kind: 'none' as const },
    highestThroughput: 0,
    throughputEtag: '"e"',
    throughputChangedAtMs: T0 * 1000,
    etag: '"e"',
    createdAtMs: T0 * 1000,
    changedAtMs: T0 * 1000,
    deletedAtMs: null,
  };
  const changes: ReadModelChange[] = [
    { kind: 'database', number: 1, state: database },
    ...CONTAINERS.map((number) => ({ kind: 'container' as const, number, state: containerState(number) })),
  ];
  const lives = new Map<string, number>();
  for (let position = 4; changes.length < length; position++) {
    const name = {
      container: random.pick(CONTAINERS),
      partitionKey: random.pick(PARTITIONS),
      id: `item ${random.int(0, 14)}`,
    };
    const text = JSON.stringify(name);
    const current = model.items.get(text);
    const endedRow = [...model.ended.values()].find(
      (row) => row.container === name.container && row.partitionKey === name.partitionKey && row.id === name.id,
    );
    const action = random.weighted({ write: 6, end: 2, purge: 2, take: 0.3, 'delete-key': 0.15, 'record-end': 1.5 });
    if (action === 'write') {
      const ts = T0 + random.int(0, 60);
      const ttl = random.pick([null, null, -1, 1, 5, 30, 2_147_483_647]);
      const life = current?.life ?? (lives.get(text) ?? -1) + 1;
      lives.set(text, life);
      const row: ItemRow = {
        ...name,
        birth: current?.birth ?? position,
        life,
        position,
        ts,
        ttl,
        key: current?.key ?? position,
      };
      model.items.set(text, row);
      const values = CLEAR_PATHS.map(() => random.pick(CLEAR_VALUES));
      model.clear.set(row.birth, values);
      changes.push({
        kind: 'item-written',
        ...name,
        life,
        revision: current === undefined ? 0 : 1,
        position,
        ts,
        ttl,
        key: row.key,
        unreadableTtl: hasUnreadableTtl(row),
        clear: values.flatMap((value, path) => {
          const copied = clearValue(value);
          return copied === undefined ? [] : [{ path, value: copied }];
        }),
      });
    } else if (action === 'end' && current !== undefined) {
      const cause = random.pick(['expired', 'deleted'] as const);
      const atMs = T0 * 1000 + random.int(0, 40) * 500;
      const row: EndedRow = {
        ...name,
        life: current.life,
        stream: `item-rid${name.container}.${text}.${current.life}`,
        position,
        cause,
        endedAtMs: atMs,
        byPolicyStart: cause === 'expired' && random.chance(0.4),
      };
      const disappearance: DisappearanceRow = {
        ...name,
        life: current.life,
        position,
        cause,
        atMs,
        recordedAtMs: atMs + 7,
        purgedAtMs: null,
        actor: cause === 'expired' ? null : `key:${position}`,
        rule: cause === 'expired' ? 'item-ttl' : null,
        ttl: cause === 'expired' ? 5 : null,
        policyVersion: cause === 'expired' ? 1 : null,
      };
      model.items.delete(text);
      model.ended.set(`${text} ${current.life}`, row);
      model.disappearances.push(disappearance);
      changes.push({ kind: 'item-ended', row, disappearance });
    } else if (action === 'delete-key') {
      const atMs = T0 * 1000 + random.int(0, 60_000);
      const marks = { defaultMs: atMs - 30_000, itemMs: atMs };
      for (const row of model.visible(name.container, marks)) {
        if (row.partitionKey !== name.partitionKey) continue;
        const { id, life, position: written } = row;
        const own = { ...name, id };
        model.items.delete(JSON.stringify(own));
        const end = { ...own, life, position: written, endedAtMs: atMs };
        model.unrecorded.set(`${JSON.stringify(own)} ${life}`, end);
        model.disappearances.push({
          ...own,
          life,
          position: written,
          cause: 'deleted',
          atMs,
          recordedAtMs: atMs,
          purgedAtMs: null,
          actor: `key:${position}`,
          rule: null,
          ttl: null,
          policyVersion: null,
        });
      }
      const { container, partitionKey } = name;
      changes.push({ kind: 'partition-key-deleted', container, partitionKey, atMs, actor: `key:${position}`, marks });
    } else if (action === 'record-end' && model.unrecorded.size > 8) {
      const [key, { endedAtMs, ...end }] = random.pick([...model.unrecorded]);
      model.unrecorded.delete(key);
      const { container, partitionKey, id, life } = end;
      const stream = `item-rid${container}.${key}`;
      // If the later writes of a life were gone when it was projected, the record of its end differs from the rows.
      const knowsBetter = random.chance(1 / 2);
      const isExpiry = knowsBetter && random.chance(1 / 2);
      const cause = isExpiry ? 'expired' : 'deleted';
      const at = { position: knowsBetter ? position : end.position, endedAtMs: endedAtMs - (isExpiry ? 1_000 : 0) };
      const row: EndedRow = { ...end, ...at, stream, cause, byPolicyStart: isExpiry };
      const disappearance: DisappearanceRow = {
        container,
        partitionKey,
        id,
        life,
        position: at.position,
        cause,
        atMs: at.endedAtMs,
        recordedAtMs: endedAtMs,
        purgedAtMs: null,
        actor: knowsBetter ? null : 'nobody asks',
        rule: isExpiry ? 'item-ttl' : null,
        ttl: isExpiry ? 5 : null,
        policyVersion: isExpiry ? 1 : null,
      };
      model.ended.set(key, row);
      if (knowsBetter) {
        const shown = model.disappearances.findIndex((other) => other.position === end.position);
        model.disappearances.splice(shown, 1);
        model.disappearances.push(disappearance);
      }
      changes.push({ kind: 'item-ended', row, disappearance });
    } else if ((action === 'purge' && endedRow !== undefined) || (action === 'take' && current !== undefined)) {
      const life = action === 'take' ? current!.life : endedRow!.life;
      const purgedAtMs = T0 * 1000 + 90_000 + position;
      const disappearance: DisappearanceRow = {
        ...name,
        life,
        position,
        cause: 'container-deleted',
        atMs: T0 * 1000 + 50_000,
        recordedAtMs: purgedAtMs,
        purgedAtMs,
        actor: position % 2 === 0 ? null : `key:${position}`,
        rule: null,
        ttl: null,
        policyVersion: null,
      };
      if (action === 'take') {
        model.items.delete(text);
        model.disappearances.push(disappearance);
      } else {
        const end = model.ended.get(`${text} ${life}`)!;
        model.ended.delete(`${text} ${life}`);
        const index = model.disappearances.findIndex((row) => row.position === end.position);
        model.disappearances[index] = { ...model.disappearances[index]!, purgedAtMs };
      }
      model.purged += 1;
      changes.push({ kind: 'item-purged', ...name, life, purgedAtMs, disappearance });
    }
  }
  return { changes, model };
}

/** Possible events of a container: holds placed and released, policies set, scheduled and withdrawn. */
function containerEvents(random: Random, position: number, count: number): RecordedEvent[] {
  const definition = {
    partitionKey: { paths: ['/tenant'], kind: 'Hash', version: 2 },
    indexingPolicy: { indexingMode: 'consistent' },
  };
  const created = { databaseRid: 'Db', name: 'carts', definition, defaultTtl: null, policyGraceSeconds: 0 };
  const events: RecordedEvent[] = [];
  const add = (type: string, data: RecordedEvent['data']) =>
    events.push({
      id: '11111111-1111-4111-8111-111111111111',
      type,
      version: type === 'ContainerCreated' ? 2 : 1,
      data,
      occurredAtMs: T0 * 1000 + events.length,
      actor: 'key:primary',
      correlationId: '22222222-2222-4222-8222-222222222222',
      causationId: '22222222-2222-4222-8222-222222222222',
      stream: 'container-Co',
      revision: events.length,
      position: position + events.length,
    });
  add('ContainerCreated', created);
  let holds = 0;
  let policyVersion = 1;
  let effectiveFromMs = T0 * 1000;
  let isScheduled = false;
  while (events.length < count) {
    const action = random.pick(['hold', 'hold', 'release', 'policy', 'withdraw', 'floor'] as const);
    if (action === 'hold') {
      const scope = random.pick([{ kind: 'container' }, { kind: 'items', items: ['a\u0000', '\ud800'] }]);
      add('HoldPlaced', { holdId: `hold ${holds++}`, scope, reason: 'r', tooLateFor: 0 });
    } else if (action === 'release' && holds > 0) {
      add('HoldReleased', { holdId: `hold ${random.int(0, holds - 1)}`, reason: 'r' });
    } else if (action === 'policy') {
      policyVersion += 1;
      isScheduled = true;
      effectiveFromMs += random.int(0, 2);
      add('ContainerTtlChanged', { from: null, to: policyVersion, policyVersion, effectiveFromMs, scheduled: true });
    } else if (action === 'withdraw' && isScheduled) {
      isScheduled = false;
      add('ContainerTtlWithdrawn', { policyVersion, effectiveFromMs });
    } else if (action === 'floor') {
      add('RetentionFloorChanged', { fromSeconds: 0, toSeconds: events.length, reason: 'r' });
    }
  }
  return events;
}

/** Applies changes in batches of random sizes. The checkpoint is the number of changes applied. */
async function applyInBatches(
  store: ReadModelStore,
  changes: readonly ReadModelChange[],
  random: Random,
  most: number,
) {
  for (let from = 0; from < changes.length;) {
    const to = Math.min(changes.length, from + random.int(1, most));
    await store.apply(changes.slice(from, to), to);
    from = to;
  }
}

/** The contract of `ReadModelStore`, as tests that every adapter runs. Each answer is compared with a search through every row. */
export function describeReadModel(name: string, make: () => Promise<ReadModelUnderTest>): void {
  const test = (sentence: string, body: (under: ReadModelUnderTest) => Promise<void>) => {
    it(sentence, async () => {
      const under = await make();
      try {
        await body(under);
      } finally {
        await under.dispose();
      }
    });
  };
  const testFilled = (
    sentence: string,
    body: (store: ReadModelStore, model: PlainModel, random: Random) => Promise<void>,
  ) => {
    test(sentence, async ({ store }) => {
      const random = new Random(20_261_121);
      const { changes, model } = randomHistory(random, 900);
      await applyInBatches(store, changes, random, 50);
      await body(store, model, random);
    });
  };
  /** Watermarks around every edge: nothing expired, everything expired, and between whole seconds. */
  const marksOf = (random: Random): Watermarks[] => [
    { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY },
    { defaultMs: Number.NEGATIVE_INFINITY, itemMs: (T0 + 20) * 1000 },
    { defaultMs: (T0 + 100) * 1000, itemMs: (T0 + 100) * 1000 },
    { defaultMs: -5_000, itemMs: (T0 + 3_000_000_000) * 1000 },
    ...Array.from({ length: 12 }, () => {
      const itemMs = (T0 + random.int(0, 95)) * 1000 + random.pick([-1, 0, 0, 1, 999]);
      return { defaultMs: itemMs - random.int(0, 40) * 1000, itemMs };
    }),
  ];

  describe(`${name} keeps the read model's contract:`, () => {
    test('a new store is empty, and its checkpoint is before the first event', async ({ store }) => {
      expect(await store.checkpoint()).toBe(0);
      expect(await store.containers()).toEqual([]);
      expect(await store.databases()).toEqual([]);
      expect(await store.catalogEntries()).toEqual([]);
      expect(await store.openPurgeRuns()).toEqual([]);
      expect(await store.countPurged()).toBe(0);
      expect(await store.findItem(2, '["a"]', 'item')).toBe(undefined);
    });

    test('keeps the last state of users, client encryption keys and scripts, and forgets deleted ones', async ({
      store,
    }) => {
      const stamp = { databaseRid: 'Db', etag: '"e"', changedAtMs: 1 };
      const user = (number: number, name: string, status: 'live' | 'deleted' = 'live'): CatalogEntry => ({
        kind: 'user',
        number,
        state: { status, rid: `user ${number}`, name, permissions: [], ...stamp },
      });
      const key: CatalogEntry = {
        kind: 'client-encryption-key',
        number: 4,
        state: {
          rid: 'key 4',
          name: 'key',
          wrappedKey: { encryptionAlgorithm: 'a', wrappedDataEncryptionKey: 'w', keyWrapMetadata: { more: [1] } },
          ...stamp,
        },
      };
      const script = (body: string): CatalogEntry => ({
        kind: 'script',
        number: 5,
        state: { status: 'live', rid: 's', containerRid: 'C', kind: 'trigger', name: 't', body, ...stamp },
      });
      const empty = await digestsOf(store);
      await store.apply([user(9, 'carla'), user(3, 'ann'), key, script('one')], 9);
      await store.apply([user(3, 'anna'), user(9, 'carla', 'deleted'), script('two')], 11);
      expect(await store.catalogEntries()).toEqual([user(3, 'anna'), key, script('two')]);
      const one = await digestsOf(store);
      expect(one).not.toEqual(empty);
      await store.apply([user(3, 'anne')], 12);
      expect(await digestsOf(store)).not.toEqual(one);
    });

    test('keeps holds and policies of a container as its events tell, however the events were batched', async ({
      store,
      another,
    }) => {
      const random = new Random(20_261_122);
      const events = containerEvents(random, 2, 400);
      const catalog = new Catalog();
      for (let from = 0; from < events.length;) {
        const some = events.slice(from, (from += random.int(1, 9)));
        await store.apply(changesOf(some, catalog), some.at(-1)!.position);
      }
      const state = foldContainer(events)!;
      expect(await store.containers()).toEqual([{ number: 2, state }]);
      const other = await another();
      const more = { ...state, timeline: [...state.timeline, ...state.timeline] };
      // To a store that does not know the container, the whole state is written. A shorter state leaves nothing of a longer one.
      await other.apply([{ kind: 'container', number: 2, state: more }], 1);
      expect(await digestsOf(other)).not.toEqual(await digestsOf(store));
      await other.apply([{ kind: 'container', number: 2, state }], 2);
      expect(await digestsOf(other)).toEqual(await digestsOf(store));
    });

    test('shows in a snapshot the items as they were when it was taken, whatever is applied afterwards', async ({
      store,
    }) => {
      const seed = 20_261_130;
      const [earlier, later] = [450, 900].map((length) => randomHistory(new Random(seed), length)) as [
        History,
        History,
      ];
      const random = new Random(seed);
      await applyInBatches(store, earlier.changes, random, 50);
      const snapshots = await Promise.all(CONTAINERS.map((container) => store.itemsSnapshot(container)));
      const rest = later.changes.slice(earlier.changes.length);
      const shows = async (items: ItemsReader, { model }: History, container: number) => {
        const marks = marksOf(random)[1]!;
        const scan = { afterBirth: 0, limit: 1_000, marks };
        const visible = model.visible(container, marks);
        expect(await items.allItems(container, 0, 1_000)).toEqual(model.of(container));
        expect(await items.scanItems(container, scan)).toEqual(visible);
        expect(await items.countVisible(container, marks)).toBe(visible.length);
        const times = visible.filter(({ ttl }) => ttl === null).map(({ ts }) => ts);
        const place = { after: 0, upTo: T0 + 1_000, behind: 0, from: 'newest' } as const;
        expect(await items.tsAt(container, place)).toBe(times.length === 0 ? undefined : Math.max(...times));
        for (const partitionKey of PARTITIONS) {
          const rows = visible.filter((row) => row.partitionKey === partitionKey);
          expect(await items.scanItems(container, { ...scan, partitionKey })).toEqual(rows);
          for (const id of ['item 0', 'item 7']) {
            const row = model.items.get(JSON.stringify({ container, partitionKey, id }));
            expect(await items.findItem(container, partitionKey, id)).toEqual(row);
          }
        }
        const comparison: Comparison = [0, '<', 7];
        const clear = [clearCondition(0, '<', [7])];
        const found = await items.scanItems(container, { ...scan, clear });
        expect(found).toEqual(expect.arrayContaining(model.comparing(visible, [comparison])));
      };
      await applyInBatches(store, rest, random, 50);
      for (const [index, container] of CONTAINERS.entries()) {
        await shows(snapshots[index]!, earlier, container);
        await shows(store, later, container);
      }
      // A snapshot may be closed more than once, and a later snapshot shows the later items.
      for (const snapshot of [...snapshots, ...snapshots]) await snapshot.close();
      const next = await store.itemsSnapshot(2);
      await shows(next, later, 2);
      await next.close();
    });

    test('has an item as unreadable from an unreadable event until its next readable one, unless the life has ended', async ({
      store,
    }) => {
      const name = { container: 2, partitionKey: '["a"]', id: 'one' };
      const write = (life: number, revision: number, position: number) => {
        const at = { ...name, life, revision, position };
        return { kind: 'item-written', ...at, ts: 1_700_000_000, ttl: null, key: 7, unreadableTtl: false } as const;
      };
      const unreadable = (life: number, revision: number, position: number) =>
        ({ ...write(life, revision, position), ttl: -1, key: -1, isUnreadable: true }) as const;
      const row = () => store.findItem(2, name.partitionKey, name.id);
      await store.apply([write(0, 0, 5), unreadable(0, 1, 6)], 6);
      expect(await row()).toMatchObject({ birth: 5, position: 6, ttl: -1, key: -1 });
      await store.apply([write(0, 2, 7)], 7);
      expect(await row()).toMatchObject({ birth: 5, position: 7, ttl: null, key: 7 });
      // The end can't be read, and neither can the first event of the next life.
      await store.apply([unreadable(0, 3, 8), unreadable(1, 0, 9), write(1, 1, 10)], 10);
      expect(await row()).toMatchObject({ birth: 9, position: 10, life: 1, key: 7 });
      await store.apply([unreadable(0, 4, 11)], 11);
      expect(await row()).toMatchObject({ position: 10, life: 1 });
    });

    test('takes a write without an item, and a life after one that has not ended, if the log has lost the events before', async ({
      store,
    }) => {
      const write = (life: number, revision: number, position: number) => {
        const at = { container: 2, partitionKey: '["a"]', id: 'one', life, revision, position };
        return { kind: 'item-written', ...at, ts: 1_700_000_000, ttl: null, key: life, unreadableTtl: false } as const;
      };
      const row = () => store.findItem(2, '["a"]', 'one');
      await store.apply([write(0, 1, 5)], 5, undefined, true);
      expect(await row()).toMatchObject({ birth: 5, position: 5, life: 0 });
      await store.apply([write(1, 0, 6), write(2, 0, 7)], 7, undefined, true);
      expect(await row()).toMatchObject({ birth: 7, position: 7, life: 2, key: 2 });
      expect(await store.countItems(2)).toBe(1);
    });

    const names = CONTAINERS.flatMap((container) =>
      PARTITIONS.flatMap((partitionKey) =>
        // Some names are asked for twice.
        Array.from({ length: 18 }, (_, at) => ({ container, partitionKey, id: `item ${at % 15}` })),
      ),
    );

    testFilled(
      'finds each current item by its name, and no other, if many are looked up at once',
      async (store, model) => {
        const found = await Promise.all(
          names.map(async ({ container, partitionKey, id }) => store.findItem(container, partitionKey, id)),
        );
        expect(found).toEqual(names.map((name) => model.items.get(JSON.stringify(name))));
      },
    );

    testFilled('knows the last life of each item with content, ended or not', async (store, model) => {
      const lives = await Promise.all(
        names.map(async ({ container, partitionKey, id }) => store.lastLife(container, partitionKey, id)),
      );
      expect(lives).toEqual(names.map((name) => lastLifeIn(model, name)));
      const unknown = names.filter(({ container, partitionKey, id }) => store.isUnknown(container, partitionKey, id));
      expect(unknown.filter((name) => lastLifeIn(model, name) !== undefined)).toEqual([]);
    });

    testFilled('counts and lists items by spans of their times', async (store, model, random) => {
      for (const container of CONTAINERS) {
        for (let round = 0; round < 20; round++) {
          const spans = (['default', 'own'] as const).map((by) => {
            const after = random.pick([-1, T0 + random.int(0, 90)]);
            const upTo = random.pick([Number.POSITIVE_INFINITY, after + random.int(0, 60)]);
            return { by, after, upTo, ...(round % 2 === 0 ? {} : { writtenAfter: T0 + random.int(0, 60) }) };
          });
          const rowsOf = ({ by, after, upTo, writtenAfter = -1 }: (typeof spans)[number]) =>
            model
              .of(container)
              .filter(({ ttl }) => (by === 'default' ? ttl === null : ttl !== null && ttl > 0))
              .filter((row) => row.ts > writtenAfter && timeOf(row) > after && timeOf(row) <= upTo);
          expect(await store.countByTimes(container, spans)).toEqual(
            spans.map((span) => {
              const rows = rowsOf(span);
              return {
                items: rows.length,
                oldestTs: rows.length === 0 ? null : Math.min(...rows.map(({ ts }) => ts)),
              };
            }),
          );
          for (const span of spans) {
            const limit = random.int(1, 5);
            const times = (await store.itemsByTimes(container, span, limit)).map(timeOf);
            const expected = rowsOf(span).map(timeOf);
            expect(times).toEqual(expected.toSorted((left, right) => left - right).slice(0, limit));
          }
        }
        for (const marks of marksOf(random)) {
          expect(await store.countOddTtls(container, marks)).toEqual({
            never: model.of(container).filter(({ ttl }) => ttl === -1).length,
            unreadable: model.visible(container, marks).filter(hasUnreadableTtl).length,
          });
        }
      }
    });

    testFilled(
      'finds the time of the n-th item without a ttl of its own, in order of time',
      async (store, model, random) => {
        for (const container of CONTAINERS) {
          for (let round = 0; round < 40; round++) {
            const after = random.pick([-1, T0 + random.int(0, 60)]);
            const upTo = random.pick([Number.MAX_SAFE_INTEGER, T0 + random.int(0, 90)]);
            const times = model
              .of(container)
              .filter(({ ttl, ts }) => ttl === null && ts > after && ts <= upTo)
              .map(({ ts }) => ts)
              .toSorted((left, right) => left - right);
            const behind = random.int(0, times.length);
            const place = { after, upTo, behind };
            expect(await store.tsAt(container, { ...place, from: 'oldest' })).toBe(times[behind]);
            expect(await store.tsAt(container, { ...place, from: 'newest' })).toBe(times.toReversed()[behind]);
          }
        }
      },
    );

    testFilled(
      'scans the items that the watermarks leave visible, in pages in order of birth',
      async (store, model, random) => {
        for (const marks of marksOf(random)) {
          for (const container of CONTAINERS) {
            for (const partitionKey of [undefined, ...PARTITIONS]) {
              const expected = model
                .visible(container, marks)
                .filter((row) => partitionKey === undefined || row.partitionKey === partitionKey);
              const limit = random.int(1, 12);
              const found: ItemRow[] = [];
              for (;;) {
                const afterBirth = found.at(-1)?.birth ?? 0;
                const page = await store.scanItems(container, { partitionKey, afterBirth, limit, marks });
                expect(page.length).toBeLessThanOrEqual(limit);
                found.push(...page);
                if (page.length < limit) break;
              }
              expect(found).toEqual(expected);
            }
            expect(await store.countVisible(container, marks)).toBe(model.visible(container, marks).length);
          }
        }
      },
    );

    testFilled('scans the partitions with given leading components, and no others', async (store, model, random) => {
      for (const marks of marksOf(random)) {
        for (const container of CONTAINERS) {
          for (const [prefix, partitions] of PREFIXES) {
            const expected = model.visible(container, marks).filter((row) => partitions.includes(row.partitionKey));
            const found: ItemRow[] = [];
            for (const limit = random.int(1, 12); ;) {
              const afterBirth = found.at(-1)?.birth ?? 0;
              const page = await store.scanItems(container, { prefix, afterBirth, limit, marks });
              found.push(...page);
              if (page.length < limit) break;
            }
            expect(found).toEqual(expected);
          }
        }
      }
    });

    testFilled(
      'narrows a scan to some ids and times, in any scope, in pages in order of birth',
      async (store, model, random) => {
        let some = 0;
        for (const marks of marksOf(random)) {
          for (let round = 0; round < 30; round++) {
            const container = random.pick(CONTAINERS);
            const [prefix, partitions] = random.pick(PREFIXES);
            const partitionKey = random.pick(PARTITIONS);
            const [scope, isInScope] = random.pick([
              [{}, () => true],
              [{ partitionKey }, (row: ItemRow) => row.partitionKey === partitionKey],
              [{ prefix }, (row: ItemRow) => partitions.includes(row.partitionKey)],
            ] as const);
            const all = model.of(container);
            const number = random.pick([0, 1, 1, 2, 20, MOST_IDS_SOUGHT]);
            const ids = Array.from({ length: number }, () => (all.length === 0 ? 'none' : random.pick(all).id));
            const [low, high] = [random.pick([undefined, T0 + 10]), random.pick([undefined, T0 + 45])];
            const where = { ids: number === 0 ? undefined : ids, minTs: low, maxTs: high };
            const expected = model
              .visible(container, marks)
              .filter(
                (row) =>
                  isInScope(row) &&
                  (number === 0 || ids.includes(row.id)) &&
                  row.ts >= (low ?? 0) &&
                  row.ts <= (high ?? Number.POSITIVE_INFINITY),
              );
            const found: ItemRow[] = [];
            for (const limit = random.int(1, 4); ;) {
              const afterBirth = found.at(-1)?.birth ?? 0;
              const page = await store.scanItems(container, { ...scope, where, afterBirth, limit, marks });
              found.push(...page);
              if (page.length < limit) break;
            }
            expect(found).toEqual(expected);
            some += expected.length;
          }
        }
        expect(some).toBeGreaterThan(100);
      },
    );

    testFilled(
      'narrows a scan to the items whose values in clear satisfy comparisons, in pages in order of birth',
      async (store, model, random) => {
        let some = 0;
        for (const marks of marksOf(random).slice(0, 6)) {
          for (let round = 0; round < 40; round++) {
            const container = random.pick(CONTAINERS);
            const partitionKey = random.pick([undefined, undefined, ...PARTITIONS]);
            const comparisons = Array.from({ length: random.int(1, 3) }, (): Comparison => {
              return [random.pick(CLEAR_PATHS), random.pick(OPERATORS), random.pick(CLEAR_VALUES)];
            });
            const clear = comparisons.map(([path, op, constant]) => clearCondition(path, op, [constant]));
            // Bounds are included in what a scan finds; the caller makes the final comparison.
            const inclusive = comparisons.map(([path, op, constant]): Comparison => {
              return [path, op === '<' ? '<=' : op === '>' ? '>=' : op, constant];
            });
            const visible = model
              .visible(container, marks)
              .filter((row) => partitionKey === undefined || row.partitionKey === partitionKey);
            const expected = model.comparing(visible, inclusive);
            const found: ItemRow[] = [];
            for (const limit = random.int(1, 4); ;) {
              const afterBirth = found.at(-1)?.birth ?? 0;
              const page = await store.scanItems(container, { partitionKey, clear, afterBirth, limit, marks });
              found.push(...page);
              if (page.length < limit) break;
            }
            const births = new Set(expected.map(({ birth }) => birth));
            expect(found.filter(({ birth }) => births.has(birth))).toEqual(expected);
            // The few items of a partition may be examined one by one instead.
            if (partitionKey === undefined) expect(found).toEqual(expected);
            else expect(visible).toEqual(expect.arrayContaining(found));
            some += expected.length;
          }
        }
        expect(some).toBeGreaterThan(100);
      },
    );

    test('narrows a scan by a disjunction, and ignores conditions that too many items meet', async ({ store }) => {
      const items = 21_000;
      const names = Array.from({ length: items }, (_, index) => ({
        container: 2,
        partitionKey: `["${index % 3}"]`,
        id: `item ${index}`,
      }));
      const valuesOf = (index: number) => [index % 2 === 0 ? 'even' : 'odd', index];
      const changes = names.map((name, index): ReadModelChange => ({
        kind: 'item-written',
        ...name,
        life: 0,
        revision: 0,
        position: index + 1,
        ts: T0,
        ttl: null,
        key: index + 1,
        unreadableTtl: false,
        clear: valuesOf(index).map((value, path) => ({ path, value: clearValue(value)! })),
      }));
      for (let from = 0; from < items; from += 7_000)
        await store.apply(changes.slice(from, from + 7_000), from + 7_000);
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
      const idsOf = async (clear: readonly ClearCondition[], partitionKey?: string) => {
        const ids: string[] = [];
        for (let afterBirth = 0; ;) {
          const page = await store.scanItems(2, { clear, partitionKey, afterBirth, limit: 7_000, marks });
          ids.push(...page.map((row) => row.id));
          if (page.length < 7_000) return ids;
          afterBirth = page.at(-1)!.birth;
        }
      };
      const expected = (wanted: (index: number) => boolean) =>
        names.filter((_, index) => wanted(index)).map(({ id }) => id);
      const even = clearCondition(0, '=', ['even']);
      expect(await idsOf([even])).toEqual(expected((index) => index % 2 === 0));
      // These conditions hold for all items. With single values nothing is sorted; with a range all rows are examined.
      const all = expected(() => true);
      expect(await idsOf([clearCondition(0, 'in', ['even', 'odd'])])).toEqual(all);
      expect(await idsOf([clearCondition(1, '>=', [0])])).toEqual(all);
      expect(await idsOf([clearCondition(1, '>=', [0]), clearCondition(1, '<', [3])])).toEqual(all.slice(0, 4));
      expect(await idsOf([clearCondition(0, 'in', ['even', 'odd'])], '["1"]')).toEqual(
        expected((index) => index % 3 === 1),
      );
      const either = [...clearCondition(1, '=', [3]), ...clearCondition(1, '>=', [items - 2])];
      expect(await idsOf([either, clearCondition(0, 'in', ['odd', 'none'])])).toEqual(
        expected((index) => index === 3 || index === items - 1),
      );
      expect(await idsOf([clearCondition(0, '=', ['none'])])).toEqual([]);
    });

    test('a search by many values finds an item whose value changes from one of them to another meanwhile', async ({
      store,
    }) => {
      // given
      const values = Array.from({ length: 200 }, (_, value) => value);
      const ids = Array.from({ length: 50 }, (_, index) => `item ${index}`);
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
      const writes = (revision: number) =>
        ids.map((id, index): ReadModelChange => ({
          kind: 'item-written',
          container: 2,
          partitionKey: '["a"]',
          id,
          life: 0,
          revision,
          position: revision * ids.length + index + 1,
          ts: T0,
          ttl: null,
          key: index + 1,
          unreadableTtl: false,
          clear: [{ path: 0, value: clearValue((index + revision * 119) % values.length)! }],
        }));
      // A change other than a write goes into the store at once, together with the writes before it, so readers don't wait for it.
      const other: ReadModelChange = { kind: 'purge-run-completed', stream: 'purge-run-1' };
      const written = async (revision: number) =>
        store.apply([...writes(revision), other], (revision + 1) * ids.length);
      await written(0);
      const clear = [clearCondition(0, 'in', values)];
      for (let revision = 1; revision <= 150; revision++) {
        // when
        const writing = written(revision);
        for (let look = 0; look < 3; look++) {
          await turn();
          const found = await store.scanItems(2, { clear, afterBirth: 0, limit: 100, marks });
          // then
          expect(found.map(({ id }) => id)).toEqual(ids);
        }
        await writing;
      }
    });

    testFilled('lists and counts all items whatever the watermarks', async (store, model, random) => {
      for (const container of CONTAINERS) {
        const all = model.of(container);
        expect(await store.countItems(container)).toBe(all.length);
        expect(await store.allItems(container, 0, 1_000)).toEqual(all);
        expect(await store.dueOtherwise(container, 0, 1_000_000)).toEqual([]);
        const from = random.pick(all);
        expect(await store.allItems(container, from.birth, 3)).toEqual(
          all.filter((row) => row.birth > from.birth).slice(0, 3),
        );
        expect(await store.allItems(container, from.birth - 1, 3, from.birth)).toEqual([from]);
        const last = random.pick(all).birth;
        expect(await store.allItems(container, 0, 1_000, last)).toEqual(all.filter(({ birth }) => birth <= last));
      }
      expect(await store.countItems(99)).toBe(0);
    });

    test('names the containers with content until all of it is erased', async ({ store }) => {
      const named = async () => (await store.containersWithContent()).toSorted((left, right) => left - right);
      expect(await named()).toEqual([]);
      const nameOf = (container: number) => ({ container, partitionKey: '["a"]', id: 'i', life: 0 });
      const at = { ts: T0, ttl: null, key: 1, unreadableTtl: false };
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
      const written = [7, 300, 2].map((container, index) => ({
        kind: 'item-written' as const,
        ...nameOf(container),
        ...at,
        revision: 0,
        position: 1 + index,
      }));
      const gone = (container: number, position: number): DisappearanceRow => ({
        ...nameOf(container),
        position,
        cause: 'deleted',
        atMs: T0 * 1000,
        recordedAtMs: T0 * 1000,
        purgedAtMs: null,
        actor: null,
        rule: null,
        ttl: null,
        policyVersion: null,
      });
      const end = { stream: 's', position: 4, cause: 'deleted', endedAtMs: T0 * 1000, byPolicyStart: false } as const;
      const leaving = { container: 300, partitionKey: '["a"]', atMs: T0 * 1000, actor: 'key:primary', marks };
      await store.apply(written, 3);
      expect(await named()).toEqual([2, 7, 300]);
      const row = { ...nameOf(7), ...end };
      await store.apply([{ kind: 'item-ended', row, disappearance: gone(7, 4) }], 4);
      await store.apply([{ kind: 'partition-key-deleted', ...leaving }], 5);
      expect(await store.unrecordedEnds(300, 2)).toHaveLength(1);
      expect(await named()).toEqual([2, 7, 300]);
      for (const [index, container] of [300, 7, 2].entries()) {
        const purgedAtMs = T0 * 1000 + index;
        const disappearance = { ...gone(container, 10 + index), purgedAtMs };
        await store.apply([{ kind: 'item-purged', ...nameOf(container), purgedAtMs, disappearance }], 10 + index);
        expect(await named()).toEqual([2, 7].slice(0, 2 - index));
      }
    });

    testFilled(
      'finds overdue items: those without a ttl first, oldest first, as many as requested',
      async (store, model, random) => {
        for (const marks of marksOf(random)) {
          for (const container of CONTAINERS) {
            const expected = model.overdue(container, marks);
            for (const limit of [1, 3, 1_000]) {
              const found = await store.overdueItems(container, marks, limit);
              // Items of the same second may come in any order.
              const times = (rows: readonly ItemRow[]) =>
                rows.map((row) => [row.ttl === null, row.ts + (row.ttl ?? 0)]);
              expect(times(found)).toEqual(times(expected.slice(0, limit)));
              const births = new Set(expected.map((row) => row.birth));
              expect(found.every((row) => births.has(row.birth))).toBe(true);
              expect(new Set(found.map((row) => row.birth)).size).toBe(found.length);
            }
            const statistics = await store.overdueStatistics(container, marks);
            expect(statistics.count).toBe(expected.length);
            const least = (times: readonly number[]) => (times.length === 0 ? null : Math.min(...times));
            expect(statistics.oldestTs).toBe(least(expected.flatMap(({ ts, ttl }) => (ttl === null ? ts : []))));
            expect(statistics.oldestDue).toBe(least(expected.flatMap(({ ts, ttl }) => (ttl === null ? [] : ts + ttl))));
          }
        }
      },
    );

    testFilled(
      'finds the next deadlines beyond the watermarks, and none for items that never expire',
      async (store, model, random) => {
        for (const marks of marksOf(random)) {
          for (const container of CONTAINERS) {
            const rest = model.visible(container, marks);
            const least = (numbers: readonly number[]) => (numbers.length === 0 ? null : Math.min(...numbers));
            expect(await store.nextDeadlines(container, marks)).toEqual({
              ts: least(rest.filter((row) => row.ttl === null).map((row) => row.ts)),
              due: least(rest.filter((row) => row.ttl !== null && row.ttl > 0).map((row) => row.ts + row.ttl!)),
            });
          }
        }
      },
    );

    testFilled(
      'pages through ended lives, oldest first, with those ended by a policy start apart',
      async (store, model, random) => {
        for (const container of CONTAINERS) {
          for (const byPolicyStart of [false, true]) {
            for (const endedAtOrBeforeMs of [
              0,
              T0 * 1000,
              T0 * 1000 + 7_500,
              T0 * 1000 + 7_499,
              Number.MAX_SAFE_INTEGER,
            ]) {
              const expected = model.endedIn(container, byPolicyStart, endedAtOrBeforeMs);
              const limit = random.int(1, 5);
              const found: EndedRow[] = [];
              for (;;) {
                const last = found.at(-1);
                const after = last === undefined ? undefined : { endedAtMs: last.endedAtMs, position: last.position };
                const page = await store.endedLives(container, { byPolicyStart, endedAtOrBeforeMs, after, limit });
                found.push(...page);
                if (page.length < limit) break;
              }
              expect(found).toEqual(expected);
              expect(await store.countEnded(container, byPolicyStart, endedAtOrBeforeMs)).toBe(
                expected.length + model.unrecordedIn(container, byPolicyStart, endedAtOrBeforeMs).length,
              );
            }
          }
        }
      },
    );

    test('pages through a container with many items, and through a part of it, in the same way as through a small one', async ({
      store,
    }) => {
      const births = { 2: [] as number[], 3: [] as number[] };
      const inPart = { 2: [] as number[], 3: [] as number[] };
      const changes: ReadModelChange[] = CONTAINERS.map((number) => ({
        kind: 'container',
        number,
        state: containerState(number),
      }));
      for (let position = 4; position < 1_200; position++) {
        const container = position % 100 === 0 ? 3 : 2;
        const isInPart = position % 10 !== 1;
        births[container].push(position);
        if (isInPart) inPart[container].push(position);
        changes.push({
          kind: 'item-written',
          container,
          partitionKey: isInPart ? '["a","b"]' : '["b","a"]',
          id: `${position}`,
          life: 0,
          revision: 0,
          position,
          ts: T0,
          ttl: null,
          key: position,
          unreadableTtl: false,
        });
      }
      await store.apply(changes, 1_200);
      const marks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };
      for (const container of CONTAINERS) {
        const scanned = (part: Pick<ItemScan, 'partitionKey' | 'prefix' | 'where'>) => (afterBirth: number) =>
          store.scanItems(container, { ...part, afterBirth, limit: 7, marks });
        for (const [page, expected] of [
          [scanned({}), births],
          [scanned({ partitionKey: '["a","b"]' }), inPart],
          [scanned({ prefix: '["a"]' }), inPart],
          [scanned({ where: { minTs: T0, maxTs: T0 } }), births],
          [scanned({ prefix: '["a"]', where: { ids: ['1000', '1001', '1002'] } }), { 2: [1_002], 3: [1_000] }],
          [scanned({ where: { ids: ['1001'] } }), { 2: [1_001], 3: [] }],
          [(afterBirth: number) => store.allItems(container, afterBirth, 7), births],
          [(afterBirth: number) => store.allItems(container, afterBirth, 7, 1_199), births],
        ] as const) {
          const found: number[] = [];
          for (let rows = await page(0); rows.length > 0; rows = await page(found.at(-1)!)) {
            found.push(...rows.map(({ birth }) => birth));
          }
          expect(found).toEqual(expected[container]);
        }
      }
    });

    testFilled('lists the values in clear by path, value and birth, in pages', async (store, model) => {
      const inOrder = (left: ClearCopy, right: ClearCopy) =>
        left.path - right.path ||
        (left.value === right.value ? left.birth - right.birth : left.value < right.value ? -1 : 1);
      for (const container of CONTAINERS) {
        const expected = model.of(container).flatMap(({ birth }) =>
          model.clear.get(birth)!.flatMap((value, path) => {
            const copied = clearValue(value);
            return copied === undefined ? [] : [{ birth, path, value: copied }];
          }),
        );
        expect(expected.length).toBeGreaterThan(20);
        const found: ClearCopy[] = [];
        for (let page = await store.clearCopies(container, undefined, 7); page.length > 0;) {
          found.push(...page);
          page = await store.clearCopies(container, page.at(-1), 7);
        }
        expect(found).toEqual(expected.toSorted(inOrder));
      }
      expect(await store.clearCopies(99, undefined, 7)).toEqual([]);
    });

    testFilled('lists ends that are not recorded yet, oldest write first', async (store, model) => {
      for (const container of CONTAINERS) {
        const expected = model.unrecordedIn(container, false, Number.MAX_SAFE_INTEGER);
        expect(expected.length).toBeGreaterThan(0);
        expect(await store.unrecordedEnds(container, 1_000)).toEqual(expected);
        expect(await store.unrecordedEnds(container, 2)).toEqual(expected.slice(0, 2));
      }
      expect(await store.unrecordedEnds(99, 10)).toEqual([]);
    });

    testFilled('pages through erasures by period, each row once', async (store, model, random) => {
      const erased = model.disappearances.filter(({ purgedAtMs }) => purgedAtMs !== null);
      expect(erased.length).toBeGreaterThan(10);
      for (const container of CONTAINERS) {
        for (const [fromMs, toMs] of [
          [0, Number.MAX_SAFE_INTEGER],
          [random.pick(erased).purgedAtMs!, random.pick(erased).purgedAtMs! + 5_000],
        ] as const) {
          const expected = erased
            .filter((row) => row.container === container && row.purgedAtMs! >= fromMs && row.purgedAtMs! < toMs)
            .toSorted((left, right) => left.purgedAtMs! - right.purgedAtMs! || left.position - right.position);
          const found: DisappearanceRow[] = [];
          for (let after: { purgedAtMs: number; position: number } | undefined; ;) {
            const page = await store.erasures(container, { fromMs, toMs, after, limit: 3 });
            found.push(...page);
            if (page.length < 3) break;
            after = { purgedAtMs: page[2]!.purgedAtMs!, position: page[2]!.position };
          }
          expect(found).toEqual(expected);
        }
      }
    });

    testFilled('counts the erased lives of a container and of each partition key', async (store, model) => {
      for (const container of CONTAINERS) {
        const erased = model.disappearances.filter((row) => row.container === container && row.purgedAtMs !== null);
        expect(erased.length).toBeGreaterThan(0);
        expect(await store.countErased(container)).toBe(erased.length);
        for (const partitionKey of [...PARTITIONS, '["none"]']) {
          const within = erased.filter((row) => row.partitionKey === partitionKey);
          expect(await store.countErased(container, partitionKey)).toBe(within.length);
        }
      }
    });

    testFilled('pages through disappearances by period and cause, each row once', async (store, model, random) => {
      for (const container of CONTAINERS) {
        for (const cause of CAUSES) {
          for (const [fromMs, toMs] of [
            [0, Number.MAX_SAFE_INTEGER],
            [T0 * 1000 + 500, T0 * 1000 + 9_500],
            [T0 * 1000 + 501, T0 * 1000 + 9_501],
            [T0 * 1000, T0 * 1000],
          ] as const) {
            const limit = random.int(1, 6);
            const found: DisappearanceRow[] = [];
            for (;;) {
              const last = found.at(-1);
              const after = last === undefined ? undefined : { atMs: last.atMs, position: last.position };
              const page = await store.disappearances(container, { fromMs, toMs, cause, after, limit });
              found.push(...page);
              if (page.length < limit) break;
            }
            expect(found).toEqual(model.disappeared(container, fromMs, toMs, cause));
          }
        }
      }
      expect(await store.countPurged()).toBe(model.purged);
    });

    test('keeps the state of purge runs, and their candidates until they are completed', async ({ store, reopen }) => {
      const state = { status: 'started' as const, startedAtMs: 1, upToPosition: 2, effectiveNowMs: 3 };
      const later = { ...state, startedAtMs: 5 };
      const run = (name: string, position: number, of = state): ReadModelChange => ({
        kind: 'purge-run',
        stream: `purge-run-${name}`,
        position,
        state: of,
      });
      const completed = (name: string): ReadModelChange => ({
        kind: 'purge-run-completed',
        stream: `purge-run-${name}`,
      });
      await store.apply([run('b', 3)], 3);
      await store.apply([run('a', 5, later), run('c', 6), completed('c')], 7);
      expect(await store.openPurgeRuns()).toEqual([
        { stream: 'purge-run-a', state: later },
        { stream: 'purge-run-b', state },
      ]);
      await store.apply([completed('b')], 8);
      const opened = await reopen();
      expect((await opened.openPurgeRuns()).map(({ stream }) => stream)).toEqual(['purge-run-a']);
      const all = [
        { stream: 'purge-run-b', position: 3 },
        { stream: 'purge-run-a', position: 5 },
        { stream: 'purge-run-c', position: 6 },
      ];
      expect(await opened.purgeRuns(0, 10)).toEqual(all);
      expect(await opened.purgeRuns(0, 2)).toEqual(all.slice(0, 2));
      expect(await opened.purgeRuns(5, 10)).toEqual(all.slice(2));
      expect(await opened.purgeRuns(6, 10)).toEqual([]);
    });

    test('finds the last mark of the log before a time', async ({ store }) => {
      expect(await store.lastLogMark()).toBe(undefined);
      expect(await store.logMarkBefore(T0)).toBe(0);
      const marks = [
        { position: 7, atMs: 1_000 },
        { position: 9, atMs: 2_000 },
        // A later position at the same time.
        { position: 20, atMs: 2_000 },
        { position: 31, atMs: 5_000 },
      ];
      await store.apply([{ kind: 'log-mark', ...marks[0]! }], 8);
      await store.apply(
        marks.slice(1).map((mark) => ({ kind: 'log-mark' as const, ...mark })),
        40,
      );
      expect(await store.lastLogMark()).toEqual(marks[3]);
      const positions: number[] = [];
      for (const atMs of [0, 1_000, 1_001, 2_000, 2_001, 5_000, 5_001]) positions.push(await store.logMarkBefore(atMs));
      expect(positions).toEqual([0, 0, 7, 7, 20, 20, 31]);
    });

    test('applies all of a batch or nothing, the checkpoint included', async ({ store, reopen, refusesLate }) => {
      const { changes } = randomHistory(new Random(3), 300);
      await store.apply(changes, 300);
      const before = await digestsOf(store);
      const written = {
        kind: 'item-written' as const,
        container: 2,
        partitionKey: '["a"]',
        id: 'new',
        life: 0,
        revision: 0,
        position: 9_000,
        ts: T0,
        ttl: null,
        key: 9_000,
        unreadableTtl: false,
      };
      // A second write of an item that does not exist can't be applied. The change before it in the batch must not be applied either.
      const impossible = { ...written, id: 'nowhere', revision: 1, position: 9_001 };
      const applied = store.apply([written, impossible], 301);
      if (refusesLate === true) {
        await applied;
        await expect(digestsOf(store)).rejects.toThrow('finds its item');
        store = await reopen();
      } else await expect(applied).rejects.toThrow('');
      expect(await store.checkpoint()).toBe(300);
      expect(await store.findItem(2, '["a"]', 'new')).toBe(undefined);
      expect(await digestsOf(store)).toEqual(before);
      await store.apply([written], 301);
      expect(await store.findItem(2, '["a"]', 'new')).toMatchObject({ birth: 9_000, ts: T0 });
      const again = await reopen();
      expect(await again.checkpoint()).toBe(301);
      expect(await again.findItem(2, '["a"]', 'new')).toMatchObject({ birth: 9_000 });
    });

    test('moves the checkpoint without changes too', async ({ store }) => {
      await store.apply([], 17);
      expect(await store.checkpoint()).toBe(17);
    });

    test('the digest depends on the contents only, not on the batches they came in', async ({ store, another }) => {
      const { changes } = randomHistory(new Random(4), 600);
      await applyInBatches(store, changes, new Random(5), 1);
      const other = await another();
      await applyInBatches(other, changes.slice(0, -1), new Random(6), 200);
      expect(await digestsOf(other)).not.toEqual(await digestsOf(store));
      await other.apply(changes.slice(-1), 12_345);
      expect(await digestsOf(other)).toEqual(await digestsOf(store));
    });

    test('the digest depends on every field of a disappearance', async ({ store, another }) => {
      const others: Partial<DisappearanceRow>[] = [
        { id: 'another' },
        { life: 1 },
        { cause: 'expired' },
        { atMs: T0 * 1000 + 1 },
        { recordedAtMs: T0 * 1000 + 1 },
        { purgedAtMs: T0 * 1000 },
        { actor: 'key:secondary' },
        { rule: 'item-ttl' },
        { ttl: 60 },
        { policyVersion: 2 },
      ];
      const purge = (index: number, differing: Partial<DisappearanceRow>): ReadModelChange => {
        // Each disappearance is in a container of its own, because every container has a digest.
        const name = { container: 100 + index, partitionKey: '["a"]', id: 'i', life: 0 };
        const disappearance: DisappearanceRow = {
          ...name,
          position: 1 + index,
          cause: 'deleted',
          atMs: T0 * 1000,
          recordedAtMs: T0 * 1000,
          purgedAtMs: null,
          actor: 'key:primary',
          rule: null,
          ttl: null,
          policyVersion: null,
          ...differing,
        };
        return { kind: 'item-purged', ...name, purgedAtMs: T0 * 1000, disappearance };
      };
      const other = await another();
      await store.apply(
        others.map((_, index) => purge(index, {})),
        100,
      );
      await other.apply(
        others.map((differing, index) => purge(index, differing)),
        100,
      );
      const [one, changed] = [new Map(await digestsOf(store)), new Map(await digestsOf(other))];
      const same = others.filter((_, index) => one.get(100 + index)?.digest === changed.get(100 + index)?.digest);
      expect(same).toEqual([]);
    });

    test('readers see a change as soon as applying it resolves', async ({ store }) => {
      const { changes, model } = randomHistory(new Random(7), 400);
      for (const [index, change] of changes.entries()) {
        await store.apply([change], index + 1);
        if (change.kind === 'item-written') {
          const found = await store.findItem(change.container, change.partitionKey, change.id);
          expect(found?.position).toBe(change.position);
        }
      }
      expect(await store.countItems(2)).toBe(model.of(2).length);
    });
  });
}
