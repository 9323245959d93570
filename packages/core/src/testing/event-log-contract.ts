import type { AppendResult, EventLog, ExpectedRevision, LogSubscription, StreamRead } from '../log/event-log.ts';
import type { NewEvent, RecordedBody, RecordedEvent } from '../log/recorded-event.ts';
import { rejectionOf, sameBytes, sampleBytes, type TestFramework, turns } from './test-framework.ts';

/** A log under test. It may already have events (a shared server); the suite uses its own streams. */
export interface EventLogUnderTest {
  readonly log: EventLog;
  /** Opens the same data again. The suite has closed the log before. Absent for a log that stores nothing. */
  readonly reopen?: () => Promise<EventLog>;
  /** Closes everything that is still open, reopened logs too, and removes the data. A log may have been closed already. */
  readonly dispose: () => Promise<void>;
}

export interface EventLogContractOptions extends TestFramework {
  /** The adapter's {@link EventLog.spansStreams}. */
  readonly spansStreams: boolean;
  /** For each test; 30,000 ms by default. */
  readonly timeoutMs?: number;
}

const WRITERS = 64;

/**
 * The contract of {@link EventLog}, as tests that every adapter runs:
 *
 *     describeEventLog('the SQLite event log', make, { describe, it, expect, spansStreams: true });
 */
