import streams from '@eventstore/db-client/generated/streams_pb.js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { appendNext, handleCommand } from '@epitaph/core/handle-command.ts';
import { DecidedTooLate } from '@epitaph/core/log/decided-too-late.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { turn } from '@epitaph/core/turn.ts';
import { rejectionOf } from '@epitaph/core/testing/test-framework.ts';
import type { EventStoreEventLog } from '@epitaph/storage/eventstoredb/event-store-event-log.ts';
import { BatchAppender } from '@epitaph/storage/eventstoredb/batch-appender.ts';
import type { Connection } from '@epitaph/storage/eventstoredb/connection.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { StorageUnavailable } from '@epitaph/core/storage-unavailable.ts';
import { pause } from '@epitaph/storage/patience.ts';
import { EventStoreDouble, type DoubleOptions } from './double.ts';
import { DoubleLog } from './double-log.ts';
import { Proxy } from './proxy.ts';
import { whyWithout } from '../support/programs.ts';
import { selfSigned } from '../support/self-signed.ts';

/** Short, for tests that wait until it has passed. */
const IMPATIENT_MS = 300;
/** Long enough to reconnect to a server that is back. */
const RECONNECTED_MS = 2_000;

let double: EventStoreDouble;
let proxy: Proxy;
const opened: EventStoreEventLog[] = [];

beforeEach(() => begin());
afterEach(async () => {
  double.onAppend = undefined;
  proxy.mend();
  for (const log of opened.splice(0)) await log.close();
  await proxy.close();
  double.stop();
});

async function begin(options: DoubleOptions = {}): Promise<void> {
  double = await EventStoreDouble.start(options);
  proxy = await Proxy.to(double.port);
}

async function open(
  options: { readonly patienceMs?: number; readonly query?: string } = {},
): Promise<EventStoreEventLog> {
  const { patienceMs, query = '' } = options;
  const log = await openEventStoreLog({
    connectionString: `${proxy.connectionString}${query}`,
    ...(patienceMs === undefined ? {} : { patienceMs }),
  });
  opened.push(log);
  return log;
}

describe('a server that comes back with another log, or an older copy', () => {
  test('is not read to its end and acknowledges nothing, until the right one is back', async () => {
    const log = await open();
    for (const stream of ['item-a.a.0', 'item-a.b.0']) {
      await log.append([{ stream, expectedRevision: 'no-stream', events: [anEvent()] }]);
    }
    const { log: whole } = double;
    double.stop();
    double.log = new DoubleLog();
    await double.start();
    const append = () => log.append([{ stream: 'item-a.c.0', expectedRevision: 'no-stream', events: [anEvent()] }]);
    for (const call of [append, () => log.head()]) {
      const error = await rejectionOf(call());
      expect(error).toBeInstanceOf(StorageUnavailable);
      expect(error).toMatchObject({
        message: expect.stringMatching(/another log, or an older copy/),
        isForOperator: true,
      });
    }
    double.stop();
    double.log = whole;
    await double.start();
    expect((await append()).kind).toBe('appended');
    expect(await log.head()).toBe(log.knownHead);
  });
});

describe('a log that others write to, too', () => {
  test('knows the position of events that it has read, so that a writer whose append conflicts can go on from there', async () => {
    const [here, there] = [await open(), await open()];
    const stream = 'item-a.a.0';
    for (const read of [() => here.readLast(stream), () => here.readStream(stream)]) {
      const expectedRevision = (await there.readLast(stream))?.revision ?? 'no-stream';
      const written = await there.append([{ stream, expectedRevision, events: [anEvent()] }]);
      expect(written.kind).toBe('appended');
      expect(here.knownHead).toBeLessThan(there.knownHead);
      await read();
      expect(here.knownHead).toBe(there.knownHead);
    }
  });
});

