import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { type FunctionCall, ScriptRunner } from '@epitaph/scripts';
import { TURN } from './run.ts';

const runner = new ScriptRunner({ timeMs: 60_000 });
afterAll(() => runner.close());

const evaluate = (sources: Readonly<Record<string, string>>, calls: readonly FunctionCall[]) =>
  runner.evaluate(new Map(Object.entries(sources)), calls, TURN);

describe('User-defined functions', () => {
  it('are called in order, each with its arguments', async () => {
    const calls = [
      { name: 'tax', args: ['{"price":10}'] },
      { name: 'kind', args: [] },
      { name: 'kind', args: [undefined] },
      { name: 'kind', args: ['null', undefined, '3'] },
      { name: 'tax', args: ['{"price":20}'] },
    ];
    const sources = {
      tax: 'function tax(item) { return { tax: item.price / 5 }; }',
      kind: '(...args) => args.length === 0 ? undefined : args.map((arg) => typeof arg).join()',
      unused: 'this is no function',
    };
    expect(await evaluate(sources, calls)).toEqual({
      kind: 'done',
      results: ['{"tax":2}', undefined, '"undefined"', '"object,undefined,number"', '{"tax":4}'],
      workedMs: expect.any(Number),
    });
  });

  it('give back any JSON that they are given', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.jsonValue({ noUnicodeString: false }), { minLength: 30, maxLength: 100 }),
        async (values) => {
          const calls = values.map((value) => ({ name: 'same', args: [JSON.stringify(value)] }));
          const outcome = await evaluate({ same: '(value) => value' }, calls);
          expect(outcome).toMatchObject({ kind: 'done' });
          if (outcome.kind !== 'done') return;
          expect(outcome.results.map((result) => JSON.parse(result!))).toEqual(
            values.map((value) => JSON.parse(JSON.stringify(value))),
          );
        },
      ),
      { numRuns: 3 },
    );
  });

  it('end at the first that throws, which is named', async () => {
    const calls = ['good', 'bad', 'other'].map((name) => ({ name, args: ['1'] }));
    const sources = { good: '(x) => x', other: '() => 2', bad: 'function bad(x) { throw new Error("not " + x); }' };
    expect(await evaluate(sources, calls)).toMatchObject({
      kind: 'threw',
      name: 'bad',
      message: expect.stringMatching(
        /^Exception = Error: not 1\r\nStack trace: Error: not 1\n {4}at bad \(script\.js:1/,
      ),
    });
    const numbered = { bad: 'function () { throw new Error(4444, "no"); };' };
    expect(await evaluate(numbered, [{ name: 'bad', args: [] }])).toMatchObject({ kind: 'threw', number: 4444 });
    expect(await evaluate({ bad: 'no function (' }, [{ name: 'bad', args: [] }])).toMatchObject({
      kind: 'threw',
      name: 'bad',
      message: expect.stringContaining('SyntaxError'),
    });
  });

  it('have no collection, and none of the others', async () => {
    const seen = '() => [typeof getContext, typeof __, typeof console, typeof tax].join()';
    expect(
      await evaluate({ tax: 'function tax() {}', seen }, [
        { name: 'tax', args: [] },
        { name: 'seen', args: [] },
      ]),
    ).toMatchObject({ results: [undefined, '"undefined,undefined,undefined,undefined"'] });
  });

  it('share an engine within an evaluation, and with no other', async () => {
    const count = 'function count() { globalThis.n = (globalThis.n || 0) + 1; return globalThis.n; }';
    const calls = [1, 2, 3].map(() => ({ name: 'count', args: [] }));
    for (let times = 0; times < 2; times++) {
      expect(await evaluate({ count }, calls)).toMatchObject({ results: ['1', '2', '3'] });
    }
  });

  it('may not give too much', async () => {
    const calls = Array.from({ length: 20 }, () => ({ name: 'big', args: [] }));
    expect(await evaluate({ big: '() => "x".repeat(1024 * 1024)' }, calls)).toMatchObject({
      kind: 'threw',
      name: 'big',
      message: expect.stringContaining('The results of functions are too large'),
    });
  });

  it('must be among those that are given', async () => {
    await expect(evaluate({}, [{ name: 'no', args: [] }])).rejects.toThrow('there is no function no');
  });
});
