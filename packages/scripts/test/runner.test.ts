import { afterAll, describe, expect, it } from 'vitest';
import { ScriptRunner } from '@epitaph/scripts';

const runner = new ScriptRunner();
afterAll(() => runner.close());

describe('A script', () => {
  it('is called with its arguments, and answers with the body of its response', async () => {
    const outcome = await runner.run(
      {
        kind: 'stored-procedure',
        name: 'greet',
        source: 'function greet(name) { getContext().getResponse().setBody({ hello: name }); }',
        args: '["ann"]',
        collection: { self: 'dbs/a/colls/b/', alt: 'dbs/shop/colls/carts' },
        logs: false,
      },
      { operate: () => Promise.reject(new Error('it asks for nothing')) },
    );
    expect(outcome).toEqual({ kind: 'done', body: '{"hello":"ann"}', log: '', workedMs: expect.any(Number) });
  });
});