describe('a server that comes back with a log that is longer', () => {
  const append = (log: EventStoreEventLog, stream: string) =>
    log.append([{ stream, expectedRevision: 'no-stream', events: [anEvent()] }]);

  test('and another one acknowledges nothing, until the right one is back', async () => {
    const log = await open({ patienceMs: RECONNECTED_MS });
    await log.id();
    await append(log, 'item-a.a.0');
    const { log: whole } = double;
    double.stop();
    double.log = new DoubleLog();
    await double.start();
    const other = await open();
    for (let life = 0; life < 10; life += 1) await append(other, `item-b.a.${life}`);
    const error = await rejectionOf(append(log, 'item-a.b.0'));
    expect(error).toBeInstanceOf(StorageUnavailable);
    expect(error).toMatchObject({
      message: expect.stringMatching(/is not the one with which this store was started/),
      isForOperator: true,
    });
    expect(await other.readLast('item-a.b.0')).toBe(undefined);
    double.stop();
    double.log = whole;
    await double.start();
    expect((await append(log, 'item-a.b.0')).kind).toBe('appended');
  });

  test('and belongs to other owners since a restore acknowledges nothing', async () => {
    const log = await open({ patienceMs: RECONNECTED_MS });
    await log.id();
    expect(await log.claim({ id: 'old', name: 'old' }, false)).toMatchObject({ id: 'old' });
    await append(log, 'item-a.a.0');
    const restored = await open();
    expect(await restored.claim({ id: 'new', name: 'new' }, true)).toMatchObject({ id: 'new' });
    proxy.cut();
    expect(await rejectionOf(append(log, 'item-a.b.0'))).toMatchObject({
      message: expect.stringMatching(/given it to other keys/),
    });
    expect((await append(restored, 'item-a.b.0')).kind).toBe('appended');
  });
});

describe('an append with a deadline', () => {
  const stream = 'item-a.a.0';
  const appends = () => [{ stream, expectedRevision: 'no-stream' as const, events: [anEvent()] }];

  test('is not carried out if it arrives after its deadline', async () => {
    const log = await open();
    proxy.block();
    const late = rejectionOf(log.append(appends(), { notAfterMs: Date.now() + 200 }));
    await pause(500);
    proxy.mend();
    expect(await late).toBeInstanceOf(DecidedTooLate);
    expect(await log.readLast(stream)).toBe(undefined);
    expect((await log.append(appends(), { notAfterMs: Date.now() + 20_000 })).kind).toBe('appended');
  });

  test('is recognized as done if it arrived in time and its answer was lost', async () => {
    const log = await open();
    double.onAppend = async (moment) => {
      if (moment === 'before') return;
      double.onAppend = undefined;
      await pause(500);
      proxy.cut();
    };
    const appended = await log.append(appends(), { notAfterMs: Date.now() + 200 });
    expect(appended).toMatchObject({ kind: 'appended' });
    expect((await log.readStream(stream)).length).toBe(1);
  });
});

test('an append whose events are truncated before it is answered is not reported as a fault', async () => {
  const [log, other] = [await open(), await open()];
  const stream = 'item-a.a.0';
  double.onAppend = async (moment) => {
    if (moment === 'before') return;
    double.onAppend = undefined;
    await other.append([{ stream, expectedRevision: 1, events: [anEvent()] }]);
    await other.truncateStream(stream, 2);
  };
  const append = log.append([{ stream, expectedRevision: 'no-stream', events: [anEvent(), anEvent()] }]);
  expect(await rejectionOf(append)).toBeInstanceOf(StorageUnavailable);
});

