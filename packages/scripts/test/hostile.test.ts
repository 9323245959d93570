import { Worker } from 'node:worker_threads';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { ScriptRunner } from '@epitaph/scripts';
import { bodyOf, failureOf, pages, Recorder, run, TURN } from './run.ts';

const TIME_MS = 100;

const MEMORY_BYTES = 24 * 1024 * 1024;

/** With time that suffices on a machine that has much to do. */
const runner = new ScriptRunner({ memoryBytes: MEMORY_BYTES, timeMs: 30_000 });
const hasty = new ScriptRunner({ memoryBytes: MEMORY_BYTES, timeMs: TIME_MS });
afterAll(async () => {
  await runner.close();
  await hasty.close();
});

/** Those that stay within one function of the engine, where no limit is checked, are ended by terminating their thread. */
const ENDLESS = {
  'a loop': 'for (;;);',
  'a loop that catches what ends it': 'for (;;) { try { for (;;); } catch { } finally { continue; } }',
  'a regular expression that backtracks': '/(a+)+$/.test("a".repeat(40) + "b")',
  'jobs of promises': 'const again = () => Promise.resolve().then(again); again();',
  'jobs of promises that catch':
    'const again = () => { try { for (;;); } finally { return Promise.resolve().then(again, again); } }; again();',
  'a getter while it is told what was thrown': 'throw { get number() { for (;;); } }',
  'a body that is not to be had': '__.response.setBody({ toJSON() { for (;;); } })',
  'joining four billion nothings': 'new Array(4e9).join("x")',
  'sorting them': 'new Array(4e9).sort()',
  'looking through what is no array': 'Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)',
  'reading for ever':
    'const next = () => { if (!__.readDocument(__.getSelfLink() + "docs/1", next)) for (;;); }; next();',
};

const LARGE = {
  arrays: 'const all = []; for (;;) all.push(new Array(1e5).fill(1));',
  'arrays, caught':
    'const all = []; for (;;) { try { for (;;) all.push(new Array(1e5).fill(1)); } catch (e) { all.push(e); if (all.length % 7 === 0) throw e; } }',
  buffers: 'const all = []; for (;;) all.push(new ArrayBuffer(1e6));',
  strings: 'const all = []; for (let n = 0; ; n++) all.push(("x" + n).repeat(1e5));',
};

const DEEP = {
  recursion: '(function f() { f(); })()',
  'brackets in JSON': 'JSON.parse("[".repeat(1e6))',
  'brackets in a program': 'eval("(" + "(".repeat(1e5))',
  'braces in a program': 'eval("{".repeat(1e5))',
  'groups in a regular expression': 'new RegExp("(?:".repeat(1e5))',
  'a class of its own text': 'const o = { toString() { return "" + o; } }; "" + o',
  proxies: 'let p = {}; for (let n = 0; n < 1e4; n++) p = new Proxy(p, {}); p.x',
};

describe('A script that does not come to an end', () => {
  it.concurrent.each(Object.entries(ENDLESS))('by %s is ended', async (_, does) => {
    const startedAt = performance.now();
    expect(await failureOf(hasty, `function f() { ${does} }`)).toBe('out-of-time');
    expect(performance.now() - startedAt).toBeGreaterThan(TIME_MS * 0.9);
  });

  it('holds up nobody meanwhile', async () => {
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await Promise.all([
      failureOf(hasty, 'function f() { new Array(4e9).join("x"); }'),
      failureOf(hasty, 'function f() { for (;;); }'),
    ]);
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(10);
  });

  it('has its log kept where the engine can still be asked', async () => {
    const source = 'function f() { console.log("as far as here"); for (;;); }';
    expect(await run(hasty, source, undefined, { logs: true })).toMatchObject({
      kind: 'out-of-time',
      log: 'as far as here',
    });
  });

  it('is over only when what was done for it is over', async () => {
    let isDone = false;
    const host = new Recorder(async () => {
      await new Promise((resolve) => setTimeout(resolve, TIME_MS + 400));
      isDone = true;
      return { kind: 'done', body: '{}' };
    });
    expect(await failureOf(hasty, 'function f() { __.createDocument(__.getSelfLink(), {}); }', host)).toBe(
      'out-of-time',
    );
    expect(isDone).toBe(true);
  });
});