export function describeEventLog(
  name: string,
  make: () => Promise<EventLogUnderTest>,
  options: EventLogContractOptions,
): void {
  const { describe, expect } = options;

  /** A test with its own log, which is always disposed of. */
  const test = (sentence: string, body: (log: EventLog, under: EventLogUnderTest) => Promise<void>) => {
    options.it(
      sentence,
      async () => {
        const under = await make();
        try {
          await body(under.log, under);
        } finally {
          await under.dispose();
        }
      },
      options.timeoutMs ?? 30_000,
    );
  };
  /** For logs that can open their data again. On other logs the test passes, and its name says so. */
  const testReopened = (sentence: string, body: (log: EventLog, reopen: () => Promise<EventLog>) => Promise<void>) => {
    test(`${sentence} (where the log can be reopened)`, async (log, { reopen }) => {
      if (reopen === undefined) return;
      await body(log, async () => {
        await log.close();
        return reopen();
      });
    });
  };

  /** Expects the event that was given, at the given place. */
  const expectRecorded = (actual: RecordedEvent | undefined, given: NewEvent, place: Partial<RecordedEvent>) => {
    expect(actual === undefined).toBe(false);
    const { body: actualBody, ...actualFacts } = actual!;
    const { body: givenBody, ...givenFacts } = given;
    const { stream, revision, position, ...facts } = actualFacts;
    expect(facts).toEqual(givenFacts);
    expect({ stream, revision, position }).toMatchObject(place);
    expect(sameBytes(actualBody, givenBody), 'the body is the one that was given, byte for byte').toBe(true);
  };

  /** As {@link expectRecorded}, for readers that leave the body out. */
  const expectLast = (actual: RecordedEvent | undefined, given: NewEvent, place: Partial<RecordedEvent>) => {
    const { body: _, ...facts } = given;
    expectRecorded(actual, facts, place);
  };

  /** The same for a body alone. No body is expected if none was given. */
  const expectBody = (actual: RecordedBody | undefined, given: NewEvent | undefined, place: Partial<RecordedEvent>) => {
    if (actual === undefined || given?.body === undefined) {
      expect([actual, given?.body]).toEqual([undefined, undefined]);
      return;
    }
    expect(actual).toMatchObject({ id: given.id, ...place });
    expect(sameBytes(actual.body, given.body), 'the body is the one that was given, byte for byte').toBe(true);
  };

  /** Reads everything after a position page by page, and checks that positions increase. */
  const readEverything = async (log: EventLog, after: number, pageSize = 7) => {
    const events: RecordedEvent[] = [];
    for (let position = after; ;) {
      const page = await log.readAll(position, pageSize);
      expect(page.length <= pageSize).toBe(true);
      if (page.length === 0) break;
      for (const event of page) {
        expect(event.position).toBeGreaterThan(position);
        position = event.position;
      }
      events.push(...page);
    }
    return events;
  };

  describe(`${name} keeps the event log's contract:`, () => {
    describe('appending', () => {
      test('says of itself whether it spans streams', async (log) => {
        expect(log.spansStreams).toBe(options.spansStreams);
      });

      test('a stream that was never written takes "no-stream" and counts revisions from 0', async (log) => {
        const stream = newStream();
        const events = [newEvent(), newEvent(), newEvent()];
        const result = expectAppended(await log.append([{ stream, expectedRevision: 'no-stream', events }]));
        const read = await log.readStream(stream);
        expect(read.length).toBe(3);
        for (const [index, event] of events.entries()) expectRecorded(read[index], event, { stream, revision: index });
        expect(result.firstPositions).toEqual([read[0]!.position]);
        expect(result.position).toBe(read[2]!.position);
      });

      test('a stream at its expected revision takes more', async (log) => {
        const stream = newStream();
        expectAppended(await append(log, stream, 'no-stream', [newEvent(), newEvent()]));
        const event = newEvent();
        expectAppended(await append(log, stream, 1, [event]));
        expectLast(await log.readLast(stream), event, { stream, revision: 2 });
      });

      test('a stream is found by what its name begins with, where the log can do that', async (log) => {
        if (log.findStream === undefined) return;
        const stream = newStream();
        expect(await log.findStream(stream)).toBe(undefined);
        expectAppended(await append(log, `${stream}.0`, 'no-stream', [newEvent()]));
        expect(await log.findStream(stream)).toBe(`${stream}.0`);
        // Whatever number of streams come after it.
        for (let number = 0; number < 3; number++) await append(log, newStream(), 'no-stream', [newEvent()]);
        expect(await log.findStream(stream)).toBe(`${stream}.0`);
        expect(await log.findStream(`${stream}.1`)).toBe(undefined);
      });

      test('a conflict is a value that names the stream, what was expected and what is', async (log) => {
        const written = newStream();
        const fresh = newStream();
        await append(log, written, 'no-stream', [newEvent(), newEvent()]);
        expect(await append(log, written, 'no-stream', [newEvent()])).toEqual({
          kind: 'conflict',
          stream: written,
          expectedRevision: 'no-stream',
          actualRevision: 1,
        });
        for (const expectedRevision of [0, 2, 7]) {
          expect(await append(log, written, expectedRevision, [newEvent()])).toEqual({
            kind: 'conflict',
            stream: written,
            expectedRevision,
            actualRevision: 1,
          });
        }
        expect(await append(log, fresh, 0, [newEvent()])).toEqual({
          kind: 'conflict',
          stream: fresh,
          expectedRevision: 0,
          actualRevision: 'no-stream',
        });
        expect((await log.readStream(written)).length).toBe(2);
        expect(await log.readStream(fresh)).toEqual([]);
      });

      test('an append without streams, or without events for one, is rejected and writes nothing', async (log) => {
        const first = newStream();
        const second = newStream();
        await rejectionOf(log.append([]));
        await rejectionOf(log.append([{ stream: first, expectedRevision: 'no-stream', events: [] }]));
        await rejectionOf(
          log.append([
            { stream: first, expectedRevision: 'no-stream', events: [newEvent()] },
            { stream: second, expectedRevision: 'no-stream', events: [] },
          ]),
        );
        expect(await log.readStream(first)).toEqual([]);
        expect(await log.readStream(second)).toEqual([]);
      });

      test('an append that names a stream twice is rejected and writes nothing', async (log) => {
        const stream = newStream();
        for (const second of ['no-stream', 0] as const) {
          await rejectionOf(
            log.append([
              { stream, expectedRevision: 'no-stream', events: [newEvent()] },
              { stream, expectedRevision: second, events: [newEvent()] },
            ]),
          );
          expect(await log.readStream(stream)).toEqual([]);
        }
      });
    });

    if (options.spansStreams) {
      describe('appending to several streams', () => {
        test('writes all of them and answers the first position of each, in the order given', async (log) => {
          const streams = [newStream(), newStream(), newStream()];
          await append(log, streams[1]!, 'no-stream', [newEvent()]);
          const appends = streams.map((stream, index) => ({
            stream,
            expectedRevision: index === 1 ? 0 : ('no-stream' as const),
            events: [newEvent(), newEvent()],
          }));
          const result = expectAppended(await log.append(appends));
          const firsts: number[] = [];
          for (const { stream, expectedRevision, events } of appends) {
            const read = (await log.readStream(stream)).slice(-2);
            const revision = expectedRevision === 'no-stream' ? 0 : expectedRevision + 1;
            expectRecorded(read[0], events[0]!, { revision });
            expectRecorded(read[1], events[1]!, { revision: revision + 1 });
            firsts.push(read[0]!.position);
          }
          expect(result.firstPositions).toEqual(firsts);
          expect(firsts).toEqual(firsts.toSorted((left, right) => left - right));
          expect(result.position).toBe((await log.readLast(streams[2]!))!.position);
        });

        test('writes none of them when one conflicts, and names the first that does', async (log) => {
          const [fresh, taken, alsoTaken] = [newStream(), newStream(), newStream()];
          await append(log, taken, 'no-stream', [newEvent()]);
          await append(log, alsoTaken, 'no-stream', [newEvent()]);
          const head = await log.head();
          const result = await log.append([
            { stream: fresh, expectedRevision: 'no-stream', events: [newEvent()] },
            { stream: taken, expectedRevision: 'no-stream', events: [newEvent()] },
            { stream: alsoTaken, expectedRevision: 'no-stream', events: [newEvent()] },
          ]);
          expect(result).toEqual({
            kind: 'conflict',
            stream: taken,
            expectedRevision: 'no-stream',
            actualRevision: 0,
          });
          expect(await log.readStream(fresh)).toEqual([]);
          expect((await log.readStream(taken)).length).toBe(1);
          expect((await log.readStream(alsoTaken)).length).toBe(1);
          expect(await log.readAll(head, 10)).toEqual([]);
        });

        test('answers a retry of all of them as it answered the first time', async (log) => {
          const appends = [newStream(), newStream()].map((stream) => ({
            stream,
            expectedRevision: 'no-stream' as const,
            events: [newEvent(), newEvent()],
          }));
          const first = expectAppended(await log.append(appends));
          await append(log, newStream(), 'no-stream', [newEvent()]);
          expect(await log.append(appends)).toEqual(first);
          for (const { stream } of appends) expect((await log.readStream(stream)).length).toBe(2);
        });

        test('takes a half that is there and a half that is new for a conflict, and writes nothing', async (log) => {
          const [there, fresh] = [newStream(), newStream()];
          const events = [newEvent()];
          await append(log, there, 'no-stream', events);
          expect(
            await log.append([
              { stream: there, expectedRevision: 'no-stream', events },
              { stream: fresh, expectedRevision: 'no-stream', events: [newEvent()] },
            ]),
          ).toMatchObject({ kind: 'conflict', stream: there, actualRevision: 0 });
          expect(await log.readStream(fresh)).toEqual([]);
        });

        test('is won whole by one of many who race on overlapping streams', async (log) => {
          const shared = newStream();
          const own = Array.from({ length: 16 }, () => newStream());
          const results = await Promise.all(
            own.map((stream) =>
              log.append([
                { stream, expectedRevision: 'no-stream', events: [newEvent()] },
                { stream: shared, expectedRevision: 'no-stream', events: [newEvent()] },
              ]),
            ),
          );
          expect(results.filter((result) => result.kind === 'appended').length).toBe(1);
          for (const [index, result] of results.entries()) {
            if (result.kind === 'conflict') expect(result.stream).toBe(shared);
            expect((await log.readStream(own[index]!)).length).toBe(result.kind === 'appended' ? 1 : 0);
          }
        });
      });
    } else {
      test('an append over several streams is rejected and writes nothing', async (log) => {
        const streams = [newStream(), newStream()];
        await rejectionOf(
          log.append(
            streams.map((stream) => ({ stream, expectedRevision: 'no-stream' as const, events: [newEvent()] })),
          ),
        );
        for (const stream of streams) expect(await log.readStream(stream)).toEqual([]);
      });
    }

    describe('a retry', () => {
      test('with the same event ids at the same place is answered like the first time and writes nothing', async (log) => {
        const stream = newStream();
        const events = [newEvent(), newEvent()];
        const first = expectAppended(await append(log, stream, 'no-stream', events));
        expect(await append(log, stream, 'no-stream', events)).toEqual(first);
        expect((await log.readStream(stream)).length).toBe(2);
      });

      test('is recognised after others have appended behind it', async (log) => {
        const stream = newStream();
        await append(log, stream, 'no-stream', [newEvent()]);
        const events = [newEvent(), newEvent()];
        const first = expectAppended(await append(log, stream, 0, events));
        await append(log, stream, 2, [newEvent(), newEvent()]);
        await append(log, newStream(), 'no-stream', [newEvent()]);
        expect(await append(log, stream, 0, events)).toEqual(first);
        expect((await log.readStream(stream)).length).toBe(5);
      });

      test('at the same time as the first attempt leaves one fact', async (log) => {
        const stream = newStream();
        const events = [newEvent()];
        const results = await Promise.all(Array.from({ length: 8 }, () => append(log, stream, 'no-stream', events)));
        const first = expectAppended(results[0]!);
        for (const result of results) expect(result).toEqual(first);
        expect((await log.readStream(stream)).length).toBe(1);
      });

      test('that is none is a conflict: other ids, another order, more events, or another place', async (log) => {
        const stream = newStream();
        const [one, two] = [newEvent(), newEvent()];
        await append(log, stream, 'no-stream', [one, two]);
        const others: [ExpectedRevision, NewEvent[]][] = [
          ['no-stream', [newEvent(), two]],
          ['no-stream', [one, newEvent()]],
          ['no-stream', [two, one]],
          ['no-stream', [one, two, newEvent()]],
          [0, [one, two]],
          [0, [one]],
        ];
        for (const [expectedRevision, events] of others) {
          expect(await append(log, stream, expectedRevision, events)).toEqual({
            kind: 'conflict',
            stream,
            expectedRevision,
            actualRevision: 1,
          });
        }
        expect((await log.readStream(stream)).length).toBe(2);
      });
    });

    describe('many writers', () => {
      test(`of whom ${WRITERS} race on one new stream: exactly one wins`, async (log) => {
        const stream = newStream();
        const events = Array.from({ length: WRITERS }, () => newEvent());
        const results = await Promise.all(events.map((event) => append(log, stream, 'no-stream', [event])));
        const winners = results.flatMap((result, index) => (result.kind === 'appended' ? [index] : []));
        expect(winners.length).toBe(1);
        for (const result of results) {
          if (result.kind === 'conflict') expect(result).toMatchObject({ stream, actualRevision: 0 });
        }
        const read = await log.readStream(stream);
        expect(read.map((event) => event.id)).toEqual([events[winners[0]!]!.id]);
      });

      test(`of whom ${WRITERS} try until they win: every event is there once`, async (log) => {
        const stream = newStream();
        const events = Array.from({ length: WRITERS }, () => newEvent());
        await Promise.all(
          events.map(async (event) => {
            for (let expected: ExpectedRevision = 'no-stream'; ;) {
              const result: AppendResult = await append(log, stream, expected, [event]);
              if (result.kind === 'appended') return;
              expected = result.actualRevision;
            }
          }),
        );
        const read = await log.readStream(stream);
        expect(read.map((event) => event.revision)).toEqual(events.map((_, index) => index));
        expect(read.map((event) => event.id).toSorted()).toEqual(events.map((event) => event.id).toSorted());
      });

      test(`of whom ${WRITERS} write streams of their own: all win, at positions that nobody shares`, async (log) => {
        const start = await log.head();
        const streams = Array.from({ length: WRITERS }, () => newStream());
        const results = await Promise.all(
          streams.map((stream) => append(log, stream, 'no-stream', [newEvent(), newEvent()])),
        );
        const positions = results.map((result) => expectAppended(result).position);
        expect(new Set(positions).size).toBe(WRITERS);
        const all = (await readEverything(log, start)).filter((event) => streams.includes(event.stream));
        expect(all.length).toBe(2 * WRITERS);
        for (const [index, stream] of streams.entries()) {
          const own = all.filter((event) => event.stream === stream);
          expect(own.map((event) => event.revision)).toEqual([0, 1]);
          expect(own[1]!.position).toBe(positions[index]);
        }
      });
    });

    describe('something that must be durable first', () => {
      test('is waited for: until it resolves nothing is answered and nothing can be read', async (log) => {
        const stream = newStream();
        const gate = Promise.withResolvers<void>();
        let answered = false;
        const appended = log.append([{ stream, expectedRevision: 'no-stream', events: [newEvent()] }], {
          after: [gate.promise],
        });
        void appended.then(() => {
          answered = true;
        });
        await turns();
        expect(answered).toBe(false);
        expect(await log.readStream(stream)).toEqual([]);
        gate.resolve();
        expectAppended(await appended);
        expect((await log.readStream(stream)).length).toBe(1);
      });

      test('fails the append when it fails, at once or late, and nothing is written', async (log) => {
        const early = newStream();
        const late = newStream();
        const fault = new Error('the key could not be stored');
        const events = [newEvent()];
        await rejectionOf(
          log.append([{ stream: early, expectedRevision: 'no-stream', events }], { after: [Promise.reject(fault)] }),
        );
        const gate = Promise.withResolvers<void>();
        const rejection = rejectionOf(
          log.append([{ stream: late, expectedRevision: 'no-stream', events: [newEvent()] }], {
            after: [gate.promise],
          }),
        );
        await turns();
        gate.reject(fault);
        await rejection;
        expect(await log.readStream(early)).toEqual([]);
        expect(await log.readStream(late)).toEqual([]);
        expectAppended(await append(log, early, 'no-stream', events));
      });

      test('fails only the append it was given with, not those that were under way beside it', async (log) => {
        const streams = Array.from({ length: 8 }, () => newStream());
        const results = await Promise.allSettled(
          streams.map((stream, index) =>
            log.append([{ stream, expectedRevision: 'no-stream', events: [newEvent()] }], {
              after: [index === 3 ? Promise.reject(new Error('not stored')) : Promise.resolve()],
            }),
          ),
        );
        for (const [index, stream] of streams.entries()) {
          expect(results[index]!.status).toBe(index === 3 ? 'rejected' : 'fulfilled');
          expect((await log.readStream(stream)).length).toBe(index === 3 ? 0 : 1);
        }
      });
    });

    describe('reading', () => {
      test('what was never written is empty or undefined', async (log) => {
        const stream = newStream();
        expect(await log.readStream(stream)).toEqual([]);
        expect(await log.readLast(stream)).toBe(undefined);
        const head = await log.head();
        expect(await log.readAt(head + 1_000_000)).toBe(undefined);
        expect(await log.readBody(head + 1_000_000)).toBe(undefined);
        expect(await log.readAll(head, 10)).toEqual([]);
        expect(head > 0).toBe((await log.readAll(0, 1)).length > 0);
      });

      test('all ways to read an event agree on it; readLast leaves the body out, readBody the facts', async (log) => {
        const start = await log.head();
        const stream = newStream();
        const events = [newEvent(), newEvent({ body: sampleBytes(100) }), newEvent({ body: sampleBytes(9) })];
        await append(log, stream, 'no-stream', events);
        const read = await log.readStream(stream);
        const all = (await readEverything(log, start)).filter((event) => event.stream === stream);
        expect(all.length).toBe(3);
        for (const [revision, event] of events.entries()) {
          const { position } = read[revision]!;
          expectRecorded(read[revision], event, { stream, revision, position });
          expectRecorded(all[revision], event, { stream, revision, position });
          expectRecorded(await log.readAt(position), event, { stream, revision, position });
          expectBody(await log.readBody(position), event, { stream, revision });
        }
        expectLast(await log.readLast(stream), events[2]!, { stream, revision: 2 });
      });

      test('readBefore gives the event before one in its stream, without its body', async (log) => {
        const stream = newStream();
        const other = newStream();
        const events = Array.from({ length: 4 }, () => newEvent({ body: sampleBytes(20) }));
        await append(log, stream, 'no-stream', events.slice(0, 2));
        await append(log, other, 'no-stream', [newEvent()]);
        await append(log, stream, 1, [events[2]!]);
        await append(log, other, 0, [newEvent()]);
        await append(log, stream, 2, [events[3]!]);
        const [first, ...others] = await log.readStream(stream);
        expect(await log.readBefore(first!)).toBe(undefined);
        for (const [index, event] of others.entries()) {
          expectLast(await log.readBefore(event), events[index]!, { stream, revision: index });
        }
        await log.truncateStream(stream, 2);
        expect(await log.readBefore(others[1]!)).toBe(undefined);
        expectLast(await log.readBefore(others[2]!), events[2]!, { stream, revision: 2 });
      });

      test('readAll pages through every event in order of position, from anywhere', async (log) => {
        const start = await log.head();
        const streams = [newStream(), newStream(), newStream()];
        const given: string[] = [];
        for (let round = 0; round < 10; round++) {
          for (const stream of streams) {
            const event = newEvent();
            given.push(event.id);
            expectAppended(await append(log, stream, round === 0 ? 'no-stream' : round - 1, [event]));
          }
        }
        for (const pageSize of [1, 4, 30, 1_000]) {
          const all = (await readEverything(log, start, pageSize)).filter((event) => streams.includes(event.stream));
          expect(all.map((event) => event.id)).toEqual(given);
        }
        const all = (await readEverything(log, start)).filter((event) => streams.includes(event.stream));
        const rest = (await readEverything(log, all[11]!.position)).filter((event) => streams.includes(event.stream));
        expect(rest.map((event) => event.id)).toEqual(given.slice(12));
      });

      test('positions grow from append to append, and head is the highest of them', async (log) => {
        let previous = await log.head();
        for (let round = 0; round < 5; round++) {
          const result = expectAppended(await append(log, newStream(), 'no-stream', [newEvent(), newEvent()]));
          expect(result.firstPositions[0]!).toBeGreaterThan(previous);
          expect(result.position).toBeGreaterThan(result.firstPositions[0]!);
          expect(await log.head()).toBeGreaterThanOrEqual(result.position);
          expect(await log.readAll(await log.head(), 1)).toEqual([]);
          previous = result.position;
        }
      });

      test('bodies come back byte for byte: none, empty, every byte, 1 MiB', async (log) => {
        const bodies = [
          undefined,
          new Uint8Array(0),
          Uint8Array.from({ length: 256 }, (_, index) => index),
          sampleBytes(1_048_576),
          // A view into a larger buffer: only the bytes of the view count.
          sampleBytes(64).subarray(16, 48),
        ];
        for (const body of bodies) {
          const start = await log.head();
          const stream = newStream();
          const event = newEvent(body === undefined ? {} : { body });
          const { position } = expectAppended(await append(log, stream, 'no-stream', [event]));
          expectRecorded((await log.readStream(stream))[0], event, { stream });
          expectLast(await log.readLast(stream), event, { stream });
          expectRecorded(await log.readAt(position), event, { stream });
          expectBody(await log.readBody(position), event, { stream });
          const all = await readEverything(log, start);
          expectRecorded(
            all.find((candidate) => candidate.stream === stream),
            event,
            { stream },
          );
        }
      });

      test('the log has bytes of its own: a body that its giver overwrites afterwards stays as it was', async (log) => {
        const stream = newStream();
        const body = sampleBytes(32);
        const given = Uint8Array.from(body);
        await append(log, stream, 'no-stream', [newEvent({ body: given })]);
        given.fill(0);
        expect(sameBytes((await log.readStream(stream))[0]!.body, body)).toBe(true);
      });

      test('readAll leaves the bodies out when asked to, and nothing else', async (log) => {
        const start = await log.head();
        const stream = newStream();
        const event = newEvent({ body: sampleBytes(1_000), data: { kept: true } });
        await append(log, stream, 'no-stream', [event]);
        const bare = (await log.readAll(start, 1_000, { withBodies: false })).find((one) => one.stream === stream);
        const { body: _, ...facts } = event;
        expectRecorded(bare, facts, { stream, revision: 0 });
        const whole = (await log.readAll(start, 1_000, { withBodies: true })).find((one) => one.stream === stream);
        expectRecorded(whole, event, { stream, revision: 0 });
      });

      test('readStream leaves out bodies and earlier revisions when asked to, and nothing else', async (log) => {
        const stream = newStream();
        const events = Array.from({ length: 5 }, () => newEvent({ body: sampleBytes(100) }));
        await append(log, stream, 'no-stream', events);
        for (const fromRevision of [0, 1, 4, 5, 100]) {
          const whole = await log.readStream(stream, { fromRevision });
          const bare = await log.readStream(stream, { fromRevision, withBodies: false });
          expect(whole.map((event) => event.revision)).toEqual([0, 1, 2, 3, 4].slice(fromRevision));
          expect(bare.length).toBe(whole.length);
          for (const [index, event] of whole.entries()) {
            expectRecorded(event, events[fromRevision + index]!, { stream });
            expectLast(bare[index], events[fromRevision + index]!, { stream, position: event.position });
          }
        }
        expect(await log.readStream(newStream(), { fromRevision: 1, withBodies: false })).toEqual([]);
      });

      test('readStream leaves out later revisions when asked to, and nothing else', async (log) => {
        const stream = newStream();
        const events = Array.from({ length: 6 }, () => newEvent({ body: sampleBytes(100) }));
        await append(log, stream, 'no-stream', events.slice(0, 4));
        await append(log, stream, 3, events.slice(4));
        const revisionsOf = async (part: StreamRead) =>
          (await log.readStream(stream, part)).map(({ revision }) => revision);
        const toEach = async (there: readonly number[]): Promise<void> => {
          for (const withBodies of [true, false]) {
            for (let fromRevision = 0; fromRevision < 8; fromRevision += 1) {
              for (let toRevision = 0; toRevision < 8; toRevision += 1) {
                const wanted = there.filter((revision) => revision >= fromRevision && revision <= toRevision);
                expect(await revisionsOf({ fromRevision, toRevision, withBodies })).toEqual(wanted);
              }
            }
          }
        };
        await toEach([0, 1, 2, 3, 4, 5]);
        const [one] = await log.readStream(stream, { fromRevision: 2, toRevision: 2 });
        expectRecorded(one, events[2]!, { stream, revision: 2 });
        await log.truncateStream(stream, 3);
        await toEach([3, 4, 5]);
        expect(await log.readStream(newStream(), { toRevision: 3 })).toEqual([]);
      });

      test('scan finds the streams of a prefix, in parts of any length, and says how far it has looked', async (log) => {
        const start = await log.head();
        const family = newStream();
        // Names just before and after the family's in the order of names, which do not belong to it.
        const others = [family.slice(0, -1), `${family.slice(0, -1)}~`, newStream()];
        const wanted: string[] = [];
        for (let round = 0; round < 6; round++) {
          for (const stream of [`${family}.${round}`, `${family}🪦${round}`, family]) {
            const expected = stream === family && round > 0 ? round - 1 : 'no-stream';
            const event = newEvent({ body: sampleBytes(50) });
            wanted.push(event.id);
            await append(log, stream, expected, [event]);
          }
          for (const stream of others) {
            await append(log, stream, round > 0 ? round - 1 : 'no-stream', [newEvent({ body: sampleBytes(50) })]);
          }
        }
        const head = await log.head();
        for (const length of [1, 4, 1_000]) {
          const found: RecordedEvent[] = [];
          let position = start;
          for (;;) {
            const part = await log.scan(position, length, family);
            for (const event of part.events) {
              expect(event.position).toBeGreaterThan(position);
              expect(event.position <= part.position).toBe(true);
              expect(event.body).toBe(undefined);
            }
            found.push(...part.events);
            if (part.position === position) break;
            expect(part.position).toBeGreaterThan(position);
            position = part.position;
          }
          expect(found.map((event) => event.id)).toEqual(wanted);
          // Others may write to a shared log in the meantime, but the scan has passed what was there.
          expect(position >= head).toBe(true);
          const bare = await log.readStream(family, { withBodies: false });
          expect(found.filter((event) => event.stream === family)).toEqual(bare);
        }
      });

      test('data comes back as it was: nested, empty, unicode, large and small numbers', async (log) => {
        const samples: Record<string, unknown>[] = [
          {},
          { nested: { deeper: [{ list: [] }, [[1, [2]]], null, true, false, ''] } },
          { 'Schlüssel "mit" \\ Zeichen': 'Ünïcödé 漢字 🪦\u0000\n\t', '': 'empty name', '🪦': '\ud83e\udea6' },
          { integer: Number.MAX_SAFE_INTEGER, negative: -1, fraction: 0.1, small: 5e-324, large: 1.797e308 },
          { text: 'x'.repeat(100_000) },
        ];
        for (const data of samples) {
          const stream = newStream();
          const event = newEvent({ data, actor: 'key:primär 🪦', occurredAtMs: 1_763_722_800_123 });
          await append(log, stream, 'no-stream', [event]);
          expectLast(await log.readLast(stream), event, { stream });
        }
      });

      test("the store's own events come back as they were", async (log) => {
        const stream = newStream();
        const identity = { id: 'a/b ü', partitionKey: '["tenant",{}]' };
        const upserted = { ...identity, operation: 'create', ts: 1_763_722_800, policyVersion: 1, key: 7, bytes: 2 };
        const expired = { ...identity, expiredAtMs: 1_763_722_860_000, rule: 'item-ttl', ts: 1_763_722_800, ttl: 60 };
        const ledger = { writes: 2, times: '1763722800123t60 5', operations: 'cu', etags: 'AAAA', digests: 'BBBB' };
        const events = [
          newEvent({ type: 'ItemUpserted', data: { ...upserted, ttl: 60 }, body: sampleBytes(30) }),
          newEvent({
            type: 'ItemUpserted',
            data: { ...upserted, ttl: null, unreadableTtl: true },
            body: sampleBytes(31),
          }),
          newEvent({ type: 'ItemUpserted', data: { ...upserted, ttl: -1, operation: 'patch' }, body: sampleBytes(0) }),
          newEvent({ type: 'ItemExpired', data: { ...expired, policyVersion: 1, byPolicyStart: false } }),
          newEvent({
            type: 'ItemPurged',
            version: 1,
            data: { ...identity, cause: 'expired', erased: 'key-destroyed', key: 7, recoverableUntilMs: null, ledger },
          }),
        ];
        await append(log, stream, 'no-stream', events);
        const read = await log.readStream(stream);
        for (const [revision, event] of events.entries()) expectRecorded(read[revision], event, { stream, revision });
        const container = newEvent({
          type: 'ContainerTtlChanged',
          version: 3,
          data: { from: null, to: -1, policyVersion: 2, effectiveFromMs: 1_763_722_800_001, reason: 'asked for' },
        });
        const containerStream = `container-${crypto.randomUUID()}`;
        await append(log, containerStream, 'no-stream', [container]);
        expectLast(await log.readLast(containerStream), container, { stream: containerStream, revision: 0 });
      });
    });

    describe('subscribing', () => {
      test('from the start delivers what was there and then what comes, in order, once', async (log) => {
        const stream = newStream();
        const before = [newEvent(), newEvent(), newEvent()];
        await append(log, stream, 'no-stream', before);
        const seen = new Collector([stream]);
        const subscription = log.subscribe(0, seen);
        await seen.count(3);
        const after = [newEvent(), newEvent()];
        await append(log, stream, 2, [after[0]!]);
        await append(log, stream, 3, [after[1]!]);
        await seen.count(5);
        await subscription.unsubscribe();
        expect(seen.ids()).toEqual([...before, ...after].map((event) => event.id));
        const { body: _, ...facts } = before[0]!;
        const { body: __, ...delivered } = seen.events[0]!;
        expect(delivered).toMatchObject({ ...facts, stream, revision: 0 });
      });

      test('from the middle delivers what stands after that position and nothing before', async (log) => {
        const stream = newStream();
        const events = Array.from({ length: 10 }, () => newEvent());
        await append(log, stream, 'no-stream', events);
        const middle = (await log.readStream(stream))[3]!.position;
        const seen = new Collector([stream]);
        const subscription = log.subscribe(middle, seen);
        await seen.count(6);
        await subscription.unsubscribe();
        expect(seen.ids()).toEqual(events.slice(4).map((event) => event.id));
      });

      test('from the head delivers only what comes', async (log) => {
        const stream = newStream();
        await append(log, stream, 'no-stream', [newEvent()]);
        const seen = new Collector([stream]);
        const subscription = log.subscribe(await log.head(), seen);
        const event = newEvent();
        await append(log, stream, 0, [event]);
        await seen.count(1);
        await subscription.unsubscribe();
        expect(seen.ids()).toEqual([event.id]);
      });

      test('delivers what is appended while it catches up, without gap or repeat', async (log) => {
        const start = await log.head();
        const streams = Array.from({ length: 10 }, () => newStream());
        const appendTo = async (from: number, count: number) => {
          for (let batch = 0; batch < count; batch++) {
            for (const stream of streams) {
              const revision = (from + batch) * 25;
              const events = Array.from({ length: 25 }, () => newEvent());
              expectAppended(await append(log, stream, revision === 0 ? 'no-stream' : revision - 1, events));
            }
          }
        };
        await appendTo(0, 10);
        const seen = new Collector(streams);
        const subscription = log.subscribe(start, seen);
        await appendTo(10, 4);
        await seen.count(3_500);
        await subscription.unsubscribe();
        const all = (await readEverything(log, start, 1_000)).filter((event) => streams.includes(event.stream));
        expect(seen.ids()).toEqual(all.map((event) => event.id));
        expect(all.length).toBe(3_500);
      });

      test('waits for a slow listener, and loses and repeats nothing that was appended meanwhile', async (log) => {
        const start = await log.head();
        const stream = newStream();
        const gate = Promise.withResolvers<void>();
        const seen = new Collector([stream], () => gate.promise);
        const subscription = log.subscribe(start, seen);
        const given: string[] = [];
        for (let batch = 0; batch < 12; batch++) {
          const events = Array.from({ length: 500 }, () => newEvent());
          given.push(...events.map((event) => event.id));
          expectAppended(await append(log, stream, batch === 0 ? 'no-stream' : batch * 500 - 1, events));
          if (batch === 0) await seen.called();
        }
        await turns();
        expect(seen.calls, 'the second call waits for the first').toBe(1);
        gate.resolve();
        await seen.count(given.length);
        expect(seen.overlapped).toBe(false);
        await subscription.unsubscribe();
        expect(seen.ids()).toEqual(given);
      });

      test('delivers the events of one append together, those that were there and those that come', async (log) => {
        const start = await log.head();
        const [mine, appends, size] = [newStream(), 160, 7];
        let revision = -1;
        const appendSome = async (count: number) => {
          for (let index = 0; index < count; index++) {
            const correlationId = crypto.randomUUID();
            const events = Array.from({ length: size }, () => newEvent({ correlationId, body: sampleBytes(10) }));
            expectAppended(await append(log, mine, revision < 0 ? 'no-stream' : revision, events));
            revision += size;
          }
        };
        await appendSome(appends - 10);
        const deliveries: number[] = [];
        const all = Promise.withResolvers<void>();
        const subscription = log.subscribe(start, {
          onEvents: (events) => {
            deliveries.push(events.filter(({ stream }) => stream === mine).length);
            if (deliveries.reduce((sum, count) => sum + count, 0) === appends * size) all.resolve();
            return Promise.resolve();
          },
          onError: all.reject,
        });
        await appendSome(10);
        await all.promise;
        await subscription.unsubscribe();
        expect(deliveries.filter((count) => count % size !== 0)).toEqual([]);
      });

      test('gives every subscriber every event, each at its own pace', async (log) => {
        const start = await log.head();
        const stream = newStream();
        const gate = Promise.withResolvers<void>();
        const slow = new Collector([stream], () => gate.promise);
        const fast = new Collector([stream]);
        const subscriptions = [log.subscribe(start, slow), log.subscribe(start, fast)];
        for (let revision = -1; revision < 9; revision++) {
          await append(log, stream, revision < 0 ? 'no-stream' : revision, [newEvent()]);
        }
        await fast.count(10);
        gate.resolve();
        await slow.count(10);
        expect(slow.ids()).toEqual(fast.ids());
        await Promise.all(subscriptions.map((subscription) => subscription.unsubscribe()));
      });

      test('tells when it has caught up, only after everything up to there was delivered', async (log) => {
        const stream = newStream();
        const first = expectAppended(await append(log, stream, 'no-stream', [newEvent(), newEvent()]));
        const seen = new Collector([stream]);
        const subscription = log.subscribe(0, seen);
        await seen.caughtUp(first.position);
        expect(seen.events.length).toBe(2);
        const second = expectAppended(await append(log, stream, 1, [newEvent()]));
        await seen.count(3);
        await seen.caughtUp(second.position);
        await subscription.unsubscribe();
        for (const { position, delivered } of seen.caughtUps) {
          const due = (await log.readStream(stream)).filter((event) => event.position <= position);
          expect(delivered).toBeGreaterThanOrEqual(due.length);
        }
      });

      test('at the head of a quiet log tells that it has caught up', async (log) => {
        await append(log, newStream(), 'no-stream', [newEvent()]);
        const head = await log.head();
        const seen = new Collector([]);
        const subscription = log.subscribe(head, seen);
        await seen.caughtUp(head);
        await subscription.unsubscribe();
      });

      test('ends with unsubscribe, which waits for the call under way; later events are not delivered', async (log) => {
        const stream = newStream();
        const start = await log.head();
        const gate = Promise.withResolvers<void>();
        const seen = new Collector([stream], () => gate.promise);
        const subscription = log.subscribe(start, seen);
        await append(log, stream, 'no-stream', [newEvent()]);
        await seen.called();
        let ended = false;
        const ending = subscription.unsubscribe().then(() => {
          ended = true;
        });
        await append(log, stream, 0, [newEvent()]);
        await turns();
        expect(ended).toBe(false);
        gate.resolve();
        await ending;
        // A second subscriber that has seen the later event proves that the first one would have seen it.
        const witness = new Collector([stream]);
        const witnessing = log.subscribe(start, witness);
        await witness.count(2);
        await witnessing.unsubscribe();
        expect(seen.events.length).toBe(1);
        expect(seen.errors).toEqual([]);
      });

      test('ends when unsubscribe is called from within the listener, and when it is called twice', async (log) => {
        const stream = newStream();
        const start = await log.head();
        const ends: Promise<void>[] = [];
        const inCaughtUp: LogSubscription = log.subscribe(start, {
          onEvents: () => Promise.resolve(),
          onCaughtUp: () => {
            ends.push(inCaughtUp.unsubscribe());
          },
        });
        const seen = new Collector([stream], () => {
          ends.push(inEvents.unsubscribe());
          return Promise.resolve();
        });
        const inEvents: LogSubscription = log.subscribe(start, seen);
        await append(log, stream, 'no-stream', [newEvent()]);
        await seen.called();
        while (ends.length < 2) await turns(1);
        // The calls from within come first, so that no second call wakes a first one that hangs.
        await Promise.all(ends);
        await inCaughtUp.unsubscribe();
        await inEvents.unsubscribe();
        expect(seen.events.length).toBe(1);
      });

      test('ends with onError, once, when the listener throws; nothing is delivered after that', async (log) => {
        const stream = newStream();
        const start = await log.head();
        const fault = new Error('the projection is broken');
        const seen = new Collector([stream], () => Promise.reject(fault));
        const subscription = log.subscribe(start, seen);
        await append(log, stream, 'no-stream', [newEvent()]);
        await seen.failed();
        await append(log, stream, 0, [newEvent()]);
        const witness = new Collector([stream]);
        const witnessing = log.subscribe(start, witness);
        await witness.count(2);
        await witnessing.unsubscribe();
        expect(seen.errors).toEqual([fault]);
        expect(seen.calls).toBe(1);
        await subscription.unsubscribe();
      });
    });

    describe('truncating', () => {
      test('removes what stands before a revision and keeps the numbers of the rest', async (log) => {
        const start = await log.head();
        const stream = newStream();
        const other = newStream();
        const events = Array.from({ length: 5 }, () => newEvent({ body: sampleBytes(50) }));
        await append(log, stream, 'no-stream', events);
        await append(log, other, 'no-stream', [newEvent(), newEvent()]);
        const before = await log.readStream(stream);
        const head = await log.head();
        await log.truncateStream(stream, 3);

        const read = await log.readStream(stream);
        expect(read.length).toBe(2);
        expectRecorded(read[0], events[3]!, { revision: 3, position: before[3]!.position });
        expectRecorded(read[1], events[4]!, { revision: 4, position: before[4]!.position });
        expectLast(await log.readLast(stream), events[4]!, { revision: 4 });
        for (const [revision, event] of before.entries()) {
          const at = await log.readAt(event.position);
          expectBody(await log.readBody(event.position), revision < 3 ? undefined : events[revision], { revision });
          if (revision < 3) expect(at).toBe(undefined);
          else expectRecorded(at, events[revision]!, { revision });
        }
        for (const readOptions of [{}, { withBodies: false }]) {
          const all = (await log.readAll(start, 1_000, readOptions)).filter((event) => event.stream === stream);
          expect(all.map((event) => event.revision)).toEqual([3, 4]);
        }
        expect((await log.readStream(other)).length).toBe(2);
        expect(await log.head()).toBe(head);
      });

      test('is skipped by readers page by page and by subscribers', async (log) => {
        const start = await log.head();
        const truncated = newStream();
        const kept = newStream();
        await append(
          log,
          truncated,
          'no-stream',
          Array.from({ length: 40 }, () => newEvent()),
        );
        await append(log, kept, 'no-stream', [newEvent()]);
        await log.truncateStream(truncated, 39);
        const expected = [
          { stream: truncated, revision: 39 },
          { stream: kept, revision: 0 },
        ];
        const scanned = await log.scan(start, 100, truncated);
        expect(scanned.events.map(({ stream, revision }) => ({ stream, revision }))).toEqual(expected.slice(0, 1));
        for (const pageSize of [1, 7, 100]) {
          const all = (await readEverything(log, start, pageSize)).filter(
            (event) => event.stream === truncated || event.stream === kept,
          );
          expect(all.map(({ stream, revision }) => ({ stream, revision }))).toEqual(expected);
        }
        const seen = new Collector([truncated, kept]);
        const subscription = log.subscribe(start, seen);
        await seen.count(2);
        await subscription.unsubscribe();
        expect(seen.events.map(({ stream, revision }) => ({ stream, revision }))).toEqual(expected);
      });

      test('may be shown to readers who allow it, in order and with all that stands', async (log) => {
        const start = await log.head();
        const truncated = newStream();
        const events = Array.from({ length: 3 }, () => newEvent());
        await append(log, truncated, 'no-stream', events);
        await log.truncateStream(truncated, 2);
        const revisions = async (read: Promise<readonly RecordedEvent[]>) =>
          (await read).filter(({ stream }) => stream === truncated).map(({ revision }) => revision);
        const allowed = (found: readonly number[]) => {
          expect(found.at(-1)).toBe(2);
          expect([0, 1, 2].filter((revision) => found.includes(revision))).toEqual(found);
        };
        const options = { withBodies: false, mayBeTruncated: true };
        allowed(await revisions(Promise.resolve(log.readAll(start, 100, options))));
        const seen = new Collector([truncated]);
        const subscription = log.subscribe(start, seen, options);
        await seen.caughtUp(await log.head());
        await subscription.unsubscribe();
        allowed(await revisions(Promise.resolve(seen.events)));
      });

      test('lets the next append continue at the next revision, and never takes "no-stream" again', async (log) => {
        const stream = newStream();
        await append(log, stream, 'no-stream', [newEvent(), newEvent(), newEvent()]);
        await log.truncateStream(stream, 2);
        expect(await append(log, stream, 'no-stream', [newEvent()])).toMatchObject({
          kind: 'conflict',
          actualRevision: 2,
        });
        expect(await append(log, stream, 0, [newEvent()])).toMatchObject({ kind: 'conflict', actualRevision: 2 });
        const event = newEvent();
        const { position } = expectAppended(await append(log, stream, 2, [event]));
        expectLast(await log.readLast(stream), event, { revision: 3, position });
      });

      test('twice, to the same or an earlier revision, is no error and takes nothing more', async (log) => {
        const stream = newStream();
        await append(
          log,
          stream,
          'no-stream',
          Array.from({ length: 5 }, () => newEvent()),
        );
        await log.truncateStream(stream, 3);
        await log.truncateStream(stream, 3);
        await log.truncateStream(stream, 1);
        await log.truncateStream(stream, 0);
        expect((await log.readStream(stream)).map((event) => event.revision)).toEqual([3, 4]);
        await log.truncateStream(stream, 4);
        expect((await log.readStream(stream)).map((event) => event.revision)).toEqual([4]);
      });

      test('of a stream that was never written is no error', async (log) => {
        const stream = newStream();
        await log.truncateStream(stream, 0);
        await log.truncateStream(stream, 5);
        expectAppended(await append(log, stream, 'no-stream', [newEvent()]));
      });

      test('past the last event is rejected: the last event stays', async (log) => {
        const stream = newStream();
        await append(log, stream, 'no-stream', [newEvent(), newEvent()]);
        await rejectionOf(log.truncateStream(stream, 2));
        expect((await log.readLast(stream))?.revision).toBe(1);
        expect((await log.readStream(stream)).length).toBe(2);
      });
    });

    describe('reopened', () => {
      testReopened('the log holds everything it answered for, where it was', async (log, reopen) => {
        const start = await log.head();
        const stream = newStream();
        const events = [newEvent({ body: sampleBytes(300) }), newEvent({ body: new Uint8Array(0) }), newEvent()];
        const first = expectAppended(await append(log, stream, 'no-stream', events));
        const before = await readEverything(log, start);
        const head = await log.head();
        const reopened = await reopen();
        expect((await readEverything(reopened, start)).map(placeOf)).toEqual(before.map(placeOf));
        const read = await reopened.readStream(stream);
        for (const [revision, event] of events.entries()) expectRecorded(read[revision], event, { stream, revision });
        expect(await reopened.head()).toBe(head);
        expect(await append(reopened, stream, 'no-stream', events)).toEqual(first);
        expect(await append(reopened, stream, 'no-stream', [newEvent()])).toMatchObject({
          kind: 'conflict',
          actualRevision: 2,
        });
        const more = expectAppended(await append(reopened, stream, 2, [newEvent()]));
        expect(more.position).toBeGreaterThan(first.position);
        const seen = new Collector([stream]);
        const subscription = reopened.subscribe(start, seen);
        await seen.count(4);
        await subscription.unsubscribe();
        expect(seen.events.map((event) => event.revision)).toEqual([0, 1, 2, 3]);
      });

      testReopened('the log keeps what was truncated away, and its revisions', async (log, reopen) => {
        const start = await log.head();
        const stream = newStream();
        await append(log, stream, 'no-stream', [newEvent(), newEvent(), newEvent()]);
        await log.truncateStream(stream, 2);
        const head = await log.head();
        const reopened = await reopen();
        expect((await reopened.readStream(stream)).map((event) => event.revision)).toEqual([2]);
        expect((await reopened.readAll(start, 100)).filter((event) => event.stream === stream).length).toBe(1);
        expect(await reopened.head()).toBe(head);
        expect(await append(reopened, stream, 'no-stream', [newEvent()])).toMatchObject({
          kind: 'conflict',
          actualRevision: 2,
        });
        expectAppended(await append(reopened, stream, 2, [newEvent()]));
      });

      testReopened('a log that was closed under appends holds each of them that it answered', async (log, reopen) => {
        const streams = Array.from({ length: WRITERS }, () => newStream());
        const underWay = Promise.allSettled(
          streams.map((stream) => append(log, stream, 'no-stream', [newEvent(), newEvent()])),
        );
        const reopened = await reopen();
        for (const [index, result] of (await underWay).entries()) {
          const count = (await reopened.readStream(streams[index]!)).length;
          if (result.status === 'fulfilled') expect(count).toBe(result.value.kind === 'appended' ? 2 : 0);
          else expect(count === 0 || count === 2, 'an append is whole or not there').toBe(true);
        }
      });
    });
  });
}

