import { afterAll, beforeEach, expect, it } from 'vitest';
import { type ScriptAnswer, ScriptRunner } from '@epitaph/scripts';
import { Recorder, script } from './run.ts';

const runner = new ScriptRunner({ threads: 1 });
afterAll(() => runner.close());

const ENDLESS = 'function f() { for (;;); }';
const ASKING = 'function f() { __.readDocument(__.getAltLink() + "/docs/1", () => { for (;;); }); }';
const READING = 'function f() { __.readDocument(__.getAltLink() + "/docs/1"); }';
const SHORT = 'function f() {}';

/** Runs a script, and keeps its name when it is over. */
const done: string[] = [];
beforeEach(() => void done.splice(0));
async function run(name: string, of: string, on = runner): Promise<string> {
  const { kind } = await on.run(script(SHORT), new Recorder(), { of });
  done.push(name);
  return kind;
}

it('Who has asked for many scripts takes turns with who has asked for one', async () => {
  await Promise.all([...['a1', 'a2', 'a3', 'a4'].map((name) => run(name, 'a')), run('b1', 'b'), run('c1', 'c')]);
  expect(done).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'a4']);
});

it('Where too many wait, who waits for none still gets a turn', async () => {
  const small = new ScriptRunner({ threads: 1, waiting: 2 });
  const ofOne = ['a1', 'a2', 'a3', 'a4'].map((name) => run(name, 'a', small));
  const kinds = await Promise.all([...ofOne, run('b1', 'b', small)]);
  await small.close();
  expect(kinds).toEqual(['done', 'done', 'done', 'busy', 'done']);
});

it('A script that nobody waits for any more is ended, and so is one that waits for its turn', async () => {
  const gone = new AbortController();
  const host = new Recorder(() => {
    setTimeout(() => gone.abort(new Error('gone')), 10);
    return { kind: 'done', body: '{}' };
  });
  const start = (source: string) => runner.run(script(source), host, { of: 'a', signal: gone.signal });
  const ended = Promise.all([start(ASKING), start(ASKING)]);
  const next = run('next', 'a');
  const stopped = { kind: 'stopped', error: { message: 'gone' } };
  const [ran, waited] = await ended;
  expect(ran).toMatchObject(stopped);
  expect(ran.workedMs).toBeGreaterThan(0);
  expect(waited).toMatchObject({ ...stopped, workedMs: 0 });
  expect(await next).toBe('done');
  expect(await start(SHORT)).toMatchObject(stopped);
});

it('Who goes away while it waits is told at once, and its place is for others', async () => {
  const small = new ScriptRunner({ threads: 1, waiting: 1 });
  const answered = Promise.withResolvers<ScriptAnswer>();
  const gone = new AbortController();
  let isOver = false;
  const reading = script(READING);
  const first = small.run(reading, new Recorder(() => answered.promise), { of: 'a' }).finally(() => (isOver = true));
  const leaving = small.run(reading, new Recorder(), { of: 'b', signal: gone.signal });
  expect(await run('refused', 'b', small)).toBe('busy');
  gone.abort(new Error('gone'));
  expect(await leaving).toMatchObject({ kind: 'stopped', error: { message: 'gone' }, workedMs: 0 });
  const next = run('next', 'a', small);
  expect(await run('refused', 'a', small)).toBe('busy');
  expect(isOver).toBe(false);
  answered.resolve({ kind: 'done', body: '{}' });
  expect([(await first).kind, await next]).toEqual(['done', 'done']);
  await small.close();
});

it('Who goes away when its script is over ends no other', async () => {
  const gone = new AbortController();
  await runner.run(script(SHORT), new Recorder(), { of: 'a', signal: gone.signal });
  const host = new Recorder(() => {
    gone.abort(new Error('gone'));
    return { kind: 'done', body: '{}' };
  });
  expect(await runner.run(script(READING), host, { of: 'b' })).toMatchObject({ kind: 'done' });
});

it('Functions that nobody waits for any more are ended', async () => {
  const gone = new AbortController();
  const call = (source: string, signal?: AbortSignal) =>
    runner.evaluate(new Map([['f', source]]), [{ name: 'f', args: [] }], { of: 'a', signal });
  const ended = Promise.all([call(ENDLESS, gone.signal), call('(() => { for (;;); })()', gone.signal)]);
  setTimeout(() => gone.abort(new Error('gone')), 50);
  expect(await ended).toMatchObject([{ kind: 'stopped' }, { kind: 'stopped' }]);
  expect(await call('() => 1')).toMatchObject({ kind: 'done', results: ['1'] });
});
