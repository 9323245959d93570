import { describe, expect, test } from 'vitest';
import { type HoldScope, widened } from '@epitaph/core/vault/key-vault.ts';

const ITEMS: HoldScope = { kind: 'stream-prefixes', prefixes: ['item-r.aaaabbbb.', 'item-r.ccccdddd.'] };
const KEY: HoldScope = { kind: 'stream-prefix', prefix: 'item-r.aaaa' };
const LIVES: HoldScope = { kind: 'lives', streams: ['item-r.aaaabbbb.0', 'item-r.eeeeffff.1'] };
const ALL: HoldScope = { kind: 'container', containerRid: 'r' };

describe('what either of two scopes covers', () => {
  test.each<{ what: string; one: HoldScope; other: HoldScope; both: HoldScope }>([
    { what: 'the same twice', one: ITEMS, other: ITEMS, both: ITEMS },
    {
      what: 'lives, and one more',
      one: LIVES,
      other: { kind: 'lives', streams: ['item-r.aaaabbbb.0', 'item-r.aaaabbbb.1'] },
      both: { kind: 'lives', streams: ['item-r.aaaabbbb.0', 'item-r.eeeeffff.1', 'item-r.aaaabbbb.1'] },
    },
    { what: 'lives, and none', one: LIVES, other: { kind: 'lives', streams: [] }, both: LIVES },
    {
      what: 'a partition key, and an item of it',
      one: KEY,
      other: { ...ITEMS, prefixes: ['item-r.aaaabbbb.'] },
      both: KEY,
    },
    {
      what: 'items, and one more',
      one: ITEMS,
      other: { kind: 'stream-prefixes', prefixes: ['item-r.ccccdddd.', 'item-r.eeeeffff.'] },
      both: { kind: 'stream-prefixes', prefixes: ['item-r.aaaabbbb.', 'item-r.ccccdddd.', 'item-r.eeeeffff.'] },
    },
    { what: 'a partition key, and an item of another', one: KEY, other: ITEMS, both: ALL },
    { what: 'two partition keys', one: KEY, other: { ...KEY, prefix: 'item-r.cccc' }, both: ALL },
    {
      what: 'a partition key, and a life of it',
      one: KEY,
      other: { ...LIVES, streams: ['item-r.aaaabbbb.0'] },
      both: KEY,
    },
    { what: 'a container, and items of it', one: ALL, other: ITEMS, both: ALL },
    { what: 'a container, and lives of it', one: ALL, other: LIVES, both: ALL },
    { what: 'items, and no names any more', one: ITEMS, other: { kind: 'stream-prefixes', prefixes: [] }, both: ITEMS },
    { what: 'items, and no lives any more', one: ITEMS, other: { kind: 'lives', streams: [] }, both: ITEMS },
    { what: 'lives, and no names any more', one: LIVES, other: { kind: 'stream-prefixes', prefixes: [] }, both: LIVES },
    { what: 'lives, and a partition key', one: LIVES, other: KEY, both: ALL },
    { what: 'a partition key, and lives', one: KEY, other: LIVES, both: ALL },
  ])('$what', ({ one, other, both }) => {
    expect(widened(one, other, 'r')).toEqual(both);
  });
});
