import { afterAll, beforeAll, describe, it } from 'vitest';
import { skipReason, TestServer, whyNoPostgres } from './server.ts';
import { simulateSkewedNodes } from './skewed-nodes.ts';

const SEEDS = 4;
const STEPS = 50;

let server: TestServer;
beforeAll(async () => {
  if (whyNoPostgres === undefined) server = await TestServer.start();
});
afterAll(() => server?.dispose());

describe.skipIf(whyNoPostgres !== undefined)(`two nodes whose clocks are seconds apart${skipReason}`, () => {
  it(
    `agree under changing policies, through random commands of the seeds 1 to ${SEEDS}`,
    { timeout: 120_000 },
    async () => {
      for (let seed = 1; seed <= SEEDS; seed++) await simulateSkewedNodes(await server.newDatabase(), seed, STEPS);
    },
  );
});