describe('an append whose connection is cut', () => {
  test.each(['before', 'after'] as const)('%s the server has written it is carried out once', async (moment) => {
    const log = await open();
    let cuts = 0;
    double.onAppend = (at) => {
      if (at !== moment || cuts > 0) return;
      cuts += 1;
      proxy.cut();
    };
    const events = [anEvent(), anEvent()];
    const result = await log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events }]);
    expect(cuts).toBe(1);
    const read = await log.readStream('item-a.b.0');
    expect(read.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    expect(result).toEqual({ kind: 'appended', position: read[1]!.position, firstPositions: [read[0]!.position] });
  });

  test('after it was written, and followed by another, is recognized by its ids and not reported as a conflict', async () => {
    const log = await open();
    let cuts = 0;
    double.onAppend = (at) => {
      if (at !== 'after' || cuts > 0) return;
      cuts += 1;
      double.onAppend = undefined;
      proxy.cut();
      double.log.append('item-a.b.0', 0, [wireEvent()]);
    };
    const event = anEvent();
    const result = await log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events: [event] }]);
    expect(result.kind).toBe('appended');
    expect((await log.readStream('item-a.b.0'))[0]!.id).toBe(event.id);
  });

  test('is one of many: each acknowledged append is in the log once, in its place', async () => {
    const log = await open();
    let answered = 0;
    let appends = 0;
    double.onAppend = () => {
      appends += 1;
      // An odd number, so that the cut comes as often before the write as after it.
      if (appends % 41 === 0) proxy.cut();
    };
    await Promise.all(
      Array.from({ length: 12 }, async (_, writer) => {
        for (let revision = 0; revision < 15; revision++) {
          const expectedRevision = revision === 0 ? 'no-stream' : revision - 1;
          const append = { stream: `item-a.${writer}.0`, expectedRevision, events: [anEvent()] } as const;
          const result = await log.append([append]);
          expect(result.kind).toBe('appended');
          const [first] = (result as { firstPositions: readonly number[] }).firstPositions;
          expect(await log.readAt(first!)).toMatchObject({ id: append.events[0].id, revision });
          answered += 1;
        }
      }),
    );
    expect(answered).toBe(180);
    const all = await log.readAll(0, 1_000);
    expect(all.length).toBe(180);
    expect(new Set(all.map(({ id }) => id)).size).toBe(180);
  });
});

describe('an append to a stream that another program has deleted', () => {
  const stream = 'item-a.b.0';
  const toNone = (log: EventStoreEventLog, notAfterMs?: number) =>
    log.append([{ stream, expectedRevision: 'no-stream', events: [anEvent(), anEvent()] }], { notAfterMs });

  test.each([
    ['was lost', 0, undefined],
    ['was lost until it would have come too late', 500, 200],
  ])('is hidden, also where its answer %s', async (_, awayMs, notAfterMs) => {
    const log = await open();
    await appendSome(log, stream, 2);
    double.log.deleteStream(stream);
    double.onAppend = async (moment) => {
      if (moment === 'before') return;
      double.onAppend = undefined;
      await pause(awayMs);
      proxy.cut();
    };
    const error = await rejectionOf(toNone(log, notAfterMs && Date.now() + notAfterMs));
    expect(error).toMatchObject({ name: 'UnreadableEvent', message: expect.stringContaining('with 2 events') });
    expect(double.log.readStream(stream)).toEqual([]);
    expect(await log.readAll(0, 10)).toEqual([]);
    expect(await toNone(log)).toMatchObject({ kind: 'conflict', actualRevision: 3 });
  });

  test.each(['tombstone', 'deleteStream'] as const)(
    'is reported if the stream is deleted before the append was read back (%s)',
    async (how) => {
      const log = await open();
      double.onAppend = (moment) => {
        if (moment === 'after') double.log[how](stream);
      };
      expect(await rejectionOf(toNone(log))).toMatchObject({
        name: 'UnreadableEvent',
        message: expect.stringContaining(`${stream} has been deleted from the event store by another program`),
      });
    },
  );
});

