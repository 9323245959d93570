import { beforeEach, describe, expect, test } from 'vitest';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { NO_THROUGHPUT, type Throughput } from '@epitaph/core/throughput/throughput.ts';
import { charge } from '@epitaph/api/request-units/charge.ts';
import { RequestUnits } from '@epitaph/api/request-units/request-units.ts';

const manual = (requestUnitsPerSecond: number): Throughput => ({ kind: 'manual', requestUnitsPerSecond });
const containerOf = (rid: string, throughput: Throughput, databaseRid = 'plain'): ContainerState =>
  ({ rid, databaseRid, throughput }) as ContainerState;

const DATABASES: Readonly<Record<string, Throughput>> = { plain: NO_THROUGHPUT, shared: manual(1_000) };
let nowMs: number;
let units: RequestUnits;
const metering = (serverless = false) =>
  new RequestUnits({
    monotonicMs: () => nowMs,
    database: (rid) => (rid in DATABASES ? ({ rid, throughput: DATABASES[rid] } as DatabaseState) : undefined),
    serverless,
  });
beforeEach(() => {
  nowMs = 0;
  units = metering();
});

describe('the request units of a container', () => {
  const own = containerOf('own', manual(400));
  const none = containerOf('none', NO_THROUGHPUT);

  test('are reserved for an operation, and corrected when its cost is known', () => {
    const read = units.admit(own, 'read');
    expect(read.waitMs).toBe(0);
    expect(units.status(own).available).toBe(399);
    read.charge(10);
    expect(units.status(own).available).toBe(390);
    const batch = units.admit(own, 'batch');
    expect(batch.waitMs).toBe(0);
    expect(units.status(own).available).toBeCloseTo(390 - 2 * charge.write(0, 2));
    batch.charge(1);
    expect(units.status(own).available).toBeCloseTo(389);
  });

  test('are not charged for a refused operation, which is only counted', () => {
    units.admit(own, 'query').charge(800);
    expect(units.admit(own, 'write').waitMs).toBe(1_000);
    expect(units.status(own)).toMatchObject({
      available: -400,
      consumed: {
        query: { operations: 1, requestUnits: 800, throttled: 0 },
        write: { operations: 0, requestUnits: 0, throttled: 1 },
        read: { operations: 0, requestUnits: 0, throttled: 0 },
      },
    });
    // The next operation waits behind the refused write, which will come again and is expected to cost as much as the query did.
    expect(units.admit(own, 'read').waitMs).toBe(3_000);
  });

  test('also pay for the work of a query after its last answer', () => {
    units.later(own)({ examined: 100, extraWork: 50_000 });
    expect(units.status(own)).toMatchObject({
      available: 394,
      consumed: { query: { operations: 0, requestUnits: 6 } },
    });
  });

  test('are available to the purge once users have left over half a second’s worth', () => {
    expect(units.affordable(own)).toBe(0);
    nowMs = 499;
    expect(units.affordable(own)).toBe(0);
    nowMs = 500;
    expect(units.affordable(own)).toBe(Math.floor(200 / charge.delete(0)));
    units.spend(own, 2_048);
    expect(units.affordable(own)).toBe(0);
    const spent = charge.delete(2_048);
    expect(units.status(own)).toMatchObject({
      available: 400,
      leftOver: 200 - spent,
      consumed: { purge: { operations: 1, requestUnits: spent, throttled: 0 } },
    });
  });

  test('are counted and not limited without a throughput', () => {
    for (let time = 0; time < 3; time += 1) {
      const write = units.admit(none, 'write');
      expect(write.waitMs).toBe(0);
      write.charge(10_000);
    }
    expect(units.affordable(none)).toBe(Number.POSITIVE_INFINITY);
    expect(units.status(none)).toMatchObject({
      budget: 'none',
      available: null,
      leftOver: null,
      throughput: NO_THROUGHPUT,
      consumed: { write: { operations: 3, requestUnits: 30_000 } },
    });
  });

  test('are counted and not limited in a serverless account, whatever the throughput', () => {
    units = metering(true);
    units.admit(own, 'write').charge(10_000);
    expect(units.admit(own, 'write').waitMs).toBe(0);
    expect(units.affordable(own)).toBe(Number.POSITIVE_INFINITY);
    expect(units.status(own)).toMatchObject({ budget: 'none', serverless: true, available: null });
  });

  test('are those of the database for a container without its own, and otherwise its own', () => {
    const [one, other] = [containerOf('one', NO_THROUGHPUT, 'shared'), containerOf('other', NO_THROUGHPUT, 'shared')];
    const apart = containerOf('apart', manual(400), 'shared');
    units.admit(one, 'read').charge(100);
    expect(units.status(other)).toMatchObject({ budget: 'database', available: 900, throughput: manual(1_000) });
    expect(units.status(apart)).toMatchObject({ budget: 'container', available: 400, throughput: manual(400) });
    expect(units.status(other).consumed.read.requestUnits).toBe(0);
    expect(units.metered().map(({ rid, consumed }) => [rid, consumed.read.requestUnits])).toEqual([['one', 100]]);
  });

  test('are counted and not limited if the database is deleted', () => {
    const left = containerOf('left', NO_THROUGHPUT, 'gone');
    expect(units.affordable(left)).toBe(Number.POSITIVE_INFINITY);
    expect(units.status(left)).toMatchObject({ budget: 'none', available: null });
  });

  test('follow a change of the throughput at once', () => {
    units.admit(own, 'write').charge(800);
    const raised = { ...own, throughput: manual(4_000) };
    const before = units.status(raised).available!;
    nowMs = 100;
    expect(units.status(raised).available).toBeCloseTo(before + 400);
  });

  test('are forgotten with the container, also when an operation begun before ends', () => {
    const late = units.admit(own, 'write');
    units.admit(own, 'write').charge(10_000);
    units.forget(own.rid);
    late.charge(10_000);
    expect(units.metered()).toEqual([]);
    expect(units.status(own)).toMatchObject({ available: 400, consumed: { write: { operations: 0 } } });
  });

  test('of the database are charged in full if the container is deleted before an operation ends', () => {
    // given
    const [gone, other] = [containerOf('gone', NO_THROUGHPUT, 'shared'), containerOf('other', NO_THROUGHPUT, 'shared')];
    const query = units.admit(gone, 'query');
    // when
    units.forget(gone.rid);
    query.charge(700);
    // then
    expect(units.status(other).available).toBe(300);
  });

  test('are not given back for operations admitted before the container had any', () => {
    // given
    const before = units.admit({ ...own, throughput: NO_THROUGHPUT }, 'write');
    units.admit(own, 'read').charge(100);
    // when
    before.charge(charge.refusedWrite);
    // then
    expect(units.status(own).available).toBe(300);
  });
});