describe('A script that takes too much', () => {
  it.each(Object.entries(LARGE))('memory, by %s, is ended', async (_, does) => {
    expect(await failureOf(runner, `function f() { ${does} }`)).toBe('out-of-memory');
  });

  it('memory at once is ended, and not for what it may have', async () => {
    const holding = (bytes: number) => failureOf(runner, `function f() { new ArrayBuffer(${bytes}); throw 'held'; }`);
    expect(await holding(MEMORY_BYTES * 0.9)).toBe('Exception = held');
    expect(await holding(MEMORY_BYTES * 1.8)).toBe('out-of-memory');
    // More than any engine may have, which none is asked for.
    expect(await holding(2 ** 31 - 1)).toBe('out-of-memory');
  });

  it.each(Object.entries(DEEP))('of the stack, by %s, is ended', async (_, does) => {
    expect(await failureOf(runner, `function f() { ${does} }`)).toMatch(/stack overflow|too many|nested/i);
  });

  it('leaves nothing of that to the next', async () => {
    for (const does of ['const all = []; for (;;) all.push(new ArrayBuffer(1e6));', 'eval("(".repeat(1e5))']) {
      await failureOf(runner, `function f() { ${does} }`);
      expect(await bodyOf(runner, '() => __.response.setBody("x".repeat(1e6).length)')).toBe(1e6);
    }
  });
});

describe('A script that puts something else in the place of what is used', () => {
  const ESTATE = `
    const { getOwnPropertyNames } = Object;
    for (const type of [Object, Array, String, Number, Function, Promise, RegExp, Map]) {
      for (const name of getOwnPropertyNames(type.prototype)) {
        if (name !== 'constructor' && name !== '__proto__') try { type.prototype[name] = () => { throw 'replaced'; }; } catch { }
      }
      for (const name of getOwnPropertyNames(type)) try { type[name] = () => { throw 'replaced'; }; } catch { }
    }
    Array.prototype[Symbol.iterator] = () => { throw 'replaced'; };
    JSON.stringify = JSON.parse = Reflect.apply = Date.now = () => { throw 'replaced'; };
    String = Number = Promise = Error = InternalError = undefined;`;

  it('asks, is answered, and answers as others do', async () => {
    const host = new Recorder();
    const source = `function f() {
      const make = __.createDocument, link = __.getSelfLink(), response = __.response;
      ${ESTATE}
      make(link, { id: '1' }, (error, document) => response.setBody({ id: document.id, error }));
    }`;
    expect(await bodyOf(runner, source, host)).toEqual({ id: '1' });
    expect(host.operations).toEqual([{ kind: 'create', body: '{"id":"1"}', makesId: true }]);
  });

  it('queries by functions as others do', async () => {
    const documents = [{ id: '2' }, { id: '1' }, { id: '3' }];
    const source = `function f() {
      const begin = __.chain, response = __.response;
      ${ESTATE}
      begin().filter((d) => d.id < 3).sortBy((d) => d.id).pluck('id').value((e, rows) => response.setBody(rows));
    }`;
    expect(await bodyOf(runner, source, pages(documents, 2))).toEqual(['1', '2']);
  });

  it('fails by its own error', async () => {
    expect(await failureOf(runner, `function f() { ${ESTATE} throw 'mine'; }`)).toBe('Exception = mine');
    expect(await failureOf(runner, `function f() { ${ESTATE} null.x; }`)).toContain('TypeError: cannot read property');
  });

  it.each([
    [
      'toJSON of everything',
      `Object.prototype.toJSON = String.prototype.toJSON = function () { return { kind: 'delete' }; };`,
    ],
    [
      'members of everything',
      `Object.prototype.kind = 'delete'; Object.prototype.link = 'dbs'; Object.prototype.ifMatch = 'e';`,
    ],
    ['a setter for what is next', `Object.defineProperty(Object.prototype, 'next', { set() { throw 'set'; } });`],
  ])('asks for nothing but what it asks for, with %s', async (_, does) => {
    const host = new Recorder();
    const source = `function f() { ${does} __.createDocument(__.getSelfLink(), '{"id":"1"}', () => {}); }`;
    await run(runner, source, host);
    expect(host.operations).toEqual([{ kind: 'create', body: '{"id":"1"}', makesId: true }]);
  });

  it('fails where the engine needs what it has taken', async () => {
    const host = new Recorder();
    const source = `function f() {
      Object.defineProperty(Array.prototype, '0', { set() { throw 'set'; } });
      __.createDocument(__.getSelfLink(), {});
    }`;
    expect(await failureOf(runner, source, host)).toBe('Exception = an error that cannot be told');
    expect(host.operations).toEqual([]);
  });

  it('has nothing of Node.js, nor of the thread', async () => {
    const source = `function f() {
      const names = ['process', 'require', 'module', 'fetch', 'WebAssembly', 'Buffer', 'setTimeout', 'postMessage', 'prelude', 'std', 'os', 'Atomics', ];
      const make = Function('return this.process || this.require');
      __.response.setBody([names.filter((name) => globalThis[name] !== undefined), make() === undefined]);
    }`;
    const [found, isNone] = (await bodyOf(runner, source)) as [string[], boolean];
    expect(found).toEqual([]);
    expect(isNone).toBe(true);
    expect(await failureOf(runner, 'async function f() { await import("node:fs"); }')).toMatch(/^Exception = /);
  });

  it('cannot get at the prelude by what it is handed', async () => {
    const source = `function f() { __.response.setBody([typeof f.caller, f.arguments === null || f.arguments === undefined]); }`;
    const [caller] = (await bodyOf(runner, source).catch(() => ['undefined'])) as [string];
    expect(caller).not.toBe('function');
  });
});