test('a stream that another program has deleted for good is empty, refuses appends, and does not affect other streams', async () => {
  const log = await open();
  const [stream, other] = ['item-a.b.0', 'item-a.c.0'];
  const deleted = await appendSome(log, stream, 3);
  const kept = await appendSome(log, other, 2);
  double.log.tombstone(stream);
  expect(await log.readStream(stream)).toEqual([]);
  expect(await log.readLast(stream)).toBe(undefined);
  expect(await log.readAt(deleted[0]!.position)).toBe(undefined);
  expect(await log.readBefore(deleted[1]!)).toBe(undefined);
  expect(await log.hasLostEnd(stream)).toBe(true);
  expect(await log.hasLostEnd(other)).toBe(false);
  expect((await log.readAll(0, 10)).map(({ id }) => id)).toEqual(kept.map(({ id }) => id));
  for (const expectedRevision of ['no-stream', 2] as const) {
    const append = log.append([{ stream, expectedRevision, events: [anEvent()] }]);
    expect(await rejectionOf(append)).toMatchObject({
      name: 'UnreadableEvent',
      message: expect.stringContaining(`${stream} has been deleted from the event store by another program`),
    });
  }
  // The first log knows the end of the stream; the second has to ask for it.
  await log.truncateStream(stream, 2);
  await (await open()).truncateStream(stream, 2);
  expect((await log.append([{ stream: other, expectedRevision: 1, events: [anEvent()] }])).kind).toBe('appended');
});

describe('while the server is gone', () => {
  test('every call fails with a fault that says so, and calls work again by themselves once it is back', async () => {
    const log = await open({ patienceMs: IMPATIENT_MS });
    const [event] = await appendSome(log, 'item-a.b.0', 2);
    proxy.refuse();
    const calls: (() => Promise<unknown>)[] = [
      () => log.append([{ stream: 'item-a.c.0', expectedRevision: 'no-stream', events: [anEvent()] }]),
      () => log.readStream('item-a.b.0'),
      () => log.readLast('item-a.b.0'),
      () => log.readAt(event!.position),
      () => log.readAll(0, 10),
      () => log.head(),
      () => log.truncateStream('item-a.b.0', 1),
    ];
    for (const call of calls) expect(await rejectionOf(call())).toMatchObject({ name: 'StorageUnavailable' });
    proxy.mend();
    for (const call of calls) await retried(call);
    expect((await log.readStream('item-a.c.0')).length).toBe(1);
  });

  test('a call that began before is answered if the server is back in time', async () => {
    const log = await open();
    double.stop();
    const appended = log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events: [anEvent()] }]);
    const read = log.readLast('item-a.b.0');
    await new Promise((resolve) => {
      setTimeout(resolve, 400);
    });
    await double.start();
    expect((await appended).kind).toBe('appended');
    await read;
  });

  test('a server that hangs is given up on within the deadline', async () => {
    const log = await open({ patienceMs: IMPATIENT_MS, query: '&defaultDeadline=300' });
    proxy.block();
    const append = log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events: [anEvent()] }]);
    expect(await rejectionOf(append)).toMatchObject({ name: 'StorageUnavailable' });
    expect(await rejectionOf(log.head())).toMatchObject({ name: 'StorageUnavailable' });
    proxy.mend();
    proxy.cut();
    await retried(() => log.head());
  });

  test('a server that is not ready is asked again, and one that is not the leader is left for the leader', async () => {
    const log = await open();
    double.notReadyFor = 3;
    await appendSome(log, 'item-a.b.0', 1);
    const other = await EventStoreDouble.start();
    try {
      double.leader = { host: '127.0.0.1', port: other.port };
      expect(await log.readStream('item-a.b.0')).toEqual([]);
      await appendSome(log, 'item-a.b.0', 1);
      expect(other.log.readStream('item-a.b.0')!.length).toBe(1);
    } finally {
      other.stop();
    }
  });

  test('closing does not wait for the server', async () => {
    const log = await open({ patienceMs: IMPATIENT_MS });
    log.subscribe(0, { onEvents: async () => {} });
    proxy.refuse();
    await log.close();
  });
});

