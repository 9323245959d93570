import { describe, expect, test } from 'vitest';
import { countIndexedPaths, MAX_INDEXED_PATHS } from '@epitaph/api/request-units/indexed-paths.ts';
import { charge, workOfText } from '@epitaph/api/request-units/charge.ts';

const document = {
  id: 'a',
  customer: 'ann',
  total: 3,
  note: null,
  address: { city: 'Ulm', zip: '89073', geo: { lat: 48.4, lon: 10 } },
  lines: [
    { sku: 1, count: 2 },
    { sku: 2, count: 1 },
  ],
  'odd name': true,
};
const LEAVES = 13;

function count(included: readonly string[], excluded: readonly string[], mode: 'consistent' | 'none' = 'consistent') {
  const paths = (list: readonly string[]) => list.map((path) => ({ path }));
  return countIndexedPaths(
    {
      partitionKey: { paths: ['/customer'], kind: 'Hash' },
      indexingPolicy: { indexingMode: mode, includedPaths: paths(included), excludedPaths: paths(excluded) },
    },
    document,
  );
}

describe('the indexed paths of a document', () => {
  test('are all its values with the default policy', () => {
    expect(count(['/*'], ['/"_etag"/?'])).toBe(LEAVES);
  });

  test('are none without an index, or with everything excluded', () => {
    expect(count([], [], 'none')).toBe(0);
    expect(count([], ['/*'])).toBe(0);
  });

  test.each([
    ['a value', ['/total/?'], 1],
    ['a null', ['/note/?'], 1],
    ['a value deep down', ['/address/geo/lat/?'], 1],
    ['what is below a path', ['/address/*'], 4],
    ['a value in each element of an array', ['/lines/[]/sku/?'], 2],
    ['all of an array', ['/lines/[]/*'], 4],
    ['a quoted name', ['/"odd name"/?'], 1],
    ['a name in single quotes', ["/'odd name'/?"], 1],
    ['several paths', ['/total/?', '/address/city/?', '/lines/[]/count/?'], 4],
    ['a path that the document has not', ['/missing/*'], 0],
    ['`?` of what is no value', ['/address/?'], 0],
  ])('are, with everything else excluded, %s', (_, included, expected) => {
    expect(count(included, ['/*'])).toBe(expected);
  });

  test('leave out excluded paths', () => {
    expect(count(['/*'], ['/address/*'])).toBe(LEAVES - 4);
    expect(count(['/*'], ['/lines/[]/sku/?', '/total/?'])).toBe(LEAVES - 3);
  });

  test('follow the more precise path', () => {
    expect(count(['/*', '/address/geo/*'], ['/address/*'])).toBe(LEAVES - 2);
    expect(count(['/address/geo/?', '/*'], ['/address/*', '/address/geo/lat/?'])).toBe(LEAVES - 4);
  });

  test('are counted up to a limit', () => {
    const wide = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`p${at}`, [at, at]]));
    const policy = { indexingMode: 'consistent' as const, includedPaths: [{ path: '/*' }], excludedPaths: [] };
    const partitionKey = { paths: ['/p0'], kind: 'Hash' as const };
    expect(countIndexedPaths({ partitionKey, indexingPolicy: policy }, wide)).toBe(MAX_INDEXED_PATHS);
    const precise = {
      ...policy,
      includedPaths: [{ path: '/*' }, { path: '/p7/*' }],
      excludedPaths: [{ path: '/x/?' }],
    };
    expect(countIndexedPaths({ partitionKey, indexingPolicy: precise }, wide)).toBe(MAX_INDEXED_PATHS);
  });
});

test('the costs of operations are near the published figures', () => {
  expect(charge.pointRead(1_000)).toBe(1);
  expect(charge.pointRead(100 * 1024)).toBe(10);
  expect(charge.write(1_000, 2)).toBe(5.29);
  expect(charge.write(100 * 1024, 2)).toBeCloseTo(50, 0);
  expect(charge.delete(1_000)).toBe(5.29);
});

test('each kilobyte that is begun counts', () => {
  expect(charge.pointRead(1024)).toBe(1);
  expect(charge.pointRead(1025)).toBe(1.09);
});

test('a query pays for its work beyond examining documents, also if it is refused, and for a long text', () => {
  expect(charge.query(3, 1024)).toBe(2.4);
  expect(charge.query(3, 1024, 50_000)).toBe(3.4);
  expect(charge.refusedQuery(0, 0)).toBe(1);
  expect(charge.refusedQuery(40, 100_000)).toBe(5);
  expect(workOfText('x'.repeat(4096))).toBe(0);
  expect(workOfText('x'.repeat(4096 + 2_500))).toBe(50_000);
});
