import { describe, expect, it } from 'vitest';
import type { Json, QueryParameter } from '../src/index.ts';
import { rows, valueOf } from './run.ts';

describe('full-text conditions', () => {
  it.each([
    ["FullTextContains('Red bicycles', 'RED')", true],
    ["FULLTEXT_CONTAINS('Red bicycles', 'RED')", true],
    ["FullTextContains('Red bicycles', 'bicycle')", false],
    ["FullTextContains('a red, fast bicycle', 'red fast')", true],
    ["FullTextContains('a fast red bicycle', 'red fast')", false],
    ["FullTextContains('Ｓtraße', 'straße')", true],
    ["FullTextContains('red', '!')", false],
    ["FullTextContains(['red'], 'red')", undefined],
    ["FullTextContains('red', 1)", undefined],
    ["FullTextContainsAll('red bicycle', 'red', 'bicycle')", true],
    ["FullTextContainsAll('red bicycle', 'red', 'car')", false],
    ["FullTextContainsAll('red bicycle', ['red', 'bicycle'])", true],
    ["FullTextContainsAny('red bicycle', 'blue', 'bicycle')", true],
    ["FullTextContainsAny('red bicycle', 'blue', 'car')", false],
    ["FullTextContains('a rad bicycle', {term: 'red', distance: 1})", true],
    ["FullTextContains('a rad bicycle', {term: 'red', distance: 0})", false],
    ["FullTextContains('a red bicycle', {term: 'bycycle', distance: 2})", true],
    ["FullTextContains('a red bicycle', {term: 'bcycl', distance: 2})", true],
    ["FullTextContains('a red bicycle', {term: 'abicyclex', distance: 2})", true],
    ["FullTextContains('a red bicycle', {term: 'bcyl', distance: 2})", false],
    ["FullTextContains('a red bicycle', {term: 'rde', distance: 1})", false],
    ["FullTextContains('a fast rad bicycle', {term: 'red bicycles', distance: 1})", true],
    ["FullTextContainsAll('rad bicycle', 'bicycle', {term: 'red', distance: 1})", true],
    ["FullTextContainsAny('rad bicycle', 'car', {term: 'red', distance: 1})", true],
    ["FullTextContains('red', {term: 'red', distance: 3})", undefined],
    ["FullTextContains('red', {term: 'red'})", undefined],
  ])('%s', (expression, expected) => {
    expect(valueOf(expression)).toEqual(expected);
  });
});

describe('ORDER BY RANK', () => {
  const documents: Json[] = [
    { id: 'long', text: 'a swim is a swim but this one is a rather long story of many other things', v: [0, 1] },
    { id: 'none', text: 'nothing of the kind', v: [1, 0] },
    { id: 'short', text: 'swim', v: [1, 1] },
    { id: 'both', text: 'run and swim', v: [1, 0.1] },
    { id: 'bare' },
  ];
  const ids = (sql: string, parameters: readonly QueryParameter[] = []) => rows(sql, documents, parameters);

  it('orders texts by how well they fit: more terms, rarer ones, more often, in fewer words', () => {
    const sql = "SELECT VALUE c.id FROM c ORDER BY RANK FullTextScore(c.text, 'swim', 'run')";
    expect(ids(sql)).toEqual(['both', 'short', 'long', 'none', 'bare']);
  });

  it('ranks what the filter leaves, with the statistics of all', () => {
    const sql = (more: string) =>
      `SELECT TOP 2 VALUE c.id FROM c WHERE FullTextContains(c.text, 'swim') ${more} ORDER BY RANK FullTextScore(c.text, ['swim'])`;
    expect(ids(sql(''))).toEqual(['short', 'both']);
    expect(ids(sql("AND c.id != 'short'"))).toEqual(['both', 'long']);
  });

  it('works with OFFSET and LIMIT, and DISTINCT', () => {
    const score = "ORDER BY RANK FullTextScore(c.text, 'swim')";
    expect(ids(`SELECT VALUE c.id FROM c ${score} OFFSET 1 LIMIT 2`)).toEqual(['both', 'long']);
    expect(ids(`SELECT DISTINCT VALUE IS_DEFINED(c.text) FROM c ${score}`)).toEqual([true, false]);
  });

  it('fuses scores by their ranks, with weights', () => {
    const fused = (weights: string, parameters: readonly QueryParameter[] = []) =>
      ids(
        `SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.v) ORDER BY RANK RRF(VectorDistance(c.v, [1, 0]), FullTextScore(c.text, 'swim')${weights})`,
        parameters,
      );
    expect(fused('')).toEqual(['short', 'both', 'none', 'long']);
    expect(fused(', [0, 1]')).toEqual(['short', 'both', 'long', 'none']);
    expect(fused(', [1, 0]')).toEqual(['none', 'both', 'short', 'long']);
    expect(fused(', [-1, 0]')).toEqual(['long', 'short', 'both', 'none']);
    const given = (value: Json) => fused(', @weights', [{ name: '@weights', value }]);
    expect(given([0, 1])).toEqual(['short', 'both', 'long', 'none']);
    expect(() => given([1])).toThrow('The weights of RRF have to be 2 numbers.');
    expect(() => given('swim')).toThrow('The weights of RRF have to be 2 numbers.');
  });

  it('orders by distance with the nearest first, and puts rows without a score last', () => {
    const sql =
      "SELECT VALUE c.id FROM c ORDER BY RANK VectorDistance(c.v, [1, 0], true, {distanceFunction: 'euclidean'})";
    expect(ids(sql)).toEqual(['none', 'both', 'short', 'long', 'bare']);
  });
});