describe('a subscription', () => {
  test('that drops again and again misses nothing, repeats nothing, and keeps the order', async () => {
    const log = await open();
    const seen: RecordedEvent[] = [];
    const subscription = log.subscribe(0, {
      onEvents: async (events) => {
        seen.push(...events);
      },
    });
    for (let round = 0; round < 12; round++) {
      const appending = appendSome(log, `item-a.${round}.0`, 10);
      if (round % 3 === 0) double.dropSubscriptions();
      if (round % 3 === 1) proxy.cut();
      await appending;
      if (round === 6) {
        double.stop();
        await double.start();
      }
    }
    await until(() => seen.length >= 120);
    await subscription.unsubscribe();
    const all = await log.readAll(0, 1_000, { withBodies: false });
    expect(seen).toEqual(all);
    expect(all.length).toBe(120);
  });

  test('outlives an outage that is longer than any call waits', async () => {
    const log = await open({ patienceMs: IMPATIENT_MS });
    const seen: RecordedEvent[] = [];
    const errors: unknown[] = [];
    const subscription = log.subscribe(0, {
      onEvents: async (events) => {
        seen.push(...events);
      },
      onError: (error) => errors.push(error),
    });
    await appendSome(log, 'item-a.b.0', 1);
    await until(() => seen.length === 1);
    proxy.refuse();
    await rejectionOf(log.head());
    await rejectionOf(log.head());
    proxy.mend();
    await retried(() => appendSome(log, 'item-a.c.0', 1));
    await until(() => seen.length === 2);
    await subscription.unsubscribe();
    expect(errors).toEqual([]);
  });

  test('continues from its position, even if a scavenge has removed the event there', async () => {
    const log = await open();
    const [first] = await appendSome(log, 'item-a.b.0', 3);
    await appendSome(log, 'item-a.c.0', 2);
    await log.truncateStream('item-a.b.0', 2);
    double.log.scavenge('one');
    const seen: RecordedEvent[] = [];
    const subscription = log.subscribe(first!.position, {
      onEvents: async (events) => {
        seen.push(...events);
      },
    });
    await until(() => seen.length >= 3);
    await subscription.unsubscribe();
    expect(seen.map(({ stream, revision }) => [stream, revision])).toEqual([
      ['item-a.b.0', 2],
      ['item-a.c.0', 0],
      ['item-a.c.0', 1],
    ]);
    expect((await log.readAll(first!.position, 2)).length).toBe(2);
  });

  test('with a busy listener does not make the server send everything', async () => {
    const log = await open();
    const gate = Promise.withResolvers<void>();
    let delivered = 0;
    const subscription = log.subscribe(await log.head(), {
      onEvents: async (events) => {
        delivered += events.length;
        await gate.promise;
      },
    });
    for (let n = 0; n < 60; n++) await appendSome(log, `item-a.${n}.0`, 100);
    expect(delivered).toBeLessThan(1_000);
    gate.resolve();
    await until(() => delivered === 6_000);
    await subscription.unsubscribe();
  }, 60_000);
});

