import { describe, expect, it } from 'vitest';
import type { RecoverItem } from '@epitaph/core/item/commands.ts';
import { NEW_KEY } from '@epitaph/core/item/decide.ts';
import type { ItemEvent } from '@epitaph/core/item/events.ts';
import { decodeLedger, type LedgerEntry } from '@epitaph/core/item/ledger.ts';
import { ledgerOf } from '@epitaph/core/testing/ledger.ts';
import { givenItem } from '@epitaph/core/testing/given-when-then.ts';
import { permanentItemFacts } from '@epitaph/core/item/events.ts';

const TS = 1_763_722_800;
const NOW_MS = TS * 1000 + 250;
const timeline = [{ fromMs: 0, defaultTtl: 60, version: 1 }];
const identity = { id: 'a', partitionKey: '["ann"]' };
const recover = (over: Partial<RecoverItem> = {}): RecoverItem => ({
  type: 'RecoverItem',
  ...identity,
  fromLife: 0,
  ttl: { kind: 'value', seconds: 7 },
  bytes: 20,
  nowMs: NOW_MS,
  timeline,
  ...over,
});
const recovered: ItemEvent = {
  type: 'ItemRecovered',
  data: { ...identity, fromLife: 0, ts: TS, ttl: 7, policyVersion: 1, key: NEW_KEY, bytes: 20 },
};
const written = (ts: number, ttl: number | null = null): ItemEvent => ({
  type: 'ItemUpserted',
  data: { ...identity, operation: 'create', ts, ttl, policyVersion: 1, key: 1, bytes: 20 },
});

describe('recovering an item', () => {
  it('begins a new life, written now, with a key of its own', () => {
    givenItem().when(recover()).then(recovered);
  });

  it('takes the values of unique keys that its content has', () => {
    const uniqueKeys = ['unique-Co1.hash'];
    givenItem()
      .when(recover({ uniqueKeys }))
      .then({ type: 'ItemRecovered', data: { ...recovered.data, uniqueKeys } });
  });

  it('goes past an ended life', () => {
    givenItem(written(TS), { type: 'ItemDeleted', data: { ...identity, ts: TS } })
      .when(recover())
      .thenGoesToNextLife();
  });

  it('is refused while a life exists', () => {
    givenItem(written(TS)).when(recover()).thenRefused('already-exists');
    givenItem(recovered).when(recover()).thenRefused('already-exists');
  });

  it('records the end of an overdue life first', () => {
    givenItem(written(TS - 60))
      .when(recover())
      .thenEndsFirst({
        type: 'ItemExpired',
        data: {
          ...identity,
          expiredAtMs: TS * 1000,
          rule: 'container-default',
          ts: TS - 60,
          ttl: 60,
          policyVersion: 1,
          byPolicyStart: false,
        },
      });
  });

  it('keeps an invalid ttl, which counts as absent as before', () => {
    const { ttl: _, ...others } = recovered.data as { ttl: number };
    givenItem()
      .when(recover({ ttl: { kind: 'unreadable', value: 'a week' } }))
      .then({ type: 'ItemRecovered', data: { ...others, ttl: null, unreadableTtl: true } } as ItemEvent);
  });
});

describe('a life that began with a recovery', () => {
  it('has content in its first event, which is therefore not a permanent fact', () => {
    expect(permanentItemFacts.has('ItemRecovered')).toBe(false);
  });

  it('can be written, deleted and purged like any other', () => {
    givenItem(recovered)
      .when({ type: 'DeleteItem', nowMs: NOW_MS, timeline })
      .then({ type: 'ItemDeleted', data: { ...identity, ts: TS } });
  });

  it('has in its ledger that it was recovered', () => {
    const entry = (operation: LedgerEntry['operation'], atMs: number): LedgerEntry => ({
      atMs,
      ttl: null,
      operation,
      eventId: '00000000-0000-4000-8000-000000000000',
      digest: 'd'.repeat(43),
    });
    const operations = ['recover', 'replace', 'create', 'upsert', 'patch'] as const;
    const ledger = ledgerOf(operations.map((operation, index) => entry(operation, NOW_MS + index)));
    expect(ledger.operations).toBe('brcup');
    expect(decodeLedger(ledger).map(({ operation }) => operation)).toEqual(operations);
  });
});
