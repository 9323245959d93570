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

/** A log that is asked over a network: what was appended while it reads may be in its answer and in the tail. */
class SlowLog {
  readonly events: RecordedEvent[] = [];
  readonly reads: (() => void)[] = [];
  readonly delivered: number[] = [];
  /** How many came together. */
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

  /** The same, all at once. */
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

  /** Answers with what is there when the test lets it. */
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
  it('delivers once what was appended while a page was read, and tells that it has caught up after it', async () => {
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

  it('delivers once what was appended between a full page and the next', async () => {
    const log = new SlowLog(1_500);
    await turns(2);
    log.append(10);
    await log.answerRead();
    log.append(10);
    await log.answerRead();
    expect(log.delivered).toEqual(numbers(1_520));
    await log.subscription.unsubscribe();
  });

  it('delivers whole what was appended at once, however much that is', async () => {
    const log = new SlowLog(0);
    await turns(2);
    await log.answerRead();
    // More than it keeps, so that it reads it again.
    log.append(10);
    log.appendTogether(5_500);
    log.append(10);
    for (let page = 0; page < 12 && log.delivered.length < 5_520; page++) await log.answerRead();
    expect(log.delivered).toEqual(numbers(5_520));
    expect(log.lengths).toEqual([10, 5_510]);
    await log.answerRead();
    await log.subscription.unsubscribe();
  });

  it('reads again what it could not keep while it read', async () => {
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