describe('the log on the server', () => {
  test('has a constant id that tells it from other logs', async () => {
    const log = await open();
    const id = await log.id();
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(await (await open()).id()).toBe(id);
    expect(await log.head()).toBe(0);
  });

  test('refuses an event larger than the server allows, and names the setting', async () => {
    double.stop();
    await proxy.close();
    await begin({ maxAppendBytes: 1_048_576 });
    const log = await open();
    const event = { ...anEvent(), body: new Uint8Array(1_100_000) };
    expect(
      await rejectionOf(log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events: [event] }])),
    ).toMatchObject({
      name: 'Refusal',
      code: 'too-large',
      message: expect.stringContaining('MaxAppendSize is 1048576'),
    });
  });

  test('is not sent an append that no server accepts, because the server would end the whole call with everything in it', async () => {
    const log = await open();
    const event = { ...anEvent(), body: new Uint8Array(18 * 1024 * 1024) };
    const large = log.append([{ stream: 'item-a.b.0', expectedRevision: 'no-stream', events: [event] }]);
    expect(await rejectionOf(large)).toMatchObject({ name: 'Refusal', code: 'too-large' });
  });

  test('is sent as many waiting appends as fit once a large one is answered', async () => {
    const answers: (() => void)[] = [];
    // A stand-in that only keeps appends waiting. With a real server that takes tens of megabytes.
    const connection = { patiently: () => new Promise<void>((resolve) => answers.push(resolve)) };
    const appender = new BatchAppender(connection as unknown as Connection, () => Promise.resolve());
    const append = (megabytes: number) => {
      const event = new streams.BatchAppendReq.ProposedMessage();
      event.setData(new Uint8Array(megabytes * 1024 * 1024));
      return appender.append('item-a.b.0', 'no-stream', [event]);
    };
    const appends = [append(15), append(15), ...Array.from({ length: 6 }, () => append(3))];
    await turn();
    expect(answers).toHaveLength(2);
    answers[0]!();
    await turn();
    expect(answers).toHaveLength(7);
    for (const answer of answers) answer();
    await turn();
    expect(answers).toHaveLength(8);
    answers[7]!();
    await Promise.all(appends);
  });

  test("leaves other programs' events in the same server out", async () => {
    const log = await open();
    double.log.append('orders-1', -1, [wireEvent(), wireEvent()]);
    await appendSome(log, 'item-a.b.0', 1);
    double.log.append('orders-1', 1, [wireEvent()]);
    expect((await log.readAll(0, 10)).map(({ stream }) => stream)).toEqual(['item-a.b.0']);
    expect(await log.readStream('orders-1')).toEqual([]);
  });

  test('returns its own last event of a stream to which another program has written, and says why decisions on it are refused', async () => {
    const log = await open();
    const [, second] = await appendSome(log, 'item-a.b.0', 2);
    for (let count = 0; count < 100; count++) double.log.append('item-a.b.0', 1 + count, [wireEvent()]);
    const { body: _, ...facts } = second!;
    expect(await log.readLast('item-a.b.0')).toEqual({ ...facts, othersBehind: true });
    const command = handleCommand(log, {
      stream: 'item-a.b.0',
      load: 'last',
      fold: () => undefined,
      decide: () => undefined,
      record: () => ({ events: [anEvent()] }),
    });
    expect(await rejectionOf(command)).toMatchObject({
      name: 'UnreadableEvent',
      message: expect.stringContaining('item-a.b.0 ends at revision 101'),
    });
    // Appending one fact after another, without a decision, still works.
    expect(await appendNext(log, 'item-a.b.0', () => anEvent())).toBeGreaterThan(second!.position);
    expect(await log.readLast('item-a.b.0')).toMatchObject({ revision: 102 });
    double.log.append('item-a.c.0', -1, [wireEvent()]);
    await appendNext(log, 'item-a.c.0', () => anEvent());
    expect(await log.readLast('item-a.c.0')).toMatchObject({ revision: 1 });
  });

  test('ignores metadata of a stream that is no JSON object, as the server does', async () => {
    const log = await open();
    await appendSome(log, 'item-a.b.0', 2);
    const there = await log.readAll(0, 10);
    for (const [index, text] of ['{"$tb"', 'null', '7'].entries()) {
      const said = { ...wireEvent(), type: '$metadata', data: Buffer.from(text) };
      double.log.append('$$item-a.b.0', index - 1, [said]);
      expect(await log.readAll(0, 10)).toEqual(there);
    }
    await log.truncateStream('item-a.b.0', 1);
    expect(await log.readAll(0, 10)).toEqual(there.slice(1));
  });

  test('delivers an event whose data can’t be read, and fails only when that data is used', async () => {
    const log = await open();
    await appendSome(log, 'item-a.b.0', 1);
    const live: RecordedEvent[] = [];
    let isCaughtUp = false;
    log.subscribe(0, {
      onEvents: async (events) => void live.push(...events),
      onCaughtUp: () => (isCaughtUp = true),
    });
    await until(() => isCaughtUp);
    const metadata = { version: 1, occurredAtMs: 1, actor: 'system:test', $correlationId: 'a', $causationId: 'a' };
    // As if somebody had edited the server's files.
    const damaged = { ...wireEvent(), metadata: Buffer.from(JSON.stringify(metadata)), data: Buffer.from('{"cut') };
    double.log.append('item-a.b.0', 0, [damaged]);
    await appendSome(log, 'item-a.c.0', 1);
    await until(() => live.length === 3);
    const read = await log.readAll(0, 10);
    for (const events of [live, read]) {
      expect(events.map(({ type }) => type)).toEqual(['Tested', 'Ordered', 'Tested']);
      expect(() => events[1]!.data).toThrow(/^Ordered at \d+ is damaged: .*Restore the event log/);
    }
  });

  test('belongs to one of many who claim it at the same time, until it is taken over', async () => {
    const log = await open();
    const owners = Array.from({ length: 8 }, (_, number) => ({ id: `owner ${number}`, name: `place ${number}` }));
    const found = await Promise.all(owners.map((owner) => log.claim(owner, false)));
    expect(new Set(found.map(({ id }) => id)).size).toBe(1);
    const other = owners.find(({ id }) => id !== found[0]!.id)!;
    expect(await log.claim(other, true)).toEqual(other);
    expect(await log.claim(found[0]!, false)).toEqual(other);
    expect(await log.id()).toBe(await (await open()).id());
  });

  test('can be scavenged; then truncated events are gone from the server', async () => {
    const log = await open();
    await appendSome(log, 'item-a.b.0', 3);
    await log.truncateStream('item-a.b.0', 2);
    const held = () => double.log.readForwards(undefined).filter(({ stream }) => stream === 'item-a.b.0').length;
    expect(held()).toBe(3);
    const id = await log.scavenging.start();
    expect(id).toBe(double.scavenges[0]);
    expect(await log.scavenging.find(id)).toEqual({ id, state: 'done' });
    expect(await log.scavenging.find('never-begun')).toEqual({ id: 'never-begun', state: 'unknown' });
    expect(held()).toBe(1);
    const next = await log.append([{ stream: 'item-a.b.0', expectedRevision: 2, events: [anEvent()] }]);
    expect(next.kind).toBe('appended');
  });
});

