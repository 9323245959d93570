import { describe, expect, it } from 'vitest';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { TailSubscription } from '@epitaph/core/log/tail-subscription.ts';
import { turns } from '@epitaph/core/testing/test-framework.ts';
import { recordedEvent } from '@epitaph/core/testing/recorded-event.ts';

const event = (position: number): RecordedEvent =>
  recordedEvent('counter', { type: 'Counted', data: {} }, { position, revision: position - 1 });

/** A log that is asked over a network: what was appended while it reads may be in its answer and in the tail. */
class SlowLog {
  readonly events: RecordedEvent[] = [];
  readonly reads: (() => void)[] = [];
  readonly delivered: number[] = [];
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
          return Promise.resolve();
        },
        onCaughtUp: (position) => this.caughtUp.push(position),
      },
      () => {},
    );
    this.subscription.start();
  }

  append(count: number, deliver = true): void {
    const events = Array.from({ length: count }, (_, index) => event(this.events.length + index + 1));
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
