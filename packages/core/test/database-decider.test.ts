import { describe, expect, it } from 'vitest';
import { foldDatabase } from '@epitaph/core/database/evolve.ts';
import { databaseStream, parseDatabaseStream } from '@epitaph/core/database/stream-name.ts';
import { InvariantViolation } from '@epitaph/core/invariant.ts';
import { etagOfGiven, givenDatabase } from '@epitaph/core/testing/given-when-then.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';

const created = { type: 'DatabaseCreated', data: { name: 'shop' } } as const;
const deleted = { type: 'DatabaseDeleted', data: {} } as const;

describe('creating a database', () => {
  it('under an unused rid is recorded', () => {
    givenDatabase().when({ type: 'CreateDatabase', name: 'shop' }).then(created);
  });
  it('that exists is refused', () => {
    givenDatabase(created).when({ type: 'CreateDatabase', name: 'shop' }).thenRefused('already-exists');
  });
  it('under a rid that another name has, or that the same name had before, is refused as taken', () => {
    givenDatabase(created).when({ type: 'CreateDatabase', name: 'depot' }).thenRefused('rid-taken');
    givenDatabase(created, deleted).when({ type: 'CreateDatabase', name: 'shop' }).thenRefused('rid-taken');
  });
});

describe('deleting a database', () => {
  it('is recorded, without a condition, with any etag, or with the current one', () => {
    for (const ifMatch of [undefined, '*', etagOfGiven(0)]) {
      givenDatabase(created).when({ type: 'DeleteDatabase', ifMatch }).then(deleted);
    }
  });
  it('with an etag that is not the current one is refused', () => {
    givenDatabase(created).when({ type: 'DeleteDatabase', ifMatch: '"other"' }).thenRefused('precondition-failed');
  });
  it('that does not exist is refused, whatever etag is given', () => {
    givenDatabase().when({ type: 'DeleteDatabase' }).thenRefused('not-found');
    givenDatabase(created, deleted).when({ type: 'DeleteDatabase' }).thenRefused('not-found');
    givenDatabase(created, deleted).when({ type: 'DeleteDatabase', ifMatch: '"other"' }).thenRefused('not-found');
  });
});

describe("a database's state", () => {
  const stream = databaseStream('Db1');
  it('has the times of creation and deletion', () => {
    const events = [
      recordedEvent(stream, created, { occurredAtMs: 1_000, id: 'first' }),
      recordedEvent(stream, deleted, { occurredAtMs: 2_000, revision: 1 }),
    ];
    const live = {
      status: 'live',
      rid: 'Db1',
      name: 'shop',
      etag: '"first"',
      throughput: { kind: 'none' },
      highestThroughput: 0,
      throughputEtag: '"first"',
      throughputChangedAtMs: 1_000,
      createdAtMs: 1_000,
      deletedAtMs: null,
    };
    expect(foldDatabase([])).toBe(undefined);
    expect(foldDatabase(events.slice(0, 1))).toEqual(live);
    expect(foldDatabase(events)).toEqual({ ...live, status: 'deleted', deletedAtMs: 2_000, deletedBy: 'key:primary' });
  });
  it('can’t begin with a delete, begin twice, or be in a stream of another kind', () => {
    expect(() => foldDatabase([recordedEvent(stream, deleted)])).toThrow(UnreadableEvent);
    expect(() => foldDatabase([recordedEvent(stream, created), recordedEvent(stream, created)])).toThrow(
      InvariantViolation,
    );
    expect(() => foldDatabase([recordedEvent('container-Db1', created)])).toThrow(InvariantViolation);
    expect(parseDatabaseStream(stream)).toBe('Db1');
    expect(parseDatabaseStream('item-Db1.hash.0')).toBe(undefined);
  });
});
