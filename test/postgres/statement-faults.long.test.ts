import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';
import { FaultyRun } from './statement-faults.ts';

describe.skipIf(whyNoPostgres !== undefined)(`a store on PostgreSQL${skipReason}`, { timeout: 7_200_000 }, () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await TestServer.start();
  });
  afterAll(() => server?.dispose());

  it.each(['before', 'after'] as const)(
    'loses nothing and keeps nothing that it must erase, whichever statement is cut off %s it is done',
    async (cut) => {
      const failed: string[] = [];
      const { statements } = await FaultyRun.of(server, Number.POSITIVE_INFINITY, cut);
      for (let at = 1; ; at++) {
        // Vitest itself prints nothing before the end, which takes more than half an hour.
        if (at % 10 === 0)
          process.stdout.write(`${at} of ${statements} statements cut off ${cut}, ${failed.length} failed\n`);
        const run = await FaultyRun.of(server, at, cut).catch((error: unknown) => {
          failed.push(`statement ${at}: ${String((error as Error).stack)}`);
        });
        if (run?.isCut === false) break;
      }
      expect(failed).toEqual([]);
    },
  );
});
