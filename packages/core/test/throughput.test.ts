import { describe, expect, it } from 'vitest';
import type { CreateContainer } from '@epitaph/core/container/commands.ts';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { DatabaseEvent } from '@epitaph/core/database/events.ts';
import { etagOfGiven, givenContainer, givenDatabase } from '@epitaph/core/testing/given-when-then.ts';
import type { ThroughputChanged } from '@epitaph/core/throughput/provisioning.ts';
import { lowestThroughput, type Throughput, throughputProblem } from '@epitaph/core/throughput/throughput.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const nowMs = 1_763_722_800_123;
const none: Throughput = { kind: 'none' };
const manual = (requestUnitsPerSecond: number) => ({ kind: 'manual', requestUnitsPerSecond }) as const;
const autoscale = (maxRequestUnitsPerSecond: number) => ({ kind: 'autoscale', maxRequestUnitsPerSecond }) as const;
const changed = (from: Throughput, to: Throughput): ThroughputChanged => ({
  type: 'ThroughputChanged',
  data: { from, to },
});
const facts = {
  databaseRid: 'Db1',
  name: 'carts',
  definition: {
    partitionKey: { paths: ['/tenant'], kind: 'Hash' as const },
    indexingPolicy: { indexingMode: 'consistent' as const },
  },
  defaultTtl: null,
  policyGraceSeconds: 0,
};
const container: ContainerEvent = { type: 'ContainerCreated', data: facts };
const database: DatabaseEvent = { type: 'DatabaseCreated', data: { name: 'shop' } };
const createContainer = (throughput?: Throughput): CreateContainer & { nowMs: number } => ({
  type: 'CreateContainer',
  ...facts,
  throughput,
  nowMs,
});
const set = (throughput: Exclude<Throughput, { kind: 'none' }>, ifMatch?: string) =>
  ({ type: 'ChangeThroughput', change: { kind: 'set', throughput }, ifMatch, nowMs }) as const;
const migrate = (to: 'manual' | 'autoscale') =>
  ({ type: 'ChangeThroughput', change: { kind: 'migrate', to }, nowMs }) as const;

describe('a throughput given at the creation', () => {
  it('of a container or database is recorded right after the creation', () => {
    for (const throughput of [manual(400), manual(1_100), autoscale(1_000), autoscale(7_000)]) {
      givenContainer().when(createContainer(throughput)).then(container, changed(none, throughput));
      givenDatabase()
        .when({ type: 'CreateDatabase', name: 'shop', throughput })
        .then(database, changed(none, throughput));
    }
  });
  it('is not recorded if there is none', () => {
    givenContainer().when(createContainer()).then(container);
    givenContainer().when(createContainer(none)).then(container);
    givenDatabase().when({ type: 'CreateDatabase', name: 'shop' }).then(database);
  });
  it('that is impossible is refused, and nothing is created', () => {
    for (const throughput of [manual(300), manual(450), manual(1_000_100), autoscale(400), autoscale(1_500)]) {
      const problem = throughputProblem(throughput, 0)!;
      givenContainer().when(createContainer(throughput)).thenRefused('throughput-invalid', { problem });
      givenDatabase()
        .when({ type: 'CreateDatabase', name: 'shop', throughput })
        .thenRefused('throughput-invalid', { problem });
    }
  });
});

describe('changing the throughput', () => {
  it('is recorded, with the old and new value', () => {
    givenContainer(container, changed(none, manual(400)))
      .when(set(manual(500)))
      .then(changed(manual(400), manual(500)));
    givenDatabase(database, changed(none, autoscale(4_000)))
      .when(set(autoscale(5_000)))
      .then(changed(autoscale(4_000), autoscale(5_000)));
  });
  it('to the present value changes nothing', () => {
    givenContainer(container, changed(none, manual(400)))
      .when(set(manual(400)))
      .then();
    givenContainer(container, changed(none, autoscale(4_000)))
      .when(migrate('autoscale'))
      .then();
  });
  it('of a container without its own gives it one, even the amount that it was shown with', () => {
    givenContainer(container)
      .when(set(manual(400)))
      .then(changed(none, manual(400)));
    givenContainer(container)
      .when(migrate('autoscale'))
      .then(changed(none, autoscale(1_000)));
  });
  it('of a database created without is refused, because it has no offer', () => {
    givenDatabase(database)
      .when(set(manual(400)))
      .thenRefused('no-throughput');
  });
  it('between manual and autoscale needs a migration', () => {
    givenContainer(container, changed(none, manual(400)))
      .when(set(autoscale(4_000)))
      .thenRefused('throughput-kind-fixed', { to: 'autoscale' });
    givenContainer(container, changed(none, autoscale(4_000)))
      .when(set(manual(400)))
      .thenRefused('throughput-kind-fixed', { to: 'manual' });
  });
  it('by a migration goes up to the next thousand, and back to the maximum', () => {
    givenContainer(container, changed(none, manual(4_300)))
      .when(migrate('autoscale'))
      .then(changed(manual(4_300), autoscale(5_000)));
    givenContainer(container, changed(none, autoscale(5_000)))
      .when(migrate('manual'))
      .then(changed(autoscale(5_000), manual(5_000)));
  });
  it('goes no lower than a hundredth, or with autoscale a tenth, of the highest ever', () => {
    expect(lowestThroughput('manual', 0)).toBe(400);
    expect(lowestThroughput('manual', 100_001)).toBe(1_100);
    expect(lowestThroughput('autoscale', 0)).toBe(1_000);
    expect(lowestThroughput('autoscale', 100_001)).toBe(11_000);
    const lowered = [container, changed(none, manual(100_000)), changed(manual(100_000), manual(2_000))];
    givenContainer(...lowered)
      .when(set(manual(1_000)))
      .then(changed(manual(2_000), manual(1_000)));
    givenContainer(...lowered)
      .when(set(manual(900)))
      .thenRefused('throughput-invalid', { problem: throughputProblem(manual(900), 100_000)! });
    givenContainer(...lowered)
      .when(migrate('autoscale'))
      .then(changed(manual(2_000), autoscale(10_000)));
  });
  it("is compared with the offer's etag, which is that of the last change", () => {
    const past = [container, changed(none, manual(400))];
    givenContainer(...past)
      .when(set(manual(500), etagOfGiven(1)))
      .then(changed(manual(400), manual(500)));
    givenContainer(...past)
      .when(set(manual(500), etagOfGiven(0)))
      .thenRefused('precondition-failed');
  });
  it('of something deleted is refused', () => {
    givenContainer(container, { type: 'ContainerDeleted', data: {} })
      .when(set(manual(500)))
      .thenRefused('not-found');
    givenDatabase(database, changed(none, manual(400)), { type: 'DatabaseDeleted', data: {} })
      .when(set(manual(500)))
      .thenRefused('not-found');
  });
});

describe("a container's state", () => {
  it('remembers the highest throughput ever, and keeps its own etag over a change', () => {
    const stream = 'container-Co1';
    const past = [container, changed(none, manual(12_000)), changed(manual(12_000), manual(400))];
    const events = past.map((event, revision) => recordedEvent(stream, event, { revision, id: `e${revision}` }));
    expect(foldContainer(events.slice(0, 1))).toMatchObject({
      throughput: none,
      highestThroughput: 0,
      throughputEtag: '"e0"',
    });
    expect(foldContainer(events)).toMatchObject({
      throughput: manual(400),
      highestThroughput: 12_000,
      throughputEtag: '"e2"',
      etag: '"e0"',
    });
  });
});
