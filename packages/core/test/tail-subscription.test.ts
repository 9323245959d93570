import { describe, expect, it } from 'vitest';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { TailSubscription } from '@epitaph/core/log/tail-subscription.ts';
import { turns } from '@epitaph/core/testing/test-framework.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const event = (position: number, request = position): RecordedEvent =>
  recordedEvent(
    'counter',
    { type: 'Counted', data: {} },
    { position, revision: position - 1, correlationId: String(request) },
  );

/** A log behind a network: an event appended during a read may be both in the answer and in the tail. */
class SlowLog {
  readonly events: RecordedEvent[] = [];
  readonly reads: (() => void)[] = [];
  readonly delivered: number[] = [];
  /** The number of events in each delivery. */
  readonly lengths: number[] = [];
  readonly caughtUp: number[] = [];
  readonly subscription: TailSubscription;

  constructor(count: number) {
    this.append(count, false);
    this.subscription = new TailSubscription(
      this,
      0,
      {
        onEvents: (events) => {
          this.delivered.push(...events.map((one) => one.position));
          this.lengths.push(events.length);
          return Promise.resolve();
        },
        onCaughtUp: (position) => this.caughtUp.push(position),
      },
      () => {},
    );
    this.subscription.start();
  }

  append(count: number, deliver = true): void {
    this.#add(
      Array.from({ length: count }, (_, index) => event(this.events.length + index + 1)),
      deliver,
    );
  }

  /** Appends them in one append. */
  appendTogether(count: number): void {
    const first = this.events.length + 1;
    this.#add(
      Array.from({ length: count }, (_, index) => event(first + index, first)),
      true,
    );
  }

  #add(events: readonly RecordedEvent[], deliver: boolean): void {
    this.events.push(...events);
    if (deliver) this.subscription.deliver(events);
  }

  head(): Promise<number> {
    return Promise.resolve(this.events.length);
  }

  /** Answers, when the test lets it, with the events that exist then. */
  async readAll(after: number, maxCount: number): Promise<RecordedEvent[]> {
    await new Promise<void>((resolve) => this.reads.push(resolve));
    return this.events.slice(after, after + maxCount);
  }

  async answerRead(): Promise<void> {
    while (this.reads.length === 0) await turns(1);
    this.reads.shift()!();
    await turns(2);
  }
}

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

describe('a subscription to a log that answers late', () => {
  it('delivers events that were appended during a read once, and then reports that it has caught up', async () => {
    const log = new SlowLog(3);
    await turns(2);
    log.append(2);
    await log.answerRead();
    log.append(1);
    await turns(2);
    expect(log.delivered).toEqual(numbers(6));
    expect(log.caughtUp.at(-1)).toBe(6);
    await log.subscription.unsubscribe();
  });

  it('delivers events that were appended between a full page and the next once', async () => {
    const log = new SlowLog(1_500);
    await turns(2);
    log.append(10);
    await log.answerRead();
    log.append(10);
    await log.answerRead();
    expect(log.delivered).toEqual(numbers(1_520));
    await log.subscription.unsubscribe();
  });

  it('delivers the events of one append together, however many there are', async () => {
    const log = new SlowLog(0);
    await turns(2);
    await log.answerRead();
    // More than it keeps, so it reads them again.
    log.append(10);
    log.appendTogether(5_500);
    log.append(10);
    for (let page = 0; page < 12 && log.delivered.length < 5_520; page++) await log.answerRead();
    expect(log.delivered).toEqual(numbers(5_520));
    expect(log.lengths).toEqual([10, 5_510]);
    await log.answerRead();
    await log.subscription.unsubscribe();
  });

  it('reads again what it could not keep during a read', async () => {
    const log = new SlowLog(1);
    await turns(2);
    for (let batch = 0; batch < 5; batch++) log.append(1_000);
    for (let page = 0; page < 7 && log.delivered.length < 5_001; page++) await log.answerRead();
    expect(log.delivered).toEqual(numbers(5_001));
    log.append(1);
    await turns(2);
    if (log.reads.length > 0) await log.answerRead();
    await turns(2);
    expect(log.delivered).toEqual(numbers(5_002));
    await log.subscription.unsubscribe();
  });
});
