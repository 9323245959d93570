import { expect, it } from 'vitest';
import { afterReading } from '@epitaph/api/cosmos/long-texts.ts';
import type { CosmosRequest } from '@epitaph/api/cosmos/request.ts';

const ANSWER = { status: 200, body: null, charge: 1 };
const request = (characters: number, headers: CosmosRequest['headers'], signal = new AbortController().signal) =>
  ({ headers, body: Buffer.alloc(characters), signal: () => signal }) as unknown as CosmosRequest;
const query = { 'x-ms-documentdb-isquery': 'true' };

function work(milliseconds: number): void {
  const untilMs = performance.now() + milliseconds;
  while (performance.now() < untilMs);
}

it('long queries are parsed one at a time, with as much time for other work in between, and not for clients that have left', async () => {
  const begun: string[] = [];
  const begin = (name: string) => () => {
    begun.push(name);
    work(30);
    return ANSWER;
  };
  const gone = new AbortController();
  const startedMs = performance.now();
  const first = afterReading(request(20_000, query), begin('first'));
  const second = afterReading(request(20_000, { 'x-ms-cosmos-is-query-plan-request': 'True' }), begin('second'));
  const third = Promise.resolve(afterReading(request(20_000, query, gone.signal), begin('third')));
  gone.abort(new Error('gone'));
  await expect(third).rejects.toThrow('gone');
  await first;
  expect(begun).toEqual(['first']);
  expect(await second).toBe(ANSWER);
  expect(performance.now() - startedMs).toBeGreaterThanOrEqual(89);
});

it('short queries, and invalid ones, do not wait', () => {
  expect(afterReading(request(2_000, query), () => ANSWER)).toBe(ANSWER);
  expect(afterReading(request(20_000, {}), () => ANSWER)).toBe(ANSWER);
});
