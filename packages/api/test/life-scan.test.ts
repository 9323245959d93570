import { describe, expect, it } from 'vitest';
import { livesOf, type ScannedLife } from '@epitaph/api/store/items/life-scan.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import type { LedgerEntry } from '@epitaph/core/item/ledger.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { ledgerOf } from '@epitaph/core/testing/ledger.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const STREAM = 'item-Co1.hash.0';
const CONTAINER = { rid: 'Co1', timeline: [], partitionKeyDeletes: [] } as unknown as ContainerState;
const WRITES = 6;
const atMs = (revision: number) => 1_000 * (revision + 1);
const about = { id: 'i', partitionKey: '["p"]' };

const writes = Array.from({ length: WRITES }, (_, revision) => {
  const data = { ...about, operation: 'upsert', ts: revision + 1, ttl: null, policyVersion: 1, key: 1, bytes: 2 };
  const place = { revision, position: revision + 1, occurredAtMs: atMs(revision) };
  return recordedEvent(STREAM, { type: 'ItemUpserted', data }, place);
});

const ended = recordedEvent(
  STREAM,
  { type: 'ItemDeleted', data: { ...about, key: 1, ts: WRITES, ttl: null } },
  { revision: WRITES, position: WRITES + 1, occurredAtMs: 50_000 },
);

interface Purged {
  /** The number of writes that the record of the purge lists; all by default. */
  readonly listed?: number | undefined;
  /** The event that ended the life before, if any. */
  readonly end?: readonly RecordedEvent[];
  /** True if its events are removed before they are read, and not only afterwards. */
  readonly before?: boolean;
  readonly upToMs?: number;
}

/** The facts of a life that is purged as soon as its events up to a head have been read, or before. */
async function toldUpTo(
  headPosition: number,
  { listed, end = [], before = false, upToMs = Number.POSITIVE_INFINITY }: Purged = {},
): Promise<readonly ScannedLife[]> {
  const entries = writes.map(({ id, occurredAtMs }): LedgerEntry => ({
    atMs: occurredAtMs,
    ttl: null,
    operation: 'upsert',
    eventId: id,
    digest: '',
  }));
  const ledger = ledgerOf(entries, listed);
  const facts = { ...about, cause: 'deleted', erased: 'key-destroyed', key: 1, recoverableUntilMs: null, ledger };
  const place = { revision: WRITES + end.length, position: WRITES + end.length + 1, occurredAtMs: 60_000 };
  const purged = recordedEvent(STREAM, { type: 'ItemPurged', data: facts }, place);
  let heads = 0;
  let reads = 0;
  const log: Pick<EventLog, 'head' | 'readAll' | 'readLast' | 'readBefore' | 'readStream'> = {
    head: () => Promise.resolve(heads++ === 0 ? headPosition : purged.position),
    readAll: (after) => {
      const left = before || reads++ > 0 ? [...end, purged] : [...writes, ...end];
      return Promise.resolve(left.filter(({ position }) => position > after));
    },
    readLast: () => Promise.resolve<RecordedEvent>(purged),
    readBefore: (event) => Promise.resolve(event === purged ? end[0] : undefined),
    readStream: () => Promise.resolve([...end, purged]),
  };
  const told: ScannedLife[] = [];
  for await (const life of livesOf(log as EventLog, CONTAINER, upToMs)) told.push(life);
  return told;
}

describe('a life that is purged during a scan of lives', () => {
  it.each([undefined, 2, 3])(
    'is returned once, as it was up to the head, if its record lists %s of its writes',
    async (listed) => {
      for (let head = 1; head <= WRITES; head++) {
        const told = await toldUpTo(head, { listed });
        expect(told).toHaveLength(1);
        const times = told[0]!.facts.writes.map((write) => write.atMs);
        expect([times[0], times.at(-1)], `up to ${head}`).toEqual([atMs(0), atMs(head - 1)]);
      }
    },
  );

  it('and had ended before is returned with its end, if that was up to the head, and with its writes', async () => {
    for (const [head, end] of [
      [WRITES, undefined],
      [WRITES + 1, { kind: 'deleted', atMs: 50_000 }],
    ] as const) {
      const told = await toldUpTo(head, { end: [ended] });
      expect(told).toHaveLength(1);
      const { facts } = told[0]!;
      expect(facts.writes.map((write) => write.atMs)).toEqual(writes.map((write) => write.occurredAtMs));
      expect([facts.end, facts.purge]).toEqual([end && expect.objectContaining(end), undefined]);
    }
  });

  it('and truncated before it is read is returned from the record of its purge, as it was when the scan began', async () => {
    for (let known = 0; known <= WRITES; known++) {
      const upToMs = known === 0 ? atMs(0) - 1 : atMs(known - 1);
      const told = await toldUpTo(WRITES, { before: true, upToMs });
      expect(told.map(({ facts }) => facts)).toEqual(
        known === 0
          ? []
          : [{ life: 0, writes: writes.slice(0, known).map((write) => ({ atMs: write.occurredAtMs, ttl: null })) }],
      );
    }
    const left = (upToMs: number) => toldUpTo(WRITES, { before: true, end: [ended], upToMs });
    expect(await left(49_999)).toMatchObject([{ facts: { writes: { length: WRITES } } }]);
    expect((await left(49_999))[0]!.facts.end).toBeUndefined();
    expect(await left(50_000)).toMatchObject([{ facts: { end: { kind: 'deleted', atMs: 50_000 } } }]);
  });
});