describe('Functions that do not come to an end', () => {
  it.each([
    ['for (;;);', 'out-of-time'],
    ['new Array(4e9).join("x")', 'out-of-time'],
    ['const all = []; for (;;) all.push(new ArrayBuffer(1e6));', 'out-of-memory'],
    ['new ArrayBuffer(2 ** 31 - 1)', 'out-of-memory'],
  ])('are ended: %s', async (does, kind) => {
    const functions = new Map([['f', `function f() { ${does} }`]]);
    const able = kind === 'out-of-time' ? hasty : runner;
    expect(await able.evaluate(functions, [{ name: 'f', args: [] }], TURN)).toMatchObject({ kind });
  });

  it('are ended where their text does not come to an end', async () => {
    const functions = new Map([['f', '(function () { for (;;); })()']]);
    expect(await hasty.evaluate(functions, [{ name: 'f', args: [] }], TURN)).toMatchObject({ kind: 'out-of-time' });
  });
});

describe('A script that has left no memory', () => {
  it.each([1e6, 1e4, 100])('does not go on, by pieces of %d bytes', async (size) => {
    const host = new Recorder();
    const source = `function f() {
      const all = globalThis.all = [];
      try { for (;;) all.push(new ArrayBuffer(${size})); } catch { }
      __.createDocument(__.getSelfLink(), {});
    }`;
    expect(await failureOf(runner, source, host)).toBe('out-of-memory');
    expect(host.operations).toEqual([]);
  });

  it('is told so where it cannot take an answer', async () => {
    const host = new Recorder(() => ({ kind: 'done', body: JSON.stringify('x'.repeat(MEMORY_BYTES * 2)) }));
    expect(await failureOf(runner, `function f() { __.readDocument(__.getAltLink() + '/docs/1'); }`, host)).toBe(
      'out-of-memory',
    );
  });
});