/** A stream that no other test writes, named as the store names its streams. */
function newStream(): string {
  return `item-Contract.${crypto.randomUUID()}.0`;
}

let counter = 0;

function newEvent(over: Partial<NewEvent> = {}): NewEvent {
  counter += 1;
  return {
    id: crypto.randomUUID(),
    type: 'ContractTested',
    version: 1,
    data: { number: counter },
    occurredAtMs: 1_763_722_800_000 + counter,
    actor: 'system:contract',
    correlationId: crypto.randomUUID(),
    causationId: crypto.randomUUID(),
    ...over,
  };
}

function append(
  log: EventLog,
  stream: string,
  expectedRevision: ExpectedRevision,
  events: readonly NewEvent[],
): Promise<AppendResult> {
  return log.append([{ stream, expectedRevision, events }]);
}

function expectAppended(result: AppendResult): Extract<AppendResult, { kind: 'appended' }> {
  if (result.kind !== 'appended') throw new Error(`expected an append, got ${JSON.stringify(result)}`);
  return result;
}

function placeOf({ id, stream, revision, position }: RecordedEvent) {
  return { id, stream, revision, position };
}

/** A listener that records what it gets, and that can be waited for without a timer. */
class Collector {
  readonly events: RecordedEvent[] = [];
  readonly errors: unknown[] = [];
  /** For each `onCaughtUp`, how many events had been delivered by then. */
  readonly caughtUps: { readonly position: number; readonly delivered: number }[] = [];
  /** How often it was called with events of its streams. */
  calls = 0;
  /** True if it was called during an earlier call. */
  overlapped = false;
  readonly #streams: ReadonlySet<string>;
  readonly #meanwhile: () => Promise<void>;
  #inCall = false;
  #waiting: (() => void)[] = [];

