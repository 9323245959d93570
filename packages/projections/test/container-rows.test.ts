import { describe, expect, it } from 'vitest';
import type { ContainerEvent } from '@epitaph/core/container/events.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { HoldRegister } from '@epitaph/core/retention/hold-register.ts';
import { type ContainerRows, containerRows } from '../src/catalog/container-rows.ts';
import { Catalog } from '../src/catalog/catalog.ts';
import { changesOf } from '../src/changes.ts';

const DEFINITION = {
  partitionKey: { paths: ['/tenant'], kind: 'Hash' as const, version: 2 as const },
  indexingPolicy: { indexingMode: 'consistent' as const },
};

/** The events of one container, at positions from 1 on. */
function recorded(events: readonly ContainerEvent[]): RecordedEvent[] {
  return events.map(({ type, data }, index) => ({
    id: '11111111-1111-4111-8111-111111111111',
    type,
    version: type === 'ContainerCreated' ? 2 : 1,
    data: { ...data },
    occurredAtMs: index,
    actor: 'key:primary',
    correlationId: '22222222-2222-4222-8222-222222222222',
    causationId: '22222222-2222-4222-8222-222222222222',
    stream: 'container-Co1',
    revision: index,
    position: index + 1,
  }));
}

const created: ContainerEvent = {
  type: 'ContainerCreated',
  data: { databaseRid: 'Db1', name: 'carts', definition: DEFINITION, defaultTtl: 60, policyGraceSeconds: 0 },
};
const placed = (number: number): ContainerEvent => ({
  type: 'HoldPlaced',
  data: { holdId: `case ${number}`, scope: { kind: 'items', items: ['a'] }, reason: 'litigation', tooLateFor: 0 },
});
const released = (number: number): ContainerEvent => ({
  type: 'HoldReleased',
  data: { holdId: `case ${number}`, reason: 'settled' },
});
const ttlChanged = (version: number): ContainerEvent => ({
  type: 'ContainerTtlChanged',
  data: { from: 60, to: version, policyVersion: version, effectiveFromMs: version * 10_000 },
});

/** The rows that a store must write for the last of some events, each of which comes by itself. */
function rowsOfLast(events: readonly ContainerEvent[]): ContainerRows {
  const catalog = new Catalog();
  const [change] = recorded(events)
    .map((event) => changesOf([event], catalog))
    .at(-1)!;
  if (change?.kind !== 'container') throw new Error('an event of a container changes the container');
  return containerRows(change);
}

const counted = <Thing>(count: number, make: (number: number) => Thing): Thing[] =>
  Array.from({ length: count }, (_, index) => make(index));

describe('the rows written for an event of a container', () => {
  const bytesOf = (rows: ContainerRows): number => JSON.stringify(rows).length;

  it('do not grow with the number of earlier holds', () => {
    const few = rowsOfLast([created, ...counted(20, placed)]);
    const many = rowsOfLast([created, ...counted(2_000, placed)]);
    expect(many.entries).toHaveLength(1);
    expect(bytesOf(many) - bytesOf(few)).toBeLessThan(20);
    expect(rowsOfLast([created, ...counted(2_000, placed), released(7)]).entries).toMatchObject([
      // The place of a hold is the position of its placement, which comes after the container's creation.
      { list: 'holds', place: 9, state: JSON.stringify({ holdId: 'case 7', position: 9, releasePosition: 2_002 }) },
    ]);
  });

  it('do not grow with the number of earlier policies', () => {
    const changes = (count: number) => counted(count, (number) => ttlChanged(number + 2));
    const few = rowsOfLast([created, ...changes(20)]);
    const many = rowsOfLast([created, ...changes(2_000)]);
    expect(many.entries).toHaveLength(1);
    expect(bytesOf(many) - bytesOf(few)).toBeLessThan(40);
  });

  it('have no list entries for an event that does not concern the lists', () => {
    const floor: ContainerEvent = {
      type: 'RetentionFloorChanged',
      data: { fromSeconds: 0, toSeconds: 60, reason: 'tax law' },
    };
    expect(rowsOfLast([created, ...counted(50, placed), floor])).toMatchObject({ entries: [], ends: [] });
  });
});

describe('several events of one container in a batch', () => {
  it('are one change, compared with the state before the first of them', () => {
    const catalog = new Catalog();
    const events = recorded([created, ...counted(100, placed), ttlChanged(2), ...counted(100, released)]);
    changesOf(events.slice(0, 51), catalog);
    const before = catalog.containerByRid('Co1')!.state;
    const changes = changesOf(events.slice(51), catalog);
    const { state } = catalog.containerByRid('Co1')!;
    const holds = expect.any(Array);
    expect(changes).toEqual([{ kind: 'container', number: 1, state, before, holds }]);
    const [change] = changes;
    if (change?.kind !== 'container') throw new Error('an event of a container changes the container');
    const { entries } = containerRows(change);
    // A hold that was placed and released has one row, with its final state.
    expect(entries.filter(({ list }) => list === 'holds').map(({ place }) => place)).toHaveLength(100);
    const all = changesOf(events, new Catalog())[0] as typeof change;
    expect([all.state, HoldRegister.of(all.holds!)]).toEqual([state, state.retention.holds]);
  });
});
