import { describe, expect, it } from 'vitest';
import { feedFloorSeconds, feedRetentionSeconds, keptVersions } from '@epitaph/core/container/change-feed.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';

const definition = (changeFeedPolicy?: unknown): ContainerDefinition => ({
  partitionKey: { paths: ['/pk'], kind: 'Hash' },
  indexingPolicy: { indexingMode: 'consistent' },
  ...(changeFeedPolicy === undefined ? {} : { changeFeedPolicy }),
});
const minutes = (retentionDuration: number) => definition({ retentionDuration });

/** A container's stream: its definitions, and the minute at which each began. */
function stream(...steps: readonly (readonly [atMinutes: number, definition: ContainerDefinition])[]): RecordedEvent[] {
  return steps.map(([atMinutes, given], revision) => ({
    id: '00000000-0000-4000-8000-000000000000',
    type: revision === 0 ? 'ContainerCreated' : 'ContainerReplaced',
    version: revision === 0 ? 2 : 1,
    data:
      revision === 0
        ? { databaseRid: 'db', name: 'c', definition: given, defaultTtl: null, policyGraceSeconds: 0 }
        : { definition: given },
    occurredAtMs: atMinutes * 60_000,
    actor: 'test',
    correlationId: '00000000-0000-4000-8000-000000000000',
    causationId: '00000000-0000-4000-8000-000000000000',
    stream: 'container-c',
    revision,
    position: 10 + revision,
  }));
}

describe('the retention of a change feed', () => {
  it('is given in minutes; anything but a positive number counts as none', () => {
    expect(feedRetentionSeconds(minutes(5))).toBe(300);
    for (const none of [
      undefined,
      null,
      {},
      5,
      { retentionDuration: 0 },
      { retentionDuration: -1 },
      { retentionDuration: '5' },
      { retentionDuration: 1.5 },
    ]) {
      expect(feedRetentionSeconds(definition(none))).toBe(0);
      expect(feedFloorSeconds(definition(none))).toBe(0);
    }
  });

  it('is shorter than its floor, so that content is there as long as a reader may expect it', () => {
    expect(feedFloorSeconds(minutes(5))).toBe(360);
  });
});

describe('the versions kept for a change feed', () => {
  it('are none without a policy, or after it was removed', () => {
    expect(keptVersions(stream([0, definition()]))).toBe(undefined);
    expect(keptVersions(stream([0, minutes(5)], [1, definition()]))).toBe(undefined);
  });

  it('begin with the policy, and begin again with one after a break', () => {
    expect(keptVersions(stream([3, minutes(5)]))).toEqual({
      retentionSeconds: 300,
      sincePosition: 10,
      sinceMs: 180_000,
    });
    expect(keptVersions(stream([0, minutes(5)], [1, definition()], [7, minutes(2)]))).toEqual({
      retentionSeconds: 120,
      sincePosition: 12,
      sinceMs: 420_000,
    });
  });

  it('reach back no further after a longer retention than the shorter one had kept them', () => {
    expect(keptVersions(stream([0, minutes(5)], [100, minutes(60)]))).toEqual({
      retentionSeconds: 3600,
      sincePosition: 10,
      sinceMs: 95 * 60_000,
    });
    // Younger than the shorter retention, so everything is still there.
    expect(keptVersions(stream([0, minutes(5)], [3, minutes(60)]))).toMatchObject({ sinceMs: 0 });
    // Shorter and longer again.
    expect(keptVersions(stream([0, minutes(60)], [10, minutes(5)], [20, minutes(60)]))).toMatchObject({
      sinceMs: 15 * 60_000,
    });
  });

  it('do not change when something else of the container changes', () => {
    const other = { ...minutes(5), geospatialConfig: { type: 'Geometry' } };
    expect(keptVersions(stream([1, minutes(5)], [50, other]))).toEqual(keptVersions(stream([1, minutes(5)])));
  });
});