  /**
   * @param streams the streams whose events it records; other streams of a shared log are ignored
   * @param meanwhile what each call waits for before it returns
   */
  constructor(streams: readonly string[], meanwhile: () => Promise<void> = () => Promise.resolve()) {
    this.#streams = new Set(streams);
    this.#meanwhile = meanwhile;
  }

  readonly onEvents = async (events: readonly RecordedEvent[]): Promise<void> => {
    if (this.#inCall || events.length === 0) this.overlapped = true;
    const own = events.filter((event) => this.#streams.has(event.stream));
    if (own.length === 0) return;
    this.#inCall = true;
    this.calls += 1;
    this.events.push(...own);
    this.#changed();
    try {
      await this.#meanwhile();
    } finally {
      this.#inCall = false;
    }
  };

  readonly onCaughtUp = (position: number): void => {
    this.caughtUps.push({ position, delivered: this.events.length });
    this.#changed();
  };

  readonly onError = (error: unknown): void => {
    this.errors.push(error);
    this.#changed();
  };

  ids(): string[] {
    return this.events.map((event) => event.id);
  }

  count(count: number): Promise<void> {
    return this.#until(() => this.events.length >= count);
  }

  called(): Promise<void> {
    return this.#until(() => this.calls > 0);
  }

  caughtUp(position: number): Promise<void> {
    return this.#until(() => this.caughtUps.some((caughtUp) => caughtUp.position >= position));
  }

  failed(): Promise<void> {
    return this.#until(() => this.errors.length > 0);
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
      });
    }
  }

  #changed(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
