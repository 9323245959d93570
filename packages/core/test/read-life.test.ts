import { describe, expect, it } from 'vitest';
import { lastLife, lifeTail, readLife, writeBy } from '@epitaph/core/item/read-life.ts';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';

const STREAM = 'item-rid.hash.0';

const event = (type: string): NewEvent => ({
  id: crypto.randomUUID(),
  type,
  version: 1,
  occurredAtMs: 1_000,
  actor: 'test',
  correlationId: crypto.randomUUID(),
  causationId: crypto.randomUUID(),
  data: {},
  body: new Uint8Array(1),
});

/** A life with this many writes and the events after them. It notes the most events read at once. */
class Life {
  readonly log = new MemoryEventLog();
  mostAtOnce = 0;
  #revision = -1;

  constructor() {
    const readStream = this.log.readStream.bind(this.log);
    this.log.readStream = (stream, part) => {
      const read = readStream(stream, part);
      this.mostAtOnce = Math.max(this.mostAtOnce, read.length);
      return read;
    };
  }

  async append(...types: readonly string[]): Promise<void> {
    const expectedRevision = this.#revision === -1 ? 'no-stream' : this.#revision;
    await this.log.append([{ stream: STREAM, expectedRevision, events: types.map(event) }]);
    this.#revision += types.length;
  }

  async written(writes: number, ...ends: readonly string[]): Promise<this> {
    await this.append(...Array<string>(writes).fill('ItemUpserted'), ...ends);
    return this;
  }

