import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { WriteItem } from '@epitaph/core/item/commands.ts';
import { decideItem, type ItemDecision } from '@epitaph/core/item/decide.ts';
import { initialItemState } from '@epitaph/core/item/state.ts';
import { expiryOf } from '@epitaph/core/ttl/expiry.ts';
import type { PolicyStart } from '@epitaph/core/ttl/policy-timeline.ts';
import { readDefaultTtl, readOwnTtl, ttlValueSchema } from '@epitaph/core/ttl/ttl-value.ts';
import { isExpired, watermarks } from '@epitaph/core/ttl/watermarks.ts';

/** The published example tables of Azure Cosmos DB, as data. */
const scenariosSchema = z.object({
  scenarios: z.array(
    z.object({
      table: z.string(),
      defaultTtl: ttlValueSchema.nullable(),
      ttl: z.union([z.literal('absent'), ttlValueSchema]),
      expiresAfter: z.int().nullable(),
    }),
  ),
  refused: z.object({ defaultTtl: z.array(z.unknown()), ttl: z.array(z.unknown()) }),
});
const file = new URL('../../../test/data/ttl-scenarios.json', import.meta.url);
const { scenarios, refused } = scenariosSchema.parse(JSON.parse(readFileSync(file, 'utf8')));

const TS = 1_763_722_800;

function writeUnder(timeline: readonly PolicyStart[], document: { readonly ttl?: unknown }): ItemDecision {
  const command: WriteItem = {
    type: 'WriteItem',
    operation: 'create',
    id: 'a',
    partitionKey: '["p"]',
    ttl: readOwnTtl(document),
    bytes: 10,
    nowMs: TS * 1000,
    timeline,
  };
  return decideItem(initialItemState, command);
}

function recordedTimes(decision: ItemDecision): { readonly ts: number; readonly ttl: number | null } {
  const event = decision.kind === 'accepted' ? decision.events[0] : undefined;
  if (event?.type !== 'ItemUpserted') throw new Error(`expected a write, got ${JSON.stringify(decision)}`);
  return { ts: event.data.ts, ttl: event.data.ttl };
}

describe('the published scenarios:', () => {
  expect(scenarios.length).toBeGreaterThanOrEqual(21);
  it.each(scenarios)(
    '$table: defaultTtl $defaultTtl and ttl $ttl expire after $expiresAfter seconds',
    ({ defaultTtl, ttl, expiresAfter }) => {
      expect(readDefaultTtl(defaultTtl)).toEqual({ defaultTtl });
      const timeline: PolicyStart[] = [{ fromMs: 0, defaultTtl, version: 1 }];
      const item = recordedTimes(writeUnder(timeline, ttl === 'absent' ? {} : { ttl }));
      const expiredAt = (nowMs: number) => isExpired(item, watermarks(timeline, nowMs));
      if (expiresAfter === null) {
        expect(expiryOf(item, timeline)).toBe(undefined);
        expect(expiredAt(Number.MAX_SAFE_INTEGER)).toBe(false);
      } else {
        const deadlineMs = (TS + expiresAfter) * 1000;
        expect(expiryOf(item, timeline)).toEqual({
          expiredAtMs: deadlineMs,
          rule: ttl === 'absent' ? 'container-default' : 'item-ttl',
          ttl: expiresAfter,
          policyVersion: 1,
          byPolicyStart: false,
        });
        expect([-1, 0, 1].map((offset) => expiredAt(deadlineMs + offset))).toEqual([false, true, true]);
      }
    },
  );
});

describe('the published invalid values are refused:', () => {
  it.each(refused.defaultTtl.map((value) => ({ value })))('defaultTtl $value', ({ value }) => {
    expect(readDefaultTtl(value)).toBe(undefined);
  });
  it.each(refused.ttl.map((value) => ({ value })))('ttl $value, while the TTL is on', ({ value }) => {
    for (const defaultTtl of [-1, 1_000] as const) {
      const decision = writeUnder([{ fromMs: 0, defaultTtl, version: 1 }], { ttl: value });
      expect(decision).toEqual({ kind: 'refused', refusal: { reason: 'invalid-ttl', value } });
    }
  });
  it.each(refused.ttl.map((value) => ({ value })))(
    'ttl $value is an ordinary property while the TTL is off',
    ({ value }) => {
      const off: PolicyStart = { fromMs: 0, defaultTtl: null, version: 1 };
      const item = recordedTimes(writeUnder([off], { ttl: value }));
      expect(item.ttl).toBe(null);
      // When the TTL is turned on later, the invalid ttl counts as absent, so the container's default applies.
      const on: PolicyStart = { fromMs: TS * 1000 + 1, defaultTtl: 100, version: 2 };
      expect(expiryOf(item, [off, on])).toMatchObject({ rule: 'container-default', expiredAtMs: (TS + 100) * 1000 });
      expect(expiryOf(item, [off, { ...on, defaultTtl: -1 }])).toBe(undefined);
    },
  );
});
