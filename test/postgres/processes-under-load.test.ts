import { afterAll, afterEach, beforeAll, describe, it } from 'vitest';
import { cleanUp } from '../../packages/api/test/cli/process.ts';
import { processesUnderLoad } from './processes-under-load.ts';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterEach(cleanUp);
afterAll(() => server?.dispose());

describe.skipIf(whyNoPostgres !== undefined)(`two processes under load${skipReason}`, () => {
  it('agree on who created what, purge once, and leave nothing that fsck reports', { timeout: 120_000 }, () =>
    processesUnderLoad(server, 2, 3),
  );
});