  /** Purges the life, including the truncation. */
  async purge(): Promise<void> {
    await this.append('ItemPurged');
    await this.log.truncateStream(STREAM, this.#revision);
  }

  read(take: (events: readonly RecordedEvent[]) => Promise<void> | void = () => {}): Promise<number[] | undefined> {
    return readLife(
      this.log,
      STREAM,
      (): number[] => [],
      async (revisions, events) => {
        revisions.push(...events.map(({ revision }) => revision));
        expect(events.every(({ body }) => body === undefined)).toBe(true);
        await take(events);
      },
    );
  }
}

const upTo = (revision: number) => Array.from({ length: revision + 1 }, (_, index) => index);

describe('a life', () => {
  it('that never existed is empty', async () => {
    expect(await new Life().read()).toBe(undefined);
    expect(await lifeTail(new Life().log, STREAM)).toEqual([]);
  });

  it.each([1, 2, 255, 256, 257, 511, 512, 513, 1_300])(
    'of %i writes is read completely, in small parts',
    async (writes) => {
      const life = await new Life().written(writes);
      expect(await life.read()).toEqual(upTo(writes - 1));
      expect(life.mostAtOnce).toBeLessThanOrEqual(256);
      await life.append('ItemDeleted', 'ItemPurged');
      expect(await life.read()).toEqual(upTo(writes + 1));
      const tail = await lifeTail(life.log, STREAM);
      expect(tail.map(({ type }) => type)).toEqual(['ItemUpserted', 'ItemDeleted', 'ItemPurged']);
    },
  );

  it.each([1, 254, 255, 256, 257, 1_300])(
    'of %i writes that is purged is read as what is left of it',
    async (writes) => {
      const life = await new Life().written(writes, 'ItemDeleted', 'ItemPurged');
      await life.log.truncateStream(STREAM, writes);
      expect(await life.read()).toEqual([writes, writes + 1]);
      const tail = await lifeTail(life.log, STREAM);
      expect(tail.map(({ type }) => type)).toEqual(['ItemDeleted', 'ItemPurged']);
    },
  );

  it.each([100, 256, 512, 600, 769])('of %i writes that is purged meanwhile is read again', async (writes) => {
    for (let page = 1; page <= Math.ceil(writes / 256); page++) {
      const life = await new Life().written(writes);
      let pages = 0;
      const read = await life.read(async () => {
        if (++pages === page) await life.purge();
      });
      // Either everything, with or without the purge, or what is left.
      expect([upTo(writes - 1), upTo(writes), [writes]]).toContainEqual(read);
    }
  });

  it.each([
    [3, 0],
    [300, 0],
    [300, 100],
    [600, 300],
    [600, 256],
    [1_300, 1_299 - 4],
  ])(
    'of %i writes of which the log has lost that of revision %i is read as what is left of it',
    async (writes, lost) => {
      for (const ends of [[], ['ItemDeleted']]) {
        const life = await new Life().written(writes, ...ends);
        const readStream = life.log.readStream.bind(life.log);
        life.log.readStream = (stream, part) => readStream(stream, part).filter(({ revision }) => revision !== lost);
        const left = upTo(writes + ends.length - 1).filter((revision) => revision !== lost);
        expect(await life.read()).toEqual(left);
      }
    },
  );

  it('that is written meanwhile is read as far as it was', async () => {
    const life = await new Life().written(511);
    let pages = 0;
    const read = await life.read(async () => {
      if (++pages === 1) await life.append('ItemUpserted', 'ItemUpserted');
    });
    expect(read!.slice(0, 511)).toEqual(upTo(510));
  });

  it('that is purged while its end is read ends with its purge', async () => {
    const life = await new Life().written(3, 'ItemDeleted');
    const readBefore = life.log.readBefore.bind(life.log);
    let isPurged = false;
    life.log.readBefore = (event) => {
      if (isPurged) return readBefore(event);
      isPurged = true;
      return life.append('ItemPurged').then(async () => {
        await life.log.truncateStream(STREAM, 3);
        return readBefore(event);
      }) as never;
    };
    const tail = await lifeTail(life.log, STREAM);
    expect(tail.map(({ type }) => type)).toEqual(['ItemDeleted', 'ItemPurged']);
  });

  it('of which the log has lost all writes ends with what is left of it', async () => {
    const life = await new Life().written(2, 'ItemDeleted');
    await life.log.truncateStream(STREAM, 2);
    const readLast = life.log.readLast.bind(life.log);
    let reads = 0;
    life.log.readLast = (stream) => {
      if (++reads > 2) throw new Error('it is read again and again');
      return readLast(stream);
    };
    const tail = await lifeTail(life.log, STREAM);
    expect(tail.map(({ type }) => type)).toEqual(['ItemDeleted']);
  });

  it('has at an instant the last write up to then, including that very millisecond', async () => {
    const { log } = await new Life().written(5);
    log.readStream = (stream, part) => {
      const revision = part?.fromRevision ?? 0;
      return [{ ...event('ItemUpserted'), stream, revision, position: revision, occurredAtMs: 10 * revision }];
    };
    const by = async (atMs: number) => {
      const found = await writeBy(log, STREAM, 4, atMs);
      return typeof found === 'object' ? found.revision : found;
    };
    expect(await Promise.all([-1, 0, 9, 10, 11, 39, 40, 41].map(by))).toEqual([undefined, 0, 0, 1, 1, 3, 4, 4]);
  });
});

describe('the last life of an item', () => {
  it.each([1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1_000])(
    'of %i is found with few reads, from whichever life is known',
    async (lives) => {
      let looks = 0;
      const log = {
        readLast: (stream: string) => {
          looks += 1;
          return Number(stream.split('.').at(-1)) < lives ? ({} as RecordedEvent) : undefined;
        },
      };
      for (let known = 0; known < Math.min(lives, 40); known++) {
        looks = 0;
        expect(await lastLife(log, 'item-rid.hash', known)).toBe(lives - 1);
        expect(looks).toBeLessThanOrEqual(2 * Math.ceil(Math.log2(lives - known + 1)));
      }
      looks = 0;
      expect(await lastLife(log, 'item-rid.hash', lives - 1)).toBe(lives - 1);
      expect(looks).toBe(1);
    },
  );
});
