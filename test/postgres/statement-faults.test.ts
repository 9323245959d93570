import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';
import { FaultyRun } from './statement-faults.ts';

/** The number of statements that are cut here. `npm test -- --config vitest.long.config.ts` cuts all of them, before and after. */
const CUTS = 5;

describe.skipIf(whyNoPostgres !== undefined)(`a store on PostgreSQL${skipReason}`, { timeout: 240_000 }, () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await TestServer.start();
  });
  afterAll(() => server?.dispose());

  it('loses nothing and keeps nothing that it must erase after a statement was cut off, done or not', async () => {
    const { statements } = await FaultyRun.of(server, Number.POSITIVE_INFINITY, 'before');
    for (let number = 1; number <= CUTS; number++) {
      const at = Math.floor((number * statements) / (CUTS + 1));
      const cut = number % 2 === 0 ? 'after' : 'before';
      const { isCut } = await FaultyRun.of(server, at, cut).catch((error: unknown) => {
        throw new Error(`cut ${cut} statement ${at}: ${String(error)}`, { cause: error });
      });
      expect(isCut).toBe(true);
    }
  });
});
