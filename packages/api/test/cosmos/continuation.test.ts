import { describe, expect, test } from 'vitest';
import { decodeContinuation, encodeContinuation } from '@epitaph/api/cosmos/continuation.ts';
import type { Continuation } from '@epitaph/api/store/api/queries-api.ts';

const RID = 'AAAAAIAAAAA=';
const WHERE = { of: RID, key: undefined };
const tokenOf = (content: unknown) => Buffer.from(JSON.stringify(content)).toString('base64url');
const decode = (token: string | undefined) => decodeContinuation(token, WHERE).continuation;

describe('a continuation token', () => {
  const range = { min: '05C1', max: '05C1\u0000' };
  test.each<[string, Continuation]>([
    ['after a document', { kind: 'after', birth: 7 }],
    ['within a document', { kind: 'after', birth: 7, inside: 1, rows: 3 }],
    [
      'at values of all kinds',
      { kind: 'sorted', keys: [[], [null], ['a'], [2n ** 60n]], birth: 7, inside: 0, include: true, rows: 2 },
    ],
    [
      'among neighbours',
      { kind: 'sorted', keys: [['a']], near: { before: ['a', 'b', 'c', 'd', 'e'], after: [] }, rows: 2 },
    ],
    ['behind the best documents', { kind: 'ranked', births: [1, 2], rows: 2, range }],
    ['after a number of rows', { kind: 'skip', rows: 2, range }],
  ])('says where to continue: %s', (_, continuation) => {
    expect(decode(encodeContinuation({ continuation }, WHERE))).toEqual(continuation);
    const next = { continuation, pageId: 'of-16-characters' };
    expect(decodeContinuation(encodeContinuation(next, WHERE), WHERE)).toEqual(next);
  });

  test('that is missing or empty begins at the beginning', () => {
    expect([decode(undefined), decode('')]).toEqual([undefined, undefined]);
  });

  test('of a page that was not ready names that page, also the first one', () => {
    const next = { pageId: 'of-16-characters' };
    expect(decodeContinuation(encodeContinuation(next, WHERE), WHERE)).toEqual(next);
    expect(() => decode(tokenOf({ kind: 'start' }))).toThrow('Invalid Continuation Token');
    expect(() => decode(tokenOf({ kind: 'start', page: 1 }))).toThrow('Invalid Continuation Token');
    expect(() => decode(tokenOf({ kind: 'start', page: 'x'.repeat(17) }))).toThrow('Invalid Continuation Token');
  });

  test('counts documents if it has no room for their position', () => {
    const births = Array.from({ length: 500 }, (_, n) => n);
    const token = encodeContinuation({ continuation: { kind: 'ranked', births, rows: 500, range } }, WHERE);
    expect(token.length).toBeLessThan(1_024);
    expect(decode(token)).toEqual({ kind: 'skip', rows: 500, range });
    expect(() => decodeContinuation(token, { of: 'AAAAAIAAAAE=', key: undefined })).toThrow(
      'Invalid Continuation Token',
    );
  });

  test('of 1 kB is accepted, a longer one is not', () => {
    const longest = tokenOf({ kind: 'sorted', keys: [['x'.repeat(728)]], rows: 1 });
    expect(longest).toHaveLength(1_024);
    expect(decode(longest)).toMatchObject({ rows: 1 });
    expect(() => decode(`${longest}A`)).toThrow('Invalid Continuation Token');
  });

  const sorted = { kind: 'sorted', keys: [['a']], rows: 1 };
  test.each<[string, unknown]>([
    ['is no object', null],
    ['is of no kind', { kind: 'else', rows: 1 }],
    ['has a fraction for a count', { kind: 'skip', rows: 1.5 }],
    ['has a count below none', { kind: 'after', birth: -1 }],
    ['has two values for one', { ...sorted, keys: [['a', 'b']] }],
    ['has more neighbours than are told', { ...sorted, near: { before: [], after: ['a', 'b', 'c', 'd', 'e', 'f'] } }],
    ['has neighbours that are no digests', { ...sorted, near: { before: [1], after: [] } }],
    ['includes its place in another word', { ...sorted, include: 'yes' }],
    ['begins nowhere among the keys', { kind: 'skip', rows: 1, range: { min: 'x', max: 'FF' } }],
    ['ends nowhere among the keys', { kind: 'skip', rows: 1, range: { min: '', max: 'x' } }],
  ])('that %s is refused', (_, content) => {
    expect(() => decode(tokenOf(content))).toThrow('Invalid Continuation Token');
  });

  test.each(['junk', '{}', '!'])('that is %s is refused', (token) => {
    expect(() => decode(token)).toThrow('Invalid Continuation Token');
  });
});
