import { Worker } from 'node:worker_threads';
import { describe, expect, it, vi } from 'vitest';
import { ScriptRunner, type ScriptAnswer } from '@epitaph/scripts';
import { bodyOf, Recorder, run, script, TURN } from './run.ts';

const ASKING =
  'function f(name) { __.readDocument(__.getSelfLink() + "docs/" + name, () => __.response.setBody(name)); }';

/** A host that answers only when the test says so. */
function holding(): { readonly host: Recorder; readonly asked: () => Promise<void>; readonly answer: () => void } {
  const asked = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<ScriptAnswer>();
  const host = new Recorder(() => {
    asked.resolve();
    return answered.promise;
  });
  return { host, asked: () => asked.promise, answer: () => answered.resolve({ kind: 'done', body: '{}' }) };
}

describe('A runner', () => {
  it('runs so many beside each other, keeps others waiting in their order, and refuses what is beyond that', async () => {
    const runner = new ScriptRunner({ threads: 1, waiting: 2 });
    const first = holding();
    const ends: string[] = [];
    const runs = ['a', 'b', 'c', 'd'].map(async (name) => {
      const host = name === 'a' ? first.host : new Recorder();
      ends.push(`${name} ${(await run(runner, ASKING, host, { args: JSON.stringify([name]) })).kind}`);
    });
    await first.asked();
    expect(ends).toEqual(['d busy']);
    // Functions don't wait for scripts, which may wait for them.
    expect(await runner.evaluate(new Map([['f', '() => 1']]), [{ name: 'f', args: [] }], TURN)).toMatchObject({
      kind: 'done',
    });
    first.answer();
    await Promise.all(runs);
    expect(ends).toEqual(['d busy', 'a done', 'b done', 'c done']);
    await runner.close();
  });

  it('that is closed ends what runs when nothing is done for it any more, refuses what waits, and takes nothing new', async () => {
    const runner = new ScriptRunner({ threads: 1 });
    const { host, asked, answer } = holding();
    let isOver = false;
    const running = run(runner, ASKING, host, { args: '["a"]' }).finally(() => {
      isOver = true;
    });
    const waiting = run(runner, ASKING);
    await asked();
    await runner.close();
    expect(await waiting).toMatchObject({ kind: 'busy' });
    expect(isOver).toBe(false);
    answer();
    expect(await running).toEqual({ kind: 'busy', log: '', workedMs: 0 });
    expect(await run(runner, '() => {}')).toMatchObject({ kind: 'busy' });
    expect(await runner.evaluate(new Map([['f', '() => 1']]), [{ name: 'f', args: [] }], TURN)).toMatchObject({
      kind: 'busy',
    });
    await runner.close();
  });

  it('that is closed ends what is about to run, and a thread that has nothing to do', async () => {
    const runner = new ScriptRunner({ threads: 1 });
    const begun = run(runner, '() => {}');
    await runner.close();
    expect(await begun).toEqual({ kind: 'busy', log: '', workedMs: 0 });
    const another = new ScriptRunner({ threads: 1 });
    await run(another, '() => {}');
    const terminate = vi.spyOn(Worker.prototype, 'terminate');
    await another.close();
    expect(terminate.mock.settledResults).toMatchObject([{ type: 'fulfilled' }]);
    terminate.mockRestore();
  });

  it('lets what runs come to its end, and refuses the rest, before it is closed', async () => {
    const runner = new ScriptRunner({ threads: 1 });
    const { host, asked, answer } = holding();
    const running = run(runner, ASKING, host, { args: '["a"]' });
    const waiting = run(runner, ASKING);
    await asked();
    runner.refuse();
    expect(await waiting).toMatchObject({ kind: 'busy' });
    expect(await run(runner, '() => {}')).toMatchObject({ kind: 'busy' });
    answer();
    expect(await running).toMatchObject({ kind: 'done' });
    await runner.close();
  });

  it('starts another thread for one that it had to end', async () => {
    const runner = new ScriptRunner({ threads: 1, timeMs: 100 });
    const [ended, next] = await Promise.all([
      run(runner, 'function f() { new Array(4e9).join("x"); }'),
      bodyOf(runner, '() => __.response.setBody("next")'),
    ]);
    expect([ended.kind, next]).toEqual(['out-of-time', 'next']);
    await runner.close();
  });

  it('has no thread more while one that it had to end is on its way out', async () => {
    const gone = new AbortController();
    const isAborted = Promise.withResolvers<void>();
    const isOut = Promise.withResolvers<number>();
    const { terminate } = Worker.prototype;
    const slowly = vi.spyOn(Worker.prototype, 'terminate').mockImplementation(async function (this: Worker) {
      await terminate.call(this);
      return isOut.promise;
    });
    const runner = new ScriptRunner({ threads: 1 });
    const host = new Recorder(() => {
      gone.abort();
      isAborted.resolve();
      return { kind: 'done' };
    });
    const ended = runner.run(script(ASKING, { args: '["a"]' }), host, { ...TURN, signal: gone.signal });
    const next = run(runner, '() => {}');
    let isOver = false;
    void Promise.race([ended, next]).then(() => (isOver = true));
    await isAborted.promise;
    expect(slowly).toHaveBeenCalled();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(isOver).toBe(false);
    isOut.resolve(0);
    expect([(await ended).kind, (await next).kind]).toEqual(['stopped', 'done']);
    slowly.mockRestore();
    await runner.close();
  });

  it('lets go of a thread that nobody has needed for half a minute, and holds no process open by it', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const terminate = vi.spyOn(Worker.prototype, 'terminate');
    const openPorts = () => process.getActiveResourcesInfo().filter((name) => name === 'MessagePort').length;
    const before = openPorts();
    const runner = new ScriptRunner({ threads: 1 });
    try {
      let beside = 0;
      const host = new Recorder(async () => {
        expect(++beside).toBe(1);
        expect(openPorts()).toBe(before + 1);
        await new Promise((resolve) => setImmediate(resolve));
        beside--;
        return { kind: 'done', body: '{}' };
      });
      const ask = async () => (await run(runner, ASKING, host, { args: '["a"]' })).kind;
      for (let times = 0; times < 3; times++) {
        expect(await ask()).toBe('done');
        expect(openPorts()).toBe(before);
        vi.advanceTimersByTime(29_999);
      }
      expect(terminate).not.toHaveBeenCalled();
      vi.advanceTimersByTime(1);
      expect(terminate).toHaveBeenCalledTimes(1);
      // There is one thread at most, as before.
      expect(await Promise.all([ask(), ask()])).toEqual(['done', 'done']);
    } finally {
      vi.useRealTimers();
      terminate.mockRestore();
      await runner.close();
    }
  });

  it('has scripts read more than their memory, which keep nothing of it', async () => {
    // With what the engine is made for, some 17 MB.
    const runner = new ScriptRunner({ threads: 1, memoryBytes: 1024 * 1024 });
    const host = new Recorder(() => ({ kind: 'done', body: JSON.stringify({ text: 'x'.repeat(1024 * 1024) }) }));
    const source = `function f(left) {
      const next = () => {
        if (left-- > 0) __.readDocument(__.getSelfLink() + 'docs/1', (error, { text }) => { __.response.setBody(text.length); next(); });
      };
      next();
    }`;
    expect(await bodyOf(runner, source, host, { args: '[20]' })).toBe(1024 * 1024);
    await runner.close();
  });

  it('tells the time that it is told', async () => {
    const NOW = Date.UTC(2026, 0, 1);
    const runner = new ScriptRunner({ threads: 1, now: () => NOW });
    const source = `() => {
      const times = [Date.now(), +new Date(), +new (class extends Date {})(), Date.parse(Date()), +new (new Date(0).constructor)()];
      __.response.setBody([...times, +new Date(5), new Date(2020, 1).getFullYear(), new Date() instanceof Date, Date.UTC(1970, 0)]);
    }`;
    const [now, made, derived, called, again, ...others] = (await bodyOf(runner, source)) as number[];
    for (const time of [now, made, derived, again]) {
      expect(time).toBeGreaterThanOrEqual(NOW);
      expect(time).toBeLessThan(NOW + 5_000);
    }
    expect(Math.abs(called! - NOW)).toBeLessThan(5_000);
    expect(others).toEqual([5, 2020, true, 0]);
    const outcome = await runner.evaluate(
      new Map([['year', '() => new Date().getUTCFullYear()']]),
      [{ name: 'year', args: [] }],
      TURN,
    );
    expect(outcome).toMatchObject({ results: ['2026'] });
    await runner.close();
  });
});