describe('A thread that does not keep to what it is to say', () => {
  afterEach(() => void vi.restoreAllMocks());

  const BEGUN = { kind: 'begun' };
  const READ = { kind: 'operation', operation: { kind: 'read', link: 'l' } };
  const DONE = { kind: 'script', outcome: { kind: 'done', body: '1', log: '', workedMs: 0 } };
  const RESULTS = { kind: 'functions', outcome: { kind: 'done', results: ['1'], workedMs: 0 } };
  const BROKEN = { kind: 'threw', message: 'the engine is broken' };

  /** Threads say the first when they are given something to do, and the others when they are answered. */
  function saying(first: readonly unknown[], then: readonly unknown[] = []) {
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker, message: object) {
      for (const said of 'task' in message ? first : then) this.emit('message', said);
    });
    return vi.spyOn(Worker.prototype, 'terminate');
  }

  it.each([
    ['what nobody knows', [BEGUN, { kind: 'other' }], 0],
    ['that it begins, once more', [BEGUN, BEGUN], 0],
    ['what it wants, before it is answered', [BEGUN, READ, READ], 1],
    ['that it is over, before it is answered', [BEGUN, READ, DONE], 1],
    ['what functions have come to', [BEGUN, RESULTS], 0],
    ['that it is over, before it has begun', [DONE], 0],
  ])('is ended where it says %s', async (_, said, operations) => {
    const ended = saying(said);
    const host = new Recorder();
    expect(await run(runner, '() => {}', host)).toMatchObject(BROKEN);
    expect(host.operations).toHaveLength(operations);
    expect(ended).toHaveBeenCalled();
    vi.restoreAllMocks();
    expect(await bodyOf(runner, '() => __.response.setBody(1)')).toBe(1);
  });

  it('is ended where it wants more than scripts can, and more for functions than their results', async () => {
    saying([BEGUN, READ], [READ]);
    const host = new Recorder();
    expect(await run(runner, '() => {}', host)).toMatchObject(BROKEN);
    expect(host.operations).toHaveLength(20_000);
    for (const said of [READ, DONE]) {
      saying([BEGUN, said]);
      expect(await runner.evaluate(new Map([['f', '']]), [{ name: 'f', args: [] }], TURN)).toMatchObject(BROKEN);
    }
  });

  it.each([
    [
      'its heap is full',
      Object.assign(new Error('heap'), { code: 'ERR_WORKER_OUT_OF_MEMORY' }),
      { kind: 'out-of-memory' },
    ],
    ['it fails', new Error('no such file'), { kind: 'threw', message: 'no such file' }],
  ])('has what it was at ended where %s', async (_, error, outcome) => {
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker) {
      this.emit('error', error);
    });
    expect(await run(runner, '() => {}')).toEqual({ ...outcome, log: '', workedMs: 0 });
    vi.restoreAllMocks();
    expect(await bodyOf(runner, '() => __.response.setBody(1)')).toBe(1);
  });

  it('has what it was at ended where it is gone', async () => {
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker) {
      void this.terminate();
    });
    expect(await run(runner, '() => {}')).toMatchObject({ kind: 'threw', message: 'the thread ended' });
  });

  it('is not believed that it has worked for longer than it had', async () => {
    for (const workedMs of [1e9, Number.POSITIVE_INFINITY]) {
      saying([BEGUN, { ...DONE, outcome: { ...DONE.outcome, workedMs } }]);
      expect((await run(runner, '() => {}')).workedMs).toBeLessThan(60_000);
      saying([BEGUN, { ...RESULTS, outcome: { ...RESULTS.outcome, workedMs } }]);
      const { workedMs: told } = await runner.evaluate(new Map([['f', '']]), [{ name: 'f', args: [] }], TURN);
      expect(told).toBeLessThan(60_000);
    }
  });

  it('is not heard once it has said that it is over', async () => {
    saying([BEGUN, DONE, READ, { kind: 'other' }]);
    const host = new Recorder();
    expect(await run(runner, '() => {}', host)).toMatchObject({ kind: 'done', body: '1' });
    expect(host.operations).toEqual([]);
  });
});
