import { describe, expect, it, vi } from 'vitest';
import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerState, PartitionKeyDelete, RecordedPolicy } from '@epitaph/core/container/state.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import type { ItemPurged } from '@epitaph/core/item/events.ts';
import { recorded } from '@epitaph/core/item/handle.ts';
import { decodeLedger } from '@epitaph/core/item/ledger.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { turn } from '@epitaph/core/turn.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import { UnreadableEvent } from '@epitaph/core/upcast.ts';
import { initialRetention } from '@epitaph/core/retention/state.ts';
import { MemoryKeyVault, ToyBodySealer } from '@epitaph/core/testing/memory-key-vault.ts';
import { uniqueKeyStream } from '@epitaph/core/unique-key/stream-name.ts';
import { type ErasedBatch, PurgeExecutor } from '../src/purge/executor.ts';
import type { PurgePorts } from '../src/purge/ports.ts';
import type { EndedRow } from '../src/read-model-store.ts';

it('removes a write that another node appends to a live item while the item’s key is destroyed', async () => {
  const log = new MemoryEventLog();
  const vault = new MemoryKeyVault();
  const sealer = new ToyBodySealer();
  const stream = 'item-rid.hash.0';
  const { key } = vault.createKey(stream);
  const context: CommandContext = {
    nowMs: 1_000,
    actor: 'test',
    correlationId: 'test',
    newId: () => crypto.randomUUID(),
  };
  const write = (revision: number) => {
    const data = {
      id: 'i',
      partitionKey: '["p"]',
      ts: 1,
      ttl: null,
      policyVersion: 1,
      bytes: 2,
      key: key.keyId,
      operation: 'upsert',
    } as const;
    const body = sealer.seal(key, stream, revision, '{}');
    const event = { ...recorded(context, { type: 'ItemUpserted', data }), body };
    return log.append([{ stream, expectedRevision: revision === 0 ? 'no-stream' : revision - 1, events: [event] }]);
  };
  await write(0);
  const erasedPositions: number[] = [];
  const executor = new PurgeExecutor({
    log,
    vault: Object.assign(Object.create(vault), {
      destroyKeys: async (...requests: Parameters<typeof vault.destroyKeys>) => {
        await write(1);
        return vault.destroyKeys(...requests);
      },
    }) as MemoryKeyVault,
    sealer,
    catalog: () => ({ goneAtMs: () => 1_000, containerByRid: () => undefined }),
    projected: async () => {},
    onErased: (positions: readonly number[]) => erasedPositions.push(...positions),
    copiesKeptUntilMs: () => null,
    newId: () => crypto.randomUUID(),
  } as unknown as PurgePorts);
  expect(await executor.erase([{ stream, cause: 'container-deleted' }], () => 2_000)).toMatchObject({ purged: 1 });
  await executor.truncations.done();
  const left = log.readStream(stream);
  expect(left.map(({ type, revision }) => [type, revision])).toEqual([['ItemPurged', 2]]);
  const bytes = 2 * sealer.seal(key, stream, 0, '{}').length;
  expect(left[0]!.data).toMatchObject({ remains: { sealedBytes: bytes, removedBy: 'truncation' } });
  expect(erasedPositions).toContain(2);
});

