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

describe.skipIf(whyNoPostgres !== undefined)(`processes under load for a minute${skipReason}`, () => {
  it.each([2, 3])('%i of them agree on who created what, purge once, and leave nothing that fsck reports', (count) =>
    processesUnderLoad(server, count, 60),
  );
});
