import { describe, expect, it } from 'vitest';
import { effectivePartitionKey, isInRange } from '@epitaph/core/partition-key/effective-partition-key.ts';
import {
  partitionKeyRange,
  partitionKeyRanges,
  rangeCount,
  rangeOfOtherVersion,
} from '@epitaph/core/partition-key/ranges.ts';
import { isInScope, type Scope } from '@epitaph/core/partition-key/scope.ts';

const V1 = { paths: ['/a'], kind: 'Hash' as const };
const V2 = { paths: ['/a'], kind: 'Hash' as const, version: 2 as const };
const HIERARCHICAL = { paths: ['/a', '/b'], kind: 'MultiHash' as const, version: 2 as const };
const DEFINITIONS = [V1, V2, HIERARCHICAL];
const COUNTS = [1, 2, 3, 4, 5, 7, 8, 17, 167];

describe('the number of ranges', () => {
  it.each([
    [0, 1],
    [400, 1],
    [6000, 1],
    [6001, 2],
    [12_000, 2],
    [25_100, 5],
    [1_000_000, 167],
  ])('for %i request units a second is %i', (units, count) => {
    expect(rangeCount(units)).toBe(count);
  });
});

describe('the ranges of a container', () => {
  it('cover the whole space without gap or overlap', () => {
    for (const definition of DEFINITIONS) {
      for (const count of COUNTS) {
        const ranges = partitionKeyRanges(definition, count);
        expect(ranges.length).toBe(count);
        expect([ranges[0]!.min, ranges.at(-1)!.max]).toEqual(['', 'FF']);
        for (const [index, range] of ranges.entries()) {
          expect(range.min < range.max).toBe(true);
          if (index > 0) expect(range.min).toBe(ranges[index - 1]!.max);
        }
      }
    }
  });

  it('have ids that were never used for another range', () => {
    const known = new Map<string, string>();
    for (let count = 1; count <= 40; count += 1) {
      for (const { id, min, max } of partitionKeyRanges(V2, count)) {
        expect(known.get(id) ?? `${min}-${max}`).toBe(`${min}-${max}`);
        known.set(id, `${min}-${max}`);
      }
    }
  });

  it('name the ranges that they come from, which have ended and covered them', () => {
    for (let count = 2; count <= 20; count += 1) {
      const before = partitionKeyRanges(V2, count - 1);
      const after = partitionKeyRanges(V2, count);
      const gone = before.filter(({ id }) => !after.some((range) => range.id === id));
      const born = after.filter(({ id }) => !before.some((range) => range.id === id));
      expect(gone.length).toBe(1);
      expect(born.map(({ parents }) => parents.at(-1))).toEqual([gone[0]!.id, gone[0]!.id]);
      expect([born[0]!.min, born[1]!.max]).toEqual([gone[0]!.min, gone[0]!.max]);
    }
  });

  it('are known by their ids, as are ranges that have split', () => {
    for (const range of partitionKeyRanges(V2, 5)) {
      expect(partitionKeyRange(V2, 5, range.id)).toEqual(range);
      for (const parent of range.parents) {
        const former = partitionKeyRange(V2, 5, parent)!;
        expect(former.min <= range.min && range.max <= former.max).toBe(true);
      }
    }
    for (const id of ['9', '01', '-1', '', 'x', '1.0', '9999999999'])
      expect(partitionKeyRange(V2, 5, id)).toBeUndefined();
  });

  it('have ids of their own in each version, except the whole space; an id is found by the same part of the other version', () => {
    const first = partitionKeyRanges(V1, 167);
    const second = partitionKeyRanges(V2, 167);
    const parents = ({ parents: of }: { readonly parents: readonly string[] }) => of;
    const idsOf = (ranges: typeof first) => new Set([...ranges.map(({ id }) => id), ...ranges.flatMap(parents)]);
    expect([...idsOf(first)].filter((id) => idsOf(second).has(id))).toEqual(['0']);
    for (const [index, range] of first.entries()) {
      expect(rangeOfOtherVersion(V1, 167, second[index]!.id)).toEqual(range);
      expect(rangeOfOtherVersion(V2, 167, range.id)).toEqual(second[index]);
      expect(rangeOfOtherVersion(V1, 167, range.id)).toBeUndefined();
      expect(rangeOfOtherVersion(HIERARCHICAL, 167, second[index]!.id)).toBeUndefined();
      expect(partitionKeyRange(V1, 167, range.id)).toEqual(range);
      expect(partitionKeyRange(V1, 167, second[index]!.id)).toBeUndefined();
    }
  });

  it('share keys out about evenly', () => {
    for (const definition of DEFINITIONS) {
      const ranges = partitionKeyRanges(definition, 4);
      const counts = new Map<string, number>();
      for (let key = 0; key < 2000; key += 1) {
        const hashed = effectivePartitionKey(definition, JSON.stringify([`key ${key}`]));
        const { id } = ranges.find((range) => isInRange(hashed, range))!;
        counts.set(id, (counts.get(id) ?? 0) + 1);
      }
      expect(counts.size).toBe(4);
      for (const count of counts.values()) expect(count).toBeGreaterThan(350);
    }
  });
});

describe('a scope', () => {
  const definition = { partitionKey: HIERARCHICAL, indexingPolicy: { indexingMode: 'consistent' as const } };
  const keys = ['["a","b"]', '["a","c"]', '["ab","b"]', '["a",{}]', '[1,"b"]'];
  const inside = (scope: Scope) => keys.filter((key) => isInScope(definition, scope, key));

  it('is the whole container by default', () => {
    expect(inside({})).toEqual(keys);
  });

  it('is one key, the keys with given leading components, a range, or the intersection of these', () => {
    const hashed = effectivePartitionKey(HIERARCHICAL, '["a"]');
    const range = { min: hashed, max: `${hashed}FF` };
    expect(inside({ partitionKey: '["a","b"]' })).toEqual(['["a","b"]']);
    expect(inside({ prefix: '["a"]' })).toEqual(['["a","b"]', '["a","c"]', '["a",{}]']);
    expect(inside({ range })).toEqual(['["a","b"]', '["a","c"]', '["a",{}]']);
    expect(inside({ range, partitionKey: '["ab","b"]' })).toEqual([]);
    expect(inside({ range, partitionKey: '["a","c"]' })).toEqual(['["a","c"]']);
  });
});