/** Lives of one container in the memory log, appended by hand, and an executor that erases them. */
class Lives {
  readonly log = new MemoryEventLog();
  readonly vault = new MemoryKeyVault();
  readonly sealer = new ToyBodySealer();
  /** Until when backups contain the keys. */
  copiesKeptUntilMs: number | null = null;
  /** When the container was deleted. */
  goneAtMs: number | null = null;
  /** When the end of a life is recorded. */
  endOnRecordAtMs = 3_000;
  /** How long after its full second each write is recorded. */
  writtenAfterMs = 0;
  readonly erasedPositions: number[] = [];
  /** Changes of the container that are in progress, one after the other. */
  underWay: Promise<void>[] = [];
  /** The time up to which the executor has asked that no policy take effect any more. */
  judgedUpToMs: number | undefined;
  projectedUpTo = 0;
  readonly partitionKeyDeletes: PartitionKeyDelete[] = [];
  readonly timeline: RecordedPolicy[] = [];
  readonly #state = {
    rid: 'Co1',
    timeline: this.timeline as readonly RecordedPolicy[],
    partitionKeyDeletes: this.partitionKeyDeletes as readonly PartitionKeyDelete[],
    policyGraceSeconds: 7,
    retention: { ...initialRetention, recoveryWindowSeconds: 6 },
  } as ContainerState;
  readonly executor = new PurgeExecutor({
    log: this.log,
    vault: this.vault,
    sealer: this.sealer,
    catalog: () => ({ goneAtMs: () => this.goneAtMs, containerByRid: () => ({ number: 1, state: this.#state }) }),
    projected: async (position: number) => {
      await turn();
      this.projectedUpTo = position;
    },
    onErased: (positions: readonly number[]) => this.erasedPositions.push(...positions),
    changeUnderWay: () => this.underWay.shift(),
    onExpiriesRecorded: (_container: number, atMs: number) => (this.judgedUpToMs = atMs),
    copiesKeptUntilMs: () => this.copiesKeptUntilMs,
    newId: () => crypto.randomUUID(),
  } as unknown as PurgePorts);

  constructor() {
    // Unlike every other log, the memory log would truncate at once.
    const truncate = this.log.truncateStream.bind(this.log);
    this.log.truncateStream = async (...args) => {
      for (let turns = 0; turns < 5; turns++) await turn();
      return truncate(...args);
    };
  }

  context(nowMs: number, actor = 'key:primary'): CommandContext {
    return { nowMs, actor, correlationId: 'test', newId: () => crypto.randomUUID() };
  }

  stream(item: string): string {
    return `item-Co1.${item}.0`;
  }

  /**
   * A life with two writes, at 1 s and at 2 s. It is then deleted at 3 s, by itself or with its partition key, or expired by a policy that
   * started then, or it is live.
   */
  async life(
    item: string,
    end: 'deleted' | 'left' | 'expired' | 'live' = 'deleted',
    uniqueKeys: readonly string[] = [],
    { isRecovered = false } = {},
  ): Promise<EndedRow> {
    const stream = this.stream(item);
    const { key } = this.vault.createKey(stream);
    const identity = { id: item, partitionKey: '["p"]' };
    const written = [1, 2].map((ts) => {
      const facts = {
        ...identity,
        ts,
        ttl: null,
        policyVersion: 1,
        bytes: 2,
        key: key.keyId,
        uniqueKeys: [...uniqueKeys],
      };
      const event = recorded(
        this.context(ts * 1000 + this.writtenAfterMs),
        ts === 1 && isRecovered
          ? { type: 'ItemRecovered', data: { ...facts, fromLife: 0 } }
          : { type: 'ItemUpserted', data: { ...facts, operation: ts === 1 ? 'create' : 'patch' } },
      );
      return { ...event, body: this.sealer.seal(key, stream, ts - 1, '{}') };
    });
    const expiry = {
      expiredAtMs: 3_000,
      rule: 'container-default',
      ttl: 1,
      policyVersion: 2,
      byPolicyStart: true,
    } as const;
    const withPartitionKey = end === 'left' ? { withPartitionKey: { atMs: 3_000, by: 'key:primary' } } : {};
    const ends = recorded(
      this.context(this.endOnRecordAtMs),
      end === 'expired'
        ? { type: 'ItemExpired', data: { ...identity, ts: 2, ...expiry } }
        : { type: 'ItemDeleted', data: { ...identity, ts: 2, ...withPartitionKey } },
    );
    const events = end === 'live' ? written : [...written, ends];
    await this.log.append([{ stream, expectedRevision: 'no-stream', events }]);
    return { stream, ...identity, life: 0, cause: 'deleted', endedAtMs: 3_000, byPolicyStart: false } as EndedRow;
  }

  async erase(rows: readonly EndedRow[], nowMs = 10_000): Promise<ErasedBatch> {
    const erased = await this.executor.erase(rows, () => nowMs);
    await this.executor.truncations.done();
    return erased;
  }

  /** Erases items of the deleted container. */
  async eraseItems(items: readonly string[]): Promise<ErasedBatch> {
    const lives = items.map((item) => ({ stream: this.stream(item), cause: 'container-deleted' }) as const);
    const erased = await this.executor.erase(lives, () => 10_000);
    await this.executor.truncations.done();
    return erased;
  }

  /** Erases a life on request, at 10 s. */
  eraseOnDemand(item: string): Promise<ErasedBatch> {
    const demanded = { stream: this.stream(item), cause: 'erasure' } as const;
    return this.executor.eraseOnDemand({ lives: [demanded], context: this.context(10_000) }, () => 10_000);
  }

  types(item: string): string[] {
    return this.log.readStream(this.stream(item)).map(({ type }) => type);
  }

  /** The record of a life's purge. */
  record(item: string): { readonly data: ItemPurged; readonly actor: string } {
    const { data, actor, type } = this.log.readLast(this.stream(item))!;
    expect(type).toBe('ItemPurged');
    return { data: data as unknown as ItemPurged, actor };
  }
}

describe('an erasure', () => {
  const UNTOUCHED = ['ItemUpserted', 'ItemUpserted', 'ItemDeleted'];

  it('records the writes, what was waited for, and until when a copy of the key is kept', async () => {
    const lives = new Lives();
    const one = await lives.life('a');
    const [two, three, four] = [await lives.life('b', 'expired'), await lives.life('c'), await lives.life('d')];
    const digests = lives.log.readStream(one.stream).flatMap(({ body }) => (body ? lives.sealer.digest(body) : []));
    await lives.vault.setFloor('Co1', 'retention', 5);
    expect(await lives.erase([one])).toMatchObject({ purged: 1, refused: [] });
    expect(lives.types('a')).toEqual(['ItemDeleted', 'ItemPurged']);
    const { data, actor } = lives.record('a');
    expect(actor).toBe('system:purge');
    expect(data).toMatchObject({
      cause: 'deleted',
      recoverableUntilMs: null,
      checks: { holds: 0, floorSeconds: 5, graceSeconds: 6 },
    });
    expect(decodeLedger(data.ledger)).toMatchObject([
      { atMs: 1_000, operation: 'create', digest: digests[0] },
      { atMs: 2_000, operation: 'patch', digest: digests[1] },
    ]);

    lives.copiesKeptUntilMs = 50_000;
    await lives.erase([two]);
    expect(lives.record('b').data).toMatchObject({ recoverableUntilMs: 50_000, checks: { graceSeconds: 7 } });

    const destroyKeys = lives.vault.destroyKeys.bind(lives.vault);
    lives.vault.destroyKeys = async (requests) =>
      (await destroyKeys(requests)).map((outcome) => ({ ...outcome, recoverableUntilMs: 60_000 }));
    await lives.erase([three]);
    expect(lives.record('c').data.recoverableUntilMs).toBe(60_000);
    lives.copiesKeptUntilMs = null;
    await lives.erase([four]);
    expect(lives.record('d').data.recoverableUntilMs).toBe(60_000);

    // Another copy may have been made while the erasure waited for the vault.
    let nowMs = 10_000;
    const { destroyKeys: destroyed } = lives.vault;
    lives.vault.destroyKeys = (requests) => destroyed(requests).finally(() => (nowMs += 5_000));
    await lives.executor.erase([await lives.life('e')], () => nowMs);
    expect(lives.record('e').data.recoverableUntilMs).toBe(65_000);
  });

  it('records that a life began with a recovery', async () => {
    const lives = new Lives();
    await lives.erase([await lives.life('a', 'deleted', [], { isRecovered: true })]);
    const writes = decodeLedger(lives.record('a').data.ledger);
    expect(writes.map(({ operation }) => operation)).toEqual(['recover', 'patch']);
  });

  it('does nothing if the vault finds that the key is not due any more', async () => {
    const lives = new Lives();
    const row = await lives.life('a');
    lives.vault.destroyKeys = async (requests) => requests.map(() => ({ kind: 'not-due' }));
    expect(await lives.erase([row])).toEqual({ purged: 0, refused: [], left: [0], atFault: [], fault: undefined });
    expect(lives.types('a')).toEqual(UNTOUCHED);
    expect(lives.erasedPositions).toEqual([]);
  });

  it.each([
    { end: 'deleted', endedAtMs: 3_500, dueAtMs: 9_500, byPolicyStart: false },
    { end: 'left', endedAtMs: 3_000, dueAtMs: 9_000, byPolicyStart: false },
    { end: 'expired', endedAtMs: 3_000, dueAtMs: 10_000, byPolicyStart: true },
  ] as const)(
    'of a life that is $end waits from the end on, not from its record, and reports rows with another end',
    async ({ end, endedAtMs, dueAtMs, byPolicyStart }) => {
      const lives = new Lives();
      lives.endOnRecordAtMs = 3_500;
      const row = { ...(await lives.life('a', end)), endedAtMs, byPolicyStart };
      expect(await lives.erase([row], dueAtMs - 1)).toMatchObject({ purged: 0, left: [0], atFault: [] });
      for (const other of [{ endedAtMs: endedAtMs - 1 }, { byPolicyStart: !byPolicyStart }]) {
        const { atFault, left, fault } = await lives.erase([{ ...row, ...other }], dueAtMs - 1);
        expect([atFault, left, fault?.message]).toEqual([
          [0],
          [],
          expect.stringContaining('between the read models and the event log'),
        ]);
      }
      expect(await lives.erase([row], dueAtMs)).toMatchObject({ purged: 1 });
    },
  );

  it('is reported to caches of documents, and is done only once the read models have it', async () => {
    const lives = new Lives();
    const rows = [await lives.life('a'), await lives.life('b')];
    await lives.executor.erase(rows, () => 10_000);
    expect(lives.erasedPositions.toSorted()).toEqual([1, 2, 4, 5]);
    expect(lives.projectedUpTo).toBe(lives.log.head());
  });

  it('records the count of a vault that counts its destructions before it records the purges', async () => {
    const lives = new Lives();
    const row = await lives.life('a');
    const destroyKeys = lives.vault.destroyKeys.bind(lives.vault);
    vi.spyOn(lives.vault, 'destroyKeys').mockImplementation(async (requests) =>
      (await destroyKeys(requests)).map((outcome) => ({ ...outcome, destructions: 7 })),
    );
    await lives.erase([row]);
    expect(lives.log.readAll(3, 10).map(({ type }) => type)).toEqual(['KeysDestroyed', 'ItemPurged']);
    expect(await lives.erase([row])).toMatchObject({ purged: 0 });
    expect(lives.log.head()).toBe(5);
  });

  it('of a life that ended with its container waits for no grace, and records where the life began', async () => {
    const lives = new Lives();
    await lives.life('a');
    await lives.life('b', 'live');
    lives.goneAtMs = 5_000;
    const left = { stream: lives.stream('b'), cause: 'container-deleted' } as const;
    await lives.executor.eraseOnDemand({ lives: [left], context: lives.context(10_000) }, () => 10_000);
    expect(lives.record('b').data).toMatchObject({
      cause: 'container-deleted',
      firstPosition: 4,
      checks: { graceSeconds: 0 },
    });
  });

  it('of a life that had ended before its container has that end as its cause, even if the read models do not have it yet', async () => {
    const lives = new Lives();
    await lives.life('a');
    lives.goneAtMs = 5_000;
    expect(await lives.eraseItems(['a'])).toMatchObject({ purged: 1 });
    expect(lives.record('a').data.cause).toBe('deleted');
    expect(lives.record('a').data).not.toHaveProperty('firstPosition');
  });

  it('leaves a life that was deleted with its partition key before its container, until that end is recorded', async () => {
    const lives = new Lives();
    await lives.life('a', 'live');
    lives.partitionKeyDeletes.push({ partitionKey: '["p"]', atMs: 4_000, position: 3, by: 'key:primary' });
    await lives.life('b', 'live');
    lives.goneAtMs = 5_000;
    expect(await lives.eraseItems(['a', 'b'])).toEqual({ purged: 1, refused: [], left: [0], atFault: [] });
    expect(lives.types('a')).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(lives.record('b').data.cause).toBe('container-deleted');
  });

  it.each([
    [4_000, []],
    [4_001, [0]],
  ])(
    'of lives that expire at 4000 ms, in a container deleted at %i, leaves those whose expiry must be recorded first: %j',
    async (goneAtMs, left) => {
      const lives = new Lives();
      await lives.life('a', 'live');
      const policy = { fromMs: 0, defaultTtl: 2, version: 1, setBy: 'key:primary', recordedAtMs: 0 };
      lives.timeline.push(policy);
      lives.goneAtMs = goneAtMs;
      expect(await lives.eraseItems(['a'])).toEqual({ purged: 1 - left.length, refused: [], left, atFault: [] });
    },
  );

  it('of a life under a hold or a floor is refused, with which it is and until when', async () => {
    const lives = new Lives();
    // Floors count from full seconds, as deadlines do.
    lives.writtenAfterMs = 400;
    const rows = [await lives.life('a'), await lives.life('b')];
    await lives.vault.setFloor('Co1', 'retention', 100);
    const scope = { kind: 'lives', streams: [lives.stream('b')] } as const;
    await lives.vault.placeHold({ holdId: 'h', containerRid: 'Co1', scope, placedAtMs: 0 });
    expect(await lives.erase(rows)).toMatchObject({
      purged: 0,
      left: [],
      refused: [
        { stream: lives.stream('a'), holds: [], floorUntilMs: 102_000, untilMs: 102_000 },
        // The end of a hold is unknown.
        { stream: lives.stream('b'), holds: ['h'], floorUntilMs: 102_000, untilMs: null },
      ],
    });
    for (const item of ['a', 'b']) expect(lives.types(item)).toEqual(UNTOUCHED);
  });

  it('of a life whose key the vault does not know is not recorded, and other lives are erased', async () => {
    const lives = new Lives();
    const rows = [await lives.life('a'), await lives.life('b')];
    lives.vault.contents.keys.delete(1);
    const { fault, ...erased } = await lives.erase(rows);
    expect(fault?.message).toBe(`the vault does not know the key of ${lives.stream('a')}`);
    expect(erased).toEqual({ purged: 1, refused: [], left: [], atFault: [0] });
    expect(lives.types('a')).toEqual(UNTOUCHED);
    expect(lives.types('b')).toEqual(['ItemDeleted', 'ItemPurged']);
  });

  it('of a life that the log has lost reports that, and other lives are erased', async () => {
    const lives = new Lives();
    const lost = { ...(await lives.life('a')), stream: lives.stream('lost') };
    const { fault, ...erased } = await lives.erase([lost, await lives.life('b')]);
    expect(fault?.message).toBe(`the event log has nothing of ${lost.stream} any more`);
    expect(erased).toEqual({ purged: 1, refused: [], left: [], atFault: [0] });
  });

  it('leaves a live or purged life as it is', async () => {
    const lives = new Lives();
    const rows = [await lives.life('a', 'live'), await lives.life('b')];
    await lives.erase(rows);
    const head = lives.log.head();
    expect(await lives.erase(rows)).toEqual({ purged: 0, refused: [], left: [0, 1], atFault: [] });
    expect(lives.log.head()).toBe(head);
    expect(lives.types('a')).toEqual(['ItemUpserted', 'ItemUpserted']);
    expect(lives.vault.findKey(1, lives.stream('a')).status).toBe('there');
  });

  it('on request ends a live item, in the name of who asked for it, even if the change feed would keep it', async () => {
    const lives = new Lives();
    await lives.life('a', 'live');
    await lives.life('b');
    await lives.vault.setFloor('Co1', 'change-feed', 1_000);
    const demanded = {
      lives: ['a', 'b'].map((item) => ({ stream: lives.stream(item), cause: 'erasure' as const })),
      context: lives.context(10_000),
    } as const;
    expect(await lives.executor.eraseOnDemand(demanded, () => 10_000)).toMatchObject({ purged: 2, refused: [] });
    expect([lives.types('a'), lives.types('b')]).toEqual([['ItemPurged'], ['ItemDeleted', 'ItemPurged']]);
    for (const item of ['a', 'b']) {
      const { data, actor } = lives.record(item);
      expect(actor).toBe('key:primary');
      expect(data).toMatchObject({ cause: 'erasure', checks: { graceSeconds: 0 } });
    }
  });

  it.each([
    { goneAtMs: 4_000, types: ['ItemPurged'], cause: 'container-deleted' },
    { goneAtMs: 4_001, types: ['ItemExpired', 'ItemPurged'], cause: 'erasure' },
  ])(
    'on request of a life that expires at 4000 ms, in a container deleted at $goneAtMs with the expiry unrecorded, records $types',
    async ({ goneAtMs, types, cause }) => {
      const lives = new Lives();
      await lives.life('a', 'live');
      lives.timeline.push({ fromMs: 0, defaultTtl: 2, version: 1, setBy: 'key:primary', recordedAtMs: 0 });
      lives.goneAtMs = goneAtMs;
      lives.underWay = [turn(), turn()];
      await lives.eraseOnDemand('a');
      expect(lives.underWay).toEqual([]);
      expect(lives.types('a')).toEqual(types);
      expect(lives.record('a').data.cause).toBe(cause);
      expect(lives.judgedUpToMs).toBe(10_000);
    },
  );

  it.each([
    [10_000, 'container-deleted'],
    [10_001, 'erasure'],
  ])(
    'on request at 10000 ms, of a live item in a container deleted at %i, has the cause %s',
    async (goneAtMs, cause) => {
      const lives = new Lives();
      await lives.life('a', 'live');
      lives.goneAtMs = goneAtMs;
      await lives.eraseOnDemand('a');
      expect(lives.record('a').data.cause).toBe(cause);
    },
  );

  it('on request of a life deleted with its partition key records that end, although another node has written to it in vain', async () => {
    const lives = new Lives();
    const { stream } = await lives.life('a', 'live');
    await lives.life('b');
    lives.partitionKeyDeletes.push({ partitionKey: '["p"]', atMs: 4_000, position: 3, by: 'key:secondary' });
    const { data } = lives.log.readLast(stream)!;
    const event = newEvent(lives.context(5_000), { type: 'ItemUpserted', data }, 1);
    await lives.log.append([{ stream, expectedRevision: 1, events: [event] }]);
    await lives.eraseOnDemand('a');
    expect(lives.types('a')).toEqual(['ItemDeleted', 'ItemPurged']);
    expect(lives.log.readStream(stream)[0]!.data).toMatchObject({
      withPartitionKey: { atMs: 4_000, by: 'key:secondary' },
    });
  });

  it('on request of a life that another node deletes meanwhile ends nothing, even if the container is deleted since', async () => {
    const lives = new Lives();
    const { stream, id, partitionKey } = await lives.life('a', 'live');
    const destroyKeys = lives.vault.destroyKeys.bind(lives.vault);
    lives.vault.destroyKeys = async (requests) => {
      const deleted = recorded(lives.context(4_000), { type: 'ItemDeleted', data: { id, partitionKey, ts: 2 } });
      await lives.log.append([{ stream, expectedRevision: 1, events: [deleted] }]);
      lives.goneAtMs = 5_000;
      return destroyKeys(requests);
    };
    await lives.eraseOnDemand('a');
    expect(lives.types('a')).toEqual(['ItemDeleted', 'ItemPurged']);
    expect(lives.record('a').data.cause).toBe('erasure');
  });

  it('that a crash interrupted is finished only for destroyed keys, and does not record what was checked', async () => {
    const lives = new Lives();
    const rows = [await lives.life('a'), await lives.life('b')];
    const request = { stream: lives.stream('a'), lastWriteTs: 2, lastEventAtMs: 3_000, nowMs: 4_000 };
    await lives.vault.destroyKeys([{ ...request, keyId: 1 }]);
    await lives.executor.finishErasures(rows, () => 10_000);
    await lives.executor.truncations.done();
    expect(lives.record('a').data.checks).toBe(undefined);
    expect(lives.types('b')).toEqual(UNTOUCHED);
    expect(lives.vault.findKey(2, lives.stream('b')).status).toBe('there');
  });

  it.each([
    {
      what: 'whose events can not be read',
      fail: (log: MemoryEventLog, stream: string) => {
        const readLast = log.readLast.bind(log);
        vi.spyOn(log, 'readLast').mockImplementation((wanted) => {
          if (wanted === stream) throw new UnreadableEvent(`${stream} is damaged`);
          return readLast(wanted);
        });
      },
    },
    {
      what: 'whose record is too large for the log',
      fail: (log: MemoryEventLog, stream: string) => {
        const append = log.append.bind(log);
        vi.spyOn(log, 'append').mockImplementation((appends) => {
          if (appends[0]!.stream === stream) throw new Refusal('too-large', 'MaxAppendSize');
          return append(appends);
        });
      },
    },
  ])('that a crash interrupted is finished although there is one life $what, which is reported', async ({ fail }) => {
    const lives = new Lives();
    const rows = [await lives.life('a'), await lives.life('b')];
    for (const [index, { stream }] of rows.entries()) {
      await lives.vault.destroyKeys([{ keyId: index + 1, stream, lastWriteTs: 2, lastEventAtMs: 3_000, nowMs: 4_000 }]);
    }
    fail(lives.log, rows[0]!.stream);
    const fault = await lives.executor.finishErasures(rows, () => 10_000);
    expect(fault?.message).toContain(rows[0]!.stream);
    await lives.executor.truncations.done();
    expect(lives.types('b')).toEqual(['ItemDeleted', 'ItemPurged']);
  });

  it('whose record may or may not have reached the log is continued if the log has it', async () => {
    const lives = new Lives();
    const append = lives.log.append.bind(lives.log);
    const rows = [await lives.life('a'), await lives.life('b')];
    for (const [index, failing] of [() => append, () => async () => {}].entries()) {
      lives.log.append = async (...args) => {
        await failing()(...args);
        throw new Error('the log is away');
      };
      await expect(lives.erase([rows[index]!])).rejects.toThrow('the log is away');
    }
    lives.log.append = append;
    expect([lives.types('a'), lives.types('b')]).toEqual([[...UNTOUCHED, 'ItemPurged'], UNTOUCHED]);
    for (const ends of [UNTOUCHED, ['ItemDeleted', 'ItemPurged']]) {
      expect(await lives.executor.truncations.finishInDoubt(10_000)).toBe(undefined);
      expect([lives.types('a'), lives.types('b')]).toEqual([['ItemDeleted', 'ItemPurged'], ends]);
      await lives.erase([rows[1]!]);
    }
  });

  it('whose record reaches the log late is continued by the next search after that, and once', async () => {
    const lives = new Lives();
    const append = lives.log.append.bind(lives.log);
    const row = await lives.life('a');
    let late: () => unknown = () => {};
    lives.log.append = (...args) => {
      late = () => append(...args);
      return Promise.reject(new Error('the log is away'));
    };
    await expect(lives.erase([row])).rejects.toThrow('the log is away');
    lives.log.append = append;
    const { truncations } = lives.executor;
    expect(await truncations.finishInDoubt(10_000)).toBe(undefined);
    expect(lives.types('a')).toEqual(UNTOUCHED);
    await late();
    expect(await truncations.finishInDoubt(10_000)).toBe(undefined);
    expect(lives.types('a')).toEqual(['ItemDeleted', 'ItemPurged']);
    lives.log.readLast = () => {
      throw new Error('it is looked for again');
    };
    expect(await truncations.finishInDoubt(10_000)).toBe(undefined);
  });

  it('removes the writes only once the read models have its record, also when that was done in vain before', async () => {
    const lives = new Lives();
    const row = await lives.life('a');
    const truncate = lives.log.truncateStream.bind(lives.log);
    const shownUpTo: number[] = [];
    lives.log.truncateStream = async (...args) => {
      shownUpTo.push(lives.projectedUpTo);
      if (shownUpTo.length === 1) throw new Error('the disk is full');
      return truncate(...args);
    };
    await expect(lives.erase([row])).rejects.toThrow('the disk is full');
    lives.projectedUpTo = 0;
    expect(await lives.executor.truncations.finishLife(row.stream, 10_000)).toBe(true);
    const { position } = lives.log.readLast(row.stream)!;
    expect(shownUpTo).toEqual([position, position]);
  });

  it('releases the values of unique keys that the life holds, and no others', async () => {
    const lives = new Lives();
    const [own, others] = ['own', 'others'].map((hash) => uniqueKeyStream('Co1', hash));
    const row = await lives.life('a', 'deleted', [own!, others!]);
    const take = (stream: string, holder: string) =>
      lives.log.append([
        {
          stream,
          expectedRevision: 'no-stream',
          events: [newEvent(lives.context(1_000), { type: 'UniqueKeyTaken', data: { holder } }, 1)],
        },
      ]);
    await take(own!, row.stream);
    await take(others!, lives.stream('b'));
    const truncate = lives.log.truncateStream;
    lives.log.truncateStream = (stream, before) => {
      // Only the writes tell which values to release, so this must be done before they are truncated.
      if (stream === row.stream) expect(lives.log.readLast(own!)!.type).toBe('UniqueKeyReleased');
      return truncate(stream, before);
    };
    await lives.erase([row]);
    expect(lives.log.readStream(own!).map(({ type }) => type)).toEqual(['UniqueKeyReleased']);
    expect(lives.log.readStream(others!).map(({ type }) => type)).toEqual(['UniqueKeyTaken']);
  });

  it('in progress can be waited for: for its record, and for its truncations', async () => {
    const lives = new Lives();
    const row = await lives.life('a');
    const destroyKeys = lives.vault.destroyKeys.bind(lives.vault);
    lives.vault.destroyKeys = (requests) => turn().then(() => destroyKeys(requests));
    const erasing = lives.executor.erase([row], () => 10_000);
    await lives.executor.recorded();
    expect(lives.types('a')).toEqual([...UNTOUCHED, 'ItemPurged']);
    await lives.executor.truncations.settled();
    expect(lives.types('a')).toEqual(['ItemDeleted', 'ItemPurged']);
    await erasing;
  });

  it('whose truncation fails reports that once, to whoever waits for the truncation', async () => {
    const lives = new Lives();
    const row = await lives.life('a');
    lives.log.truncateStream = () => Promise.reject(new Error('the disk is full'));
    await expect(lives.erase([row])).rejects.toThrow('the disk is full');
    await lives.executor.truncations.done();
    expect(lives.record('a').data.cause).toBe('deleted');
  });
});