describe('a server that can’t be used', () => {
  test.each([
    ['esdb://nobody.invalid:2113?tls=false', /^--event-store names nobody\.invalid:2113.*can't be reached/],
    ['esdb://127.0.0.1:1?tls=false', /^--event-store names 127\.0\.0\.1:1.*can't be reached/],
  ])('%s is reported in one line as not reachable', async (connectionString, message) => {
    const error = (await rejectionOf(openEventStoreLog({ connectionString, patienceMs: IMPATIENT_MS }))) as Error;
    expect(error).toMatchObject({ name: 'StorageUnavailable', message: expect.stringMatching(message) });
    expect(error).toMatchObject({ isForOperator: false });
    expect(error.message).not.toContain('\n');
  });

  test.each([
    ['http://127.0.0.1:2113', /must begin with esdb:\/\//],
    ['esdb://127.0.0.1:2113?tsl=false', /no option "tsl"; the options are tls/],
    ['esdb://127.0.0.1:2113?tls=maybe', /tls must be true or false/],
    ['esdb://127.0.0.1:2113?nodePreference=follower', /nodePreference must be leader/],
    ['esdb://127.0.0.1:2113?tlsCAFile=/does/not/exist', /tlsCAFile can't be read/],
    ['esdb://someone@127.0.0.1:2113', /no user:password/],
    ['esdb+discover://one,two', /names 2 hosts/],
    ['esdb://a:99999', /"a:99999" is not host:port/],
  ])('%s is refused in one line', async (connectionString, message) => {
    const error = (await rejectionOf(openEventStoreLog({ connectionString, patienceMs: IMPATIENT_MS }))) as Error;
    expect(error).toMatchObject({ name: 'BadConnectionString', message: expect.stringMatching(message) });
    expect(error.message).not.toContain('\n');
  });

  const skipped = whyWithout('openssl');
  test.skipIf(skipped)(`refuses a wrong password; the right one is accepted, over TLS${skipped}`, async () => {
    double.stop();
    await proxy.close();
    const { key, certificate, file, remove } = selfSigned();
    try {
      await begin({ credentials: { user: 'admin', password: 'right@place' }, tls: { key, certificate } });
      const through = (password: string) =>
        `esdb://admin:${encodeURIComponent(password)}@localhost:${proxy.port}?tlsCAFile=${encodeURIComponent(file)}`;
      const refused = await rejectionOf(openEventStoreLog({ connectionString: through('wrong-one') }));
      expect(refused).toMatchObject({
        name: 'BadConnectionString',
        message: expect.stringContaining('refuses the credentials'),
      });
      expect((refused as Error).message).not.toContain('wrong-one');
      const log = await openEventStoreLog({ connectionString: through('right@place') });
      opened.push(log);
      await appendSome(log, 'item-a.b.0', 1);
      for (const [connectionString, words] of [
        [
          `esdb://localhost:${proxy.port}`,
          /certificate is not trusted \(self-signed certificate.*name the file of its authority/,
        ],
        [`esdb://127.0.0.1:${proxy.port}?tlsCAFile=${encodeURIComponent(file)}`, /certificate is for another name/],
        [`esdb://localhost:${proxy.port}?tls=false`, /uses TLS, but tls=false says/],
        [`esdb+discover://localhost:${proxy.port}?tls=false`, /uses TLS, but tls=false says/],
      ] as const) {
        const error = await rejectionOf(openEventStoreLog({ connectionString, patienceMs: IMPATIENT_MS }));
        expect(error).toMatchObject({ name: 'BadConnectionString', message: expect.stringMatching(words) });
      }
    } finally {
      remove();
    }
  });

  test('without TLS is reported if the connection string asks for TLS, unless another node may still be reached', async () => {
    const opening = (hosts: string) =>
      rejectionOf(openEventStoreLog({ connectionString: `esdb://${hosts}`, patienceMs: IMPATIENT_MS }));
    const refused = await opening(`127.0.0.1:${double.port}`);
    expect(refused).toMatchObject({
      name: 'BadConnectionString',
      message: expect.stringMatching(/does not use TLS: .*\?tls=false to the connection string$/),
    });
    expect(await opening(`127.0.0.1:1,127.0.0.1:${double.port}`)).toMatchObject({ name: 'StorageUnavailable' });
  });

  test('any server of a cluster leads to the leader', async () => {
    const log = await openEventStoreLog({
      connectionString: `kurrentdb+discover://127.0.0.1:${double.port}?tls=false`,
    });
    opened.push(log);
    await appendSome(log, 'item-a.b.0', 1);
    const both = `kurrentdb://127.0.0.1:1,127.0.0.1:${double.port}?tls=false`;
    const second = await openEventStoreLog({ connectionString: both });
    opened.push(second);
    expect((await second.readStream('item-a.b.0')).length).toBe(1);
  });
});

let counter = 0;

function anEvent(): NewEvent {
  counter += 1;
  return {
    id: crypto.randomUUID(),
    type: 'Tested',
    version: 1,
    data: { number: counter },
    body: new Uint8Array([counter % 256]),
    occurredAtMs: 1_763_722_800_000 + counter,
    actor: 'system:test',
    correlationId: crypto.randomUUID(),
    causationId: crypto.randomUUID(),
  };
}

/** An event of another program. */
function wireEvent() {
  const nothing = Buffer.from('{}');
  return {
    id: crypto.randomUUID(),
    type: 'Ordered',
    contentType: 'application/json',
    metadata: nothing,
    data: nothing,
  };
}

async function appendSome(log: EventStoreEventLog, stream: string, count: number): Promise<RecordedEvent[]> {
  const events = Array.from({ length: count }, anEvent);
  const result = await log.append([{ stream, expectedRevision: 'no-stream', events }]);
  expect(result.kind).toBe('appended');
  return log.readStream(stream);
}

async function retried<T>(call: () => Promise<T>): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (attempt === 20) throw error;
    }
  }
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise((resolve) => {
      setTimeout(resolve, 5);
    });
  }
}
