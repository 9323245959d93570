import { cpSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { InlineWriter, type Job, type JobOutcome, type WriterCore } from '@epitaph/storage/sqlite/writer.ts';
import { TestFolder } from './sqlite-folder.ts';

/** Writes nothing, and remembers which jobs came in one group. */
class Groups implements WriterCore {
  readonly seen: string[][] = [];

  execute(jobs: readonly Job[]): JobOutcome[] {
    this.seen.push(jobs.map((job) => job.kind));
    return jobs.map(({ kind }) => ({ ok: true, value: kind }));
  }

  close(): void {}
}

describe('the groups of jobs that a writer makes', () => {
  let core: Groups;
  let writer: InlineWriter;
  const client = (name: number) => writer.submit<string>({ kind: `client ${name}` });
  const purge = (name: number, job: Partial<Job> = {}) =>
    writer.submit<string>({ kind: `purge ${name}`, ...job }, { background: true });
  const some = <Value>(count: number, make: (index: number) => Value) =>
    Array.from({ length: count }, (_, i) => make(i));
  const ofClients = (group: readonly string[]) => group.filter((kind) => kind.startsWith('client')).length;

  beforeEach(() => {
    core = new Groups();
    writer = new InlineWriter(core);
  });
  afterEach(() => writer.close());

  it('leave room for the purge while clients write more than a group holds', async () => {
    await Promise.all([...some(500, client), ...some(40, (name) => purge(name))]);
    const beside = core.seen.filter((group) => ofClients(group) > 0);
    expect(beside[0]!.length - ofClients(beside[0]!)).toBeGreaterThan(0);
    expect(Math.max(...beside.map((group) => group.length - ofClients(group)))).toBeLessThanOrEqual(32);
  });

  it('count the weight of background jobs', async () => {
    await Promise.all(some(6, (name) => purge(name, { weight: 100 })));
    expect(core.seen.map((group) => group.length)).toEqual([3, 3]);
  });

  it('have jobs that must be alone in groups of their own, with clients’ jobs in between', async () => {
    const jobs = some(4, (name) => purge(name, { weight: 32, apart: true }));
    await Promise.all([client(0), ...jobs.slice(0, 2), ...some(40, (name) => client(name + 1)), ...jobs.slice(2)]);
    for (const group of core.seen) expect([0, group.length]).toContain(ofClients(group));
    const kinds = core.seen.map((group) => (ofClients(group) > 0 ? 'clients' : 'apart')).join(' ');
    expect(kinds).toBe('apart clients apart clients apart apart');
  });

  it('are answered in order, however many are answered at a time', async () => {
    const told: string[] = [];
    await Promise.all(some(300, (name) => purge(name).then((kind) => told.push(kind))));
    expect(told).toEqual(some(300, (name) => `purge ${name}`));
    expect(core.seen.flat()).toEqual(told);
  });
});

describe('the threads of writers', () => {
  const folders: TestFolder[] = [];
  const started = { count: 0 };
  const onWorker = () => {
    started.count += 1;
  };
  const open = async () => {
    const folder = new TestFolder();
    folders.push(folder);
    await folder.open({ writers: 'threads' });
  };
  const closeAll = () => Promise.all(folders.splice(0).map((folder) => folder.dispose()));

  beforeEach(async () => {
    // Uses up the threads that another test file has left.
    await Promise.all([open(), open()]);
    await closeAll();
    started.count = 0;
    process.on('worker', onWorker);
  });
  afterEach(async () => {
    process.off('worker', onWorker);
    await closeAll();
  });

  it('are kept for the next store of the process: those of one store', async () => {
    await open();
    await closeAll();
    await open();
    expect(started.count).toBe(0);
    await open();
    expect(started.count).toBe(2);
    await closeAll();
    await open();
    expect(started.count).toBe(2);
  });

  it('are kept if they could not open their files', async () => {
    const folder = new TestFolder();
    folders.push(folder);
    await folder.open();
    await folder.close();
    const vault = new DatabaseSync(folder.file('vault.db'));
    vault.exec('PRAGMA user_version = 999');
    vault.close();
    await expect(folder.open({ writers: 'threads' })).rejects.toThrow(/newer/u);
    await open();
    expect(started.count).toBe(0);
  });
});

describe('the table of streams', () => {
  const folders: TestFolder[] = [];
  const folder = () => {
    const made = new TestFolder();
    folders.push(made);
    return made;
  };
  afterEach(async () => {
    for (const made of folders.splice(0)) await made.dispose();
  });

  const event = (at: number): NewEvent => ({
    id: crypto.randomUUID(),
    type: 'Happened',
    version: 1,
    data: { at },
    occurredAtMs: at,
    actor: 'test',
    correlationId: crypto.randomUUID(),
    causationId: crypto.randomUUID(),
  });

  it('is filled group by group, and every stream’s end is found, also after a crash in the middle', async () => {
    const one = folder();
    const { log } = await one.open({ durable: false });
    const name = (number: number) => `stream-${(number * 7_919) % 10_007}`;
    const write = (number: number) =>
      log.append([{ stream: name(number), expectedRevision: 'no-stream', events: [event(number)] }]);
    for (let number = 1; number <= 4_100; number++) await write(number);
    // Appends again to a stream that may be in the table by now, and to one that may not.
    for (const number of [1, 4_000]) {
      await log.append([{ stream: name(number), expectedRevision: 0, events: [event(number)] }]);
    }
    const asOf = () => {
      const database = new DatabaseSync(one.file('log.db'), { readOnly: true });
      const { position } = database.prepare('SELECT position FROM streams_as_of').get() as { position: number };
      database.close();
      return position;
    };
    expect(asOf()).toBe(0);
    const crashed = folder();
    cpSync(one.path, crashed.path, { recursive: true });
    rmSync(crashed.file('lock'), { force: true });
    for (let number = 4_101; number <= 4_130; number++) await write(number);
    expect(asOf()).toBe(4_096);

    const after = await crashed.open({ durable: false });
    for (const found of [log, after.log]) {
      for (let number = 1; number <= 4_100; number++) {
        const last = await found.readLast(name(number));
        expect([last?.revision, last?.data]).toEqual([number === 1 || number === 4_000 ? 1 : 0, { at: number }]);
      }
    }
    for (const number of [1, 2, 4_000, 4_099]) {
      const revision = number === 1 || number === 4_000 ? 1 : 0;
      for (const found of [log, after.log]) {
        const again = { stream: name(number), expectedRevision: revision - 1, events: [event(number)] };
        const first = revision === 0 ? { ...again, expectedRevision: 'no-stream' as const } : again;
        expect((await found.append([first])).kind).toBe('conflict');
        expect((await found.append([{ ...again, expectedRevision: revision }])).kind).toBe('appended');
      }
    }
  });

  it('is supplemented by the last events of streams in memory, of which fewer are kept if they are large', async () => {
    const { log } = await folder().open({ durable: false });
    const write = (stream: string, body = '') => {
      const events = [{ ...event(0), data: { body } }];
      return log.append([{ stream, expectedRevision: 'no-stream', events }]);
    };
    await write('a');
    const kept = await log.readLast('a');
    expect(await log.readLast('a')).toBe(kept);
    for (const stream of ['b', 'c']) await write(stream, 'x'.repeat(512 * 20_001));
    const read = await log.readLast('a');
    expect(read).not.toBe(kept);
    expect(read).toEqual(kept);
  });

  it('that can’t be written for a while, as on a full disk, has every stream afterwards', async () => {
    const one = folder();
    let { log } = await one.open({ durable: false });
    const name = (number: number) => `stream-${number}`;
    const write = (...numbers: readonly number[]) =>
      log.append(
        numbers.map((number) => ({ stream: name(number), expectedRevision: 'no-stream', events: [event(number)] })),
      );
    await write(...Array.from({ length: 4_000 }, (_, number) => number));
    const intruder = new DatabaseSync(one.file('log.db'));
    intruder.exec(`CREATE TRIGGER full BEFORE INSERT ON streams WHEN new.name < '${name(3)}'
      BEGIN SELECT raise(ABORT, 'full'); END`);
    await expect(write(...Array.from({ length: 97 }, (_, number) => 4_000 + number))).rejects.toThrow('full');
    await expect(write(4_000)).resolves.toMatchObject({ kind: 'appended' });
    intruder.exec('DROP TRIGGER full');
    intruder.close();
    for (let number = 4_001; number < 4_095; number++) await write(number);
    await write(4_095, 4_096);
    for (let number = 4_097; number < 4_200; number++) await write(number);
    await one.close();
    ({ log } = await one.open({ durable: false }));
    for (let number = 0; number < 4_200; number++) {
      expect(await write(number)).toMatchObject({ kind: 'conflict', actualRevision: 0 });
    }
  });

  it('may be ahead of the log’s acknowledged head; a stream still has each event once', async () => {
    const one = folder();
    const { log: first } = await one.open({ durable: false });
    await first.append([{ stream: 'a', expectedRevision: 'no-stream', events: [event(0)] }]);
    await one.close();
    let onWritten = () => {};
    const { log } = await one.open({ durable: false, onStep: (step) => step === 'log: after commit' && onWritten() });
    onWritten = () => void log.readLast('a');
    const others = Array.from({ length: 4_095 }, (_, number) => ({
      stream: `b${number}`,
      expectedRevision: 'no-stream' as const,
      events: [event(number)],
    }));
    await log.append([{ stream: 'a', expectedRevision: 0, events: [event(1)] }, ...others]);
    const revisions = (await log.readStream('a')).map(({ revision }) => revision);
    expect(revisions).toEqual([0, 1]);
  });

  it('may be ahead of the log’s acknowledged head; reading in order ends at that head', async () => {
    const one = folder();
    let onWritten = () => {};
    const { log } = await one.open({ durable: false, onStep: (step) => step === 'log: after commit' && onWritten() });
    await log.append([{ stream: 'a', expectedRevision: 'no-stream', events: [event(0)] }]);
    const seen: unknown[] = [];
    onWritten = () => seen.push(log.head(), (log.readAll(0, 10) as RecordedEvent[]).length);
    await log.append([{ stream: 'a', expectedRevision: 0, events: [event(1)] }]);
    expect(seen).toEqual([1, 1]);
    expect([log.head(), (await log.readAll(0, 10)).length]).toEqual([2, 2]);
  });
});
