import { describe, expect, test } from 'vitest';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import { readPatch } from '@epitaph/api/cosmos/patch.ts';

const definition: ContainerDefinition = {
  partitionKey: { paths: ['/address/zip'], kind: 'Hash' },
  indexingPolicy: { indexingMode: 'consistent' },
};
const read = (body: unknown) => readPatch(body, { definition });

describe('the body of a patch', () => {
  const operation = { op: 'set', path: '/a', value: 1 };

  test('is an array of operations, or an object with these and a condition', () => {
    expect(read([operation])).toEqual({ operations: [operation] });
    expect(read({ operations: [operation] })).toEqual({ operations: [operation] });
    expect(read({ operations: [operation], condition: 'FROM c WHERE c.a = 1' })).toEqual({
      operations: [operation],
      condition: 'FROM c WHERE c.a = 1',
    });
  });

  test('has 1 to 10 operations', () => {
    expect(read(Array.from({ length: 10 }, () => operation)).operations).toHaveLength(10);
    for (const body of [
      [],
      Array.from({ length: 11 }, () => operation),
      {},
      { operations: [] },
      null,
      1,
      'x',
      { operations: {} },
    ]) {
      expect(() => read(body)).toThrow(expect.objectContaining({ code: 'bad-request' }));
    }
  });

  test('has a text as its condition, if any', () => {
    for (const condition of [null, 7, true, ['FROM c'], { query: 'FROM c' }, 'x'.repeat(100_000)]) {
      expect(() => read({ operations: [operation], condition })).toThrow(
        expect.objectContaining({ code: 'bad-request', message: expect.stringContaining('condition') }),
      );
    }
  });

  test.each([
    [{ op: 'add', path: '/a', value: null }],
    [{ op: 'set', path: '/a', value: [1] }],
    [{ op: 'replace', path: '/a', value: {} }],
    [{ op: 'remove', path: '/a' }],
    [{ op: 'incr', path: '/a', value: -1.5 }],
    [{ op: 'incr', path: '/a', value: 9_007_199_254_740_993n }],
    [{ op: 'move', path: '/b', from: '/a' }],
    [{ op: 'move', path: '/ab', from: '/a' }],
    [{ op: 'move', path: '/a', from: '/a/b' }],
  ])('accepts an operation like %o, and keeps nothing else of it', (good) => {
    expect(read([{ ...good, more: 1 }])).toEqual({ operations: [good] });
  });

  test('may write increment for incr, as the older SDKs do', () => {
    expect(read([{ op: 'increment', path: '/a', value: 1 }])).toEqual({
      operations: [{ op: 'incr', path: '/a', value: 1 }],
    });
  });

  test.each([
    [{ op: 'set', path: '/a' }],
    [{ op: 'toString', path: '/a' }],
    [{ path: '/a', value: 1 }],
    [{ op: 'set', value: 1 }],
    [{ op: 'set', path: 7, value: 1 }],
    [{ op: 'set', path: 'a', value: 1 }],
    [{ op: 'set', path: 'name', value: 1 }],
    [{ op: 'set', path: '', value: 1 }],
    [{ op: 'set', path: '/', value: 1 }],
    [{ op: 'set', path: '/a~2', value: 1 }],
    [{ op: 'set', path: '/a~', value: 1 }],
    [{ op: 'incr', path: '/a', value: '1' }],
    [{ op: 'incr', path: '/a' }],
    [{ op: 'incr', path: '/a', value: Number.POSITIVE_INFINITY }],
    [{ op: 'move', path: '/a' }],
    [{ op: 'move', path: '/a/b', from: '/a' }],
    [null],
    ['set'],
    [[]],
  ])('has no operation like %j', (bad) => {
    expect(() => read([bad])).toThrow(expect.objectContaining({ code: 'bad-request' }));
  });

  test.each([
    '/id',
    '/_ts',
    '/_etag',
    '/_rid',
    '/_self',
    '/_attachments',
    '/id/x',
    '/address',
    '/address/zip',
    '/address/zip/x',
  ])('can’t change %s', (path) => {
    expect(() => read([{ op: 'set', path, value: 1 }])).toThrow();
    expect(() => read([{ op: 'remove', path }])).toThrow();
    expect(() => read([{ op: 'move', path: '/other', from: path }])).toThrow();
  });

  test('may change paths beside the partition key, and ttl', () => {
    for (const path of ['/address/street', '/ttl', '/ids', '/a~1b', '/a~0b', '/addressZip']) {
      expect(read([{ op: 'set', path, value: 1 }]).operations).toHaveLength(1);
    }
  });
});
