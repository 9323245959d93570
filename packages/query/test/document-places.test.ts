import { describe, expect, it } from 'vitest';
import { DocumentPlaces, hasLastingPlaces, type Json, parseQuery, planQuery, type RowPlace } from '@epitaph/query';

const placesOf = (sql: string, document: Json) => {
  const taken: RowPlace[] = [];
  const found = new DocumentPlaces(planQuery(parseQuery(sql)), {}).of(document, (place) => taken.push(place));
  return { taken, found };
};

describe('the places of a document’s rows', () => {
  it.each([
    ['SELECT * FROM c ORDER BY c.n', [{ keys: [1], inside: 0 }]],
    [
      'SELECT x FROM c JOIN x IN c.list WHERE x != 5 ORDER BY x, c.n',
      [
        { keys: [4, 1], inside: 0 },
        { keys: [6, 1], inside: 2 },
      ],
    ],
    ['SELECT VALUE c.none FROM c ORDER BY c.n', []],
    ['SELECT c.n, SUM(c.list[0]) FROM c GROUP BY c.n', [{ keys: [1, 4], inside: 0 }]],
    ['SELECT COUNT(c), COUNT(c.none), MAX(c.none) FROM c', [{ keys: [true, undefined, undefined], inside: 0 }]],
    ['SELECT DISTINCT VALUE c.n FROM c', [{ keys: [], inside: 0, row: 1 }]],
    ['SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n DESC', [{ keys: [1, false, 1], inside: 0, row: 1 }]],
  ])('are what orders, groups or tells them apart: %s', (sql, places) => {
    const { taken, found } = placesOf(sql, { n: 1, list: [4, 5, 6] });
    expect(taken).toEqual(places);
    expect(found!.rows).toEqual(places);
    expect(found!.bytes).toBeLessThan(300);
  });

  it.each([
    ['SELECT x FROM c JOIN x IN c.list ORDER BY x', 100],
    ['SELECT * FROM c ORDER BY c.text', 1],
    ['SELECT DISTINCT VALUE c.text FROM c', 1],
    ['SELECT MAKELIST(c.text) FROM c GROUP BY c.n', 1],
  ])('are not kept if they are many, or large: %s', (sql, rows) => {
    const { taken, found } = placesOf(sql, { list: Array.from({ length: 100 }, (_, n) => n), text: 'x'.repeat(3_000) });
    expect(taken).toHaveLength(rows);
    expect(found).toBeUndefined();
  });

  it('share nothing with the document', () => {
    const part = { text: 'a text of more than a few characters', list: [{ n: null }], '2': 2, '1': 1 };
    const { taken, found } = placesOf('SELECT * FROM c ORDER BY c.part', { part });
    expect(taken[0]!.keys[0]).toBe(part);
    expect(found!.rows).toEqual(taken);
    const kept = found!.rows[0]!.keys[0] as typeof part;
    expect(kept).not.toBe(part);
    expect(kept.list[0]).not.toBe(part.list[0]);
  });

  it.each([
    ['SELECT * FROM c', false],
    ['SELECT * FROM c ORDER BY c.n', true],
    ['SELECT * FROM c ORDER BY udf.f(c.n)', false],
    ['SELECT * FROM c WHERE c.n < GetCurrentTimestamp() ORDER BY c.n', false],
    ['SELECT COUNT(1) FROM c', true],
    ['SELECT COUNT(1) FROM (SELECT DISTINCT c.n FROM c)', false],
    ['SELECT DISTINCT c.n FROM c', true],
    ['SELECT DISTINCT c.text FROM c ORDER BY RANK FullTextScore(c.text, "a")', false],
    ['SELECT DISTINCT VALUE 1', false],
    ['SELECT VALUE RAND() FROM c ORDER BY c.n', false],
  ])('last if they depend on nothing else: %s', (sql, expected) => {
    expect(hasLastingPlaces(planQuery(parseQuery(sql), [], { userFunctions: new Set(['f']) }))).toBe(expected);
  });
});
