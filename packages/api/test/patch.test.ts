import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Document, PatchOperation } from '@epitaph/api/store/api/items-api.ts';
import { MAX_DOCUMENT_DEPTH } from '@epitaph/api/store/document-limits.ts';
import { applyPatch } from '@epitaph/api/store/items/patch.ts';

const apply = (document: Document, ...operations: PatchOperation[]) => applyPatch(document, operations);

describe('a patch', () => {
  test.each<[string, Document, PatchOperation[], Document]>([
    ['add makes a property', { a: 1 }, [{ op: 'add', path: '/b', value: 2 }], { a: 1, b: 2 }],
    ['add takes the place of a property', { a: 1 }, [{ op: 'add', path: '/a', value: 2 }], { a: 2 }],
    ['add inserts into an array', { a: [1, 3] }, [{ op: 'add', path: '/a/1', value: 2 }], { a: [1, 2, 3] }],
    ['add at the length appends', { a: [1] }, [{ op: 'add', path: '/a/1', value: 2 }], { a: [1, 2] }],
    ['add at - appends', { a: [1] }, [{ op: 'add', path: '/a/-', value: 2 }], { a: [1, 2] }],
    ['set replaces in an array', { a: [1, 3] }, [{ op: 'set', path: '/a/1', value: 2 }], { a: [1, 2] }],
    ['set appends at the length', { a: [1] }, [{ op: 'set', path: '/a/1', value: 2 }], { a: [1, 2] }],
    ['set makes a property', {}, [{ op: 'set', path: '/a', value: null }], { a: null }],
    ['replace takes the place', { a: { b: 1 } }, [{ op: 'replace', path: '/a/b', value: 2 }], { a: { b: 2 } }],
    ['remove takes a property out', { a: 1, b: 2 }, [{ op: 'remove', path: '/a' }], { b: 2 }],
    ['set goes into an element', { a: [1, { b: 1 }] }, [{ op: 'set', path: '/a/1/b', value: 2 }], { a: [1, { b: 2 }] }],
    ['remove goes into an element', { a: [[1, 2], 3] }, [{ op: 'remove', path: '/a/0/0' }], { a: [[2], 3] }],
    ['remove closes an array', { a: [1, 2, 3] }, [{ op: 'remove', path: '/a/0' }], { a: [2, 3] }],
    ['incr adds', { a: 1.5 }, [{ op: 'incr', path: '/a', value: -0.5 }], { a: 1 }],
    ['incr adds a whole number to a fraction', { a: 1.5 }, [{ op: 'incr', path: '/a', value: 1 }], { a: 2.5 }],
    ['incr makes what is not there', {}, [{ op: 'incr', path: '/a', value: 5 }], { a: 5 }],
    [
      'incr keeps every digit of integers',
      { a: 9_007_199_254_740_991, b: 9_007_199_254_740_993n, c: 9_007_199_254_740_993n },
      [
        { op: 'incr', path: '/a', value: 2 },
        { op: 'incr', path: '/b', value: -9_007_199_254_740_992n },
        { op: 'incr', path: '/c', value: 0.5 },
      ],
      { a: 9_007_199_254_740_993n, b: 1, c: 9_007_199_254_740_992 },
    ],
    ['incr works in an array', { a: [1] }, [{ op: 'incr', path: '/a/0', value: 5 }], { a: [6] }],
    ['move takes along', { a: { b: 1 } }, [{ op: 'move', path: '/c', from: '/a/b' }], { a: {}, c: 1 }],
    ['move works within an array', { a: [1, 2, 3] }, [{ op: 'move', path: '/a/0', from: '/a/2' }], { a: [3, 1, 2] }],
    ['move onto itself changes nothing', { a: 1 }, [{ op: 'move', path: '/a', from: '/a' }], { a: 1 }],
    ['names may hold slashes and tildes', {}, [{ op: 'set', path: '/a~1b~0c~01', value: 1 }], { 'a/b~c~1': 1 }],
    ['digits are names in an object', { a: {} }, [{ op: 'set', path: '/a/0', value: 1 }], { a: { 0: 1 } }],
    [
      'operations build on each other',
      {},
      [
        { op: 'add', path: '/a', value: [] },
        { op: 'add', path: '/a/-', value: 1 },
        { op: 'incr', path: '/a/0', value: 1 },
      ],
      { a: [2] },
    ],
    ['empty names are names', { '': 1 }, [{ op: 'set', path: '/a', value: 1 }], { '': 1, a: 1 }],
  ])('%s', (_name, before, operations, after) => {
    const copy = structuredClone(before);
    expect(apply(before, ...operations)).toEqual(after);
    expect(before).toEqual(copy);
  });

  test.each<[string, Document, PatchOperation]>([
    ['nothing above', {}, { op: 'add', path: '/a/b', value: 1 }],
    ['a number above', { a: 1 }, { op: 'add', path: '/a/b', value: 1 }],
    ['null above', { a: null }, { op: 'add', path: '/a/b', value: 1 }],
    ['text above', { a: 'x' }, { op: 'set', path: '/a/0', value: 1 }],
    ['past the end', { a: [1] }, { op: 'add', path: '/a/2', value: 1 }],
    ['no index', { a: [1] }, { op: 'add', path: '/a/x', value: 1 }],
    ['a leading zero', { a: [1, 2] }, { op: 'set', path: '/a/01', value: 1 }],
    ['a negative index', { a: [1] }, { op: 'set', path: '/a/-1', value: 1 }],
    ['an array’s length', { a: [1] }, { op: 'set', path: '/a/length', value: 0 }],
    ['replacing nothing', {}, { op: 'replace', path: '/a', value: 1 }],
    ['replacing past the end', { a: [1] }, { op: 'replace', path: '/a/1', value: 1 }],
    ['replacing at -', { a: [1] }, { op: 'replace', path: '/a/-', value: 1 }],
    ['removing nothing', {}, { op: 'remove', path: '/a' }],
    ['removing past the end', { a: [1] }, { op: 'remove', path: '/a/1' }],
    ['removing an array’s length', { a: [1] }, { op: 'remove', path: '/a/length' }],
    ['removing by a leading zero', { a: [1] }, { op: 'remove', path: '/a/00' }],
    ['removing at -', { a: [1] }, { op: 'remove', path: '/a/-' }],
    ['adding to text', { a: 'x' }, { op: 'incr', path: '/a', value: 1 }],
    ['adding to null', { a: null }, { op: 'incr', path: '/a', value: 1 }],
    ['a sum beyond doubles', { a: 1.7e308 }, { op: 'incr', path: '/a', value: 1.7e308 }],
    ['moving nothing', {}, { op: 'move', path: '/b', from: '/a' }],
    ['moving what is below null', { a: null }, { op: 'move', path: '/b', from: '/a/x' }],
    ['moving what is below text', { a: 'x' }, { op: 'move', path: '/b', from: '/a/length' }],
    ['adding to what is below null', { a: null }, { op: 'incr', path: '/a/x', value: 1 }],
    ['moving to nowhere', { a: 1 }, { op: 'move', path: '/b/c', from: '/a' }],
    ['inherited names', {}, { op: 'remove', path: '/toString' }],
    ['inherited containers', {}, { op: 'set', path: '/constructor/x', value: 1 }],
    ['the prototype', {}, { op: 'set', path: '/__proto__/x', value: 1 }],
  ])('is refused for %s', (_name, document, operation) => {
    expect(() => apply(document, operation)).toThrow(expect.objectContaining({ code: 'bad-request' }));
  });

  test.each<[string, PatchOperation]>([
    [
      "Add Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'gone'. Learn more: https://aka.ms/cosmosdbpatchdocs",
      { op: 'add', path: '/a/gone/b', value: 1 },
    ],
    [
      "Given Operation can only create a child object of an existing node(array or object) and cannot create path recursively, no path found beyond: 'n'. Learn more: https://aka.ms/cosmosdbpatchdocs",
      { op: 'set', path: '/n/b/c', value: 1 },
    ],
    ['Index(3) to operate on is out of array bounds.', { op: 'add', path: '/list/3', value: 1 }],
    ['Index(2) to operate on is out of array bounds.', { op: 'remove', path: '/list/2' }],
    [
      'Node(gone) to be removed is absent. Note: it may also have been removed earlier in the transaction.',
      { op: 'remove', path: '/a/gone' },
    ],
    ['Node(gone) to be replaced is absent.', { op: 'replace', path: '/a/gone', value: 1 }],
    ['Node(list) is not a number.', { op: 'incr', path: '/list', value: 1 }],
  ])('is refused with "%s", and the number of the operation', (message, operation) => {
    const document = { a: {}, list: [1, 2], n: 1 };
    expect(() => apply(document, { op: 'set', path: '/b', value: 1 }, operation)).toThrow(
      expect.objectContaining({ code: 'bad-request', message, details: { operation: 2 } }),
    );
  });

  test('treats __proto__ as the name of a property', () => {
    const patched = apply(
      { a: 1 },
      { op: 'set', path: '/__proto__', value: { polluted: true } },
      { op: 'set', path: '/b', value: 2 },
    );
    expect(JSON.stringify(patched)).toBe('{"a":1,"__proto__":{"polluted":true},"b":2}');
    expect(Object.getPrototypeOf(patched)).toBe(Object.prototype);
    expect(JSON.stringify(apply(patched, { op: 'set', path: '/__proto__/x', value: 1 }))).toContain('"x":1');
    expect(JSON.stringify(apply(patched, { op: 'remove', path: '/__proto__' }))).toBe('{"a":1,"b":2}');
  });

  test('can’t nest a document deeper than one can be sent', () => {
    let document: Document = { a: 0 };
    const deeper = () => {
      document = apply(
        document,
        { op: 'move', path: '/b', from: '/a' },
        { op: 'set', path: '/a', value: {} },
        { op: 'move', path: '/a/x', from: '/b' },
      );
    };
    expect(() => {
      for (let n = 0; n < 200; n += 1) deeper();
    }).toThrow('nested too deeply');
  });

  test.each(['add', 'set', 'replace'] as const)('cannot %s what would be nested deeper than that', (op) => {
    const nested = (depth: number): unknown => (depth === 0 ? 'x' : { a: nested(depth - 1) });
    const most = MAX_DOCUMENT_DEPTH;
    const whole = nested(most) as Document;
    const path = (depth: number) => '/a'.repeat(depth);
    expect(apply({ a: {} }, { op, path: '/a', value: nested(most - 1) })).toEqual(whole);
    expect(() => apply({ a: {} }, { op, path: '/a', value: nested(most) })).toThrow('nested too deeply');
    expect(apply(whole, { op, path: path(most), value: 'x' })).toEqual(whole);
    expect(() => apply(whole, { op, path: path(most), value: {} })).toThrow('nested too deeply');
    expect(() => apply(nested(most + 1) as Document, { op, path: path(most + 1), value: 1 })).toThrow(
      'nested too deeply',
    );
  });

  test('leaves the given document unchanged and makes a value that JSON can represent, or is refused', () => {
    const path = fc
      .array(fc.constantFrom('a', 'b', '0', '1', '-', '__proto__', 'a~1'), { minLength: 1, maxLength: 4 })
      .map((names) => `/${names.join('/')}`);
    const operation: fc.Arbitrary<PatchOperation> = fc.oneof(
      fc.record({
        op: fc.constantFrom('add' as const, 'set' as const, 'replace' as const),
        path,
        value: fc.jsonValue({ maxDepth: 2 }),
      }),
      fc.record({ op: fc.constant('incr' as const), path, value: fc.double({ noNaN: true, noDefaultInfinity: true }) }),
      fc.record({ op: fc.constant('remove' as const), path }),
      fc.record({ op: fc.constant('move' as const), path, from: path }),
    );
    const value = fc.letrec((tie) => ({
      any: fc.oneof({ depthSize: 'small' }, fc.integer(), fc.array(tie('any'), { maxLength: 3 }), tie('object')),
      object: fc.dictionary(fc.constantFrom('a', 'b', '0'), tie('any'), { maxKeys: 3, noNullPrototype: true }),
    })).object as fc.Arbitrary<Document>;
    fc.assert(
      fc.property(value, fc.array(operation, { minLength: 1, maxLength: 4 }), (document, operations) => {
        const before = JSON.stringify(document);
        try {
          const text = JSON.stringify(applyPatch(document, operations));
          expect(JSON.stringify(JSON.parse(text))).toBe(text);
        } catch (error) {
          expect(error).toMatchObject({ code: 'bad-request' });
        }
        expect(JSON.stringify(document)).toBe(before);
        expect(({} as Record<string, unknown>)['a']).toBeUndefined();
      }),
      { numRuns: 500 },
    );
  });

  test('copies a large object once for all its operations', () => {
    const large = Object.fromEntries(Array.from({ length: 20_000 }, (_, n) => [`p${n}`, n]));
    const operations = Array.from({ length: 400 }, (_, n): PatchOperation => ({
      op: 'set',
      path: `/p${n}`,
      value: -1,
    }));
    const { user: before } = process.threadCpuUsage();
    const patched = applyPatch(large, operations);
    expect(process.threadCpuUsage().user - before).toBeLessThan(1_000_000);
    expect([patched['p399'], patched['p400'], large['p399']]).toEqual([-1, 400, 399]);
  });

  test('changes no value of an operation when a later one goes into it', () => {
    const value = { b: 1 };
    const set: PatchOperation = { op: 'set', path: '/a', value };
    expect(apply({}, set, { op: 'set', path: '/a/b', value: 2 }, { op: 'remove', path: '/a/b' })).toEqual({ a: {} });
    expect(value).toEqual({ b: 1 });
  });
});
