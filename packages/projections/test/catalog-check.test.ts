import { beforeEach, expect, it } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import { containerEventVersions } from '@epitaph/core/container/upcast.ts';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState, PartitionKeyDelete, RecordedPolicy } from '@epitaph/core/container/state.ts';
import type { DatabaseEvent } from '@epitaph/core/database/events.ts';
import { foldDatabase } from '@epitaph/core/database/evolve.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseEventVersions } from '@epitaph/core/database/upcast.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { Catalog } from '../src/catalog/catalog.ts';
import { CatalogCheck } from '../src/purge/catalog-check.ts';

const DATABASE = 'database-Db1';
const CONTAINER = 'container-Co1';

const OTHERWISE = /between the read models and the event log/v;
const POLICY: RecordedPolicy = { fromMs: 1_000, defaultTtl: 60, version: 1, setBy: 'key:primary', recordedAtMs: 1_000 };

let log: MemoryEventLog;
let catalog: Catalog;
let reads: string[];
/** What happens while the check waits for a position to be projected. */
let meanwhile: () => Promise<void>;
let check: CatalogCheck;

beforeEach(async () => {
  log = new MemoryEventLog();
  reads = [];
  meanwhile = async () => {};
  catalog = new Catalog();
  await record(DATABASE, { type: 'DatabaseCreated', data: { name: 'd' } });
  await record(CONTAINER, {
    type: 'ContainerCreated',
    data: {
      databaseRid: 'Db1',
      name: 'c',
      definition: {
        partitionKey: { paths: ['/pk'], kind: 'Hash' },
        indexingPolicy: { indexingMode: 'consistent' },
      },
      defaultTtl: 60,
      policyGraceSeconds: 0,
    },
  });
  await record(CONTAINER, { type: 'PartitionKeyDeleted', data: { partitionKey: '["p"]' } });
  project(3);
  const recorded = log.readStream.bind(log);
  check = new CatalogCheck({
    log: Object.assign(new MemoryEventLog(), {
      readStream: (...asked: Parameters<typeof recorded>) => {
        reads.push(asked[0]);
        return recorded(...asked);
      },
    }),
    catalog: () => catalog,
    projected: async (position) => {
      project(position);
      await meanwhile();
    },
  });
});

async function record(stream: string, event: DatabaseEvent | ContainerEvent): Promise<number> {
  const context: CommandContext = {
    nowMs: 1_000,
    actor: 'key:primary',
    correlationId: 'test',
    newId: () => crypto.randomUUID(),
  };
  const versions: Readonly<Record<string, number>> = { ...databaseEventVersions, ...containerEventVersions };
  const last = log.readLast(stream);
  const result = await log.append([
    {
      stream,
      expectedRevision: last?.revision ?? 'no-stream',
      events: [newEvent(context, event, versions[event.type]!)],
    },
  ]);
  return result.kind === 'appended' ? result.position : Number.NaN;
}

/** Makes the catalog show what is recorded up to a position. */
function project(position: number): void {
  const upTo = (stream: string) => log.readStream(stream).filter((event) => event.position <= position);
  catalog.put({ kind: 'database', number: 1, state: foldDatabase(upTo(DATABASE))! });
  catalog.put({ kind: 'container', number: 1, state: foldContainer(upTo(CONTAINER))! });
}

it('a container on which catalog and log agree is checked once', async () => {
  await check.assertAgrees('Co1');
  expect(reads).toEqual([CONTAINER, DATABASE]);
  await check.assertAgrees('Co1');
  expect(reads.length).toBe(2);
});

it.each([
  { what: 'the container', stream: CONTAINER, event: { type: 'ContainerDeleted', data: {} } },
  { what: 'its database', stream: DATABASE, event: { type: 'DatabaseDeleted', data: {} } },
] as const)('a change of $what that was recorded a moment ago is waited for', async ({ stream, event }) => {
  await record(stream, event);
  await check.assertAgrees('Co1');
  expect(catalog.goneAtMs(catalog.containerByRid('Co1')!.state)).toBe(1_000);
});

it.each([
  {
    what: 'the container',
    stream: CONTAINER,
    event: { type: 'RecoveryWindowChanged', data: { fromSeconds: 0, toSeconds: 5, reason: 'a test' } },
  },
  { what: 'its database', stream: DATABASE, event: { type: 'DatabaseDeleted', data: {} } },
] as const)('a change of $what that is recorded meanwhile is not a contradiction', async ({ stream, event }) => {
  meanwhile = async () => {
    meanwhile = async () => {};
    project(await record(stream, event));
  };
  await check.assertAgrees('Co1');
  expect(reads.length).toBe(4);
});

const DELETE: PartitionKeyDelete = { partitionKey: '["p"]', atMs: 1_000, by: 'key:primary', position: 3 };

it.each<{ what: string; container?: Partial<ContainerState>; database?: Partial<DatabaseState> }>([
  { what: 'that it is there', container: { status: 'deleted' } },
  { what: 'when it went', container: { deletedAtMs: 5 } },
  { what: 'where it is', container: { databaseRid: 'Db2' } },
  { what: 'since when a policy holds', container: { timeline: [{ ...POLICY, fromMs: 5 }] } },
  { what: 'a policy', container: { timeline: [{ ...POLICY, defaultTtl: 5 }] } },
  { what: 'which policy it is', container: { timeline: [{ ...POLICY, version: 5 }] } },
  { what: 'the grace of a policy', container: { policyGraceSeconds: 5 } },
  { what: 'the recovery window', container: { retention: { ...initialRetention, recoveryWindowSeconds: 5 } } },
  { what: 'what a partition key was', container: { partitionKeyDeletes: [{ ...DELETE, partitionKey: '["q"]' }] } },
  { what: 'when a partition key went', container: { partitionKeyDeletes: [{ ...DELETE, atMs: 5 }] } },
  { what: 'where a partition key went', container: { partitionKeyDeletes: [{ ...DELETE, position: 5 }] } },
  { what: 'that its database is there', database: { status: 'deleted' } },
  { what: 'when its database went', database: { deletedAtMs: 5 } },
])(
  'a container for which the catalog contradicts the log about $what is checked again until they agree',
  async (damage) => {
    meanwhile = async () => {
      const { number, state } = catalog.containerByRid('Co1')!;
      const database = { ...catalog.databaseByRid('Db1')!, ...damage.database };
      catalog.put({ kind: 'database', number: 1, state: database });
      // A check of a container in the other database finds the difference as well.
      catalog.put({ kind: 'database', number: 2, state: { ...database, rid: 'Db2' } });
      catalog.put({ kind: 'container', number, state: { ...state, ...damage.container } });
    };
    for (let looks = 0; looks < 2; looks++) await expect(check.assertAgrees('Co1')).rejects.toThrow(OTHERWISE);
    meanwhile = async () => {};
    await check.assertAgrees('Co1');
  },
);

it('a container of which the log has nothing contradicts the catalog', async () => {
  await expect(check.assertAgrees('Co2')).rejects.toThrow(OTHERWISE);
});

it('for a container that can’t be read from the log, the catalog is trusted', async () => {
  await record(CONTAINER, { type: 'ContainerCreated', data: {} } as unknown as ContainerEvent);
  await check.assertAgrees('Co1');
});
