import { existsSync } from 'node:fs';
import { GenericContainer, type StartedTestContainer, Wait } from 'testcontainers';
import { afterAll, beforeAll, describe, it } from 'vitest';
import { describeEventStoreLog } from './event-store-contract.ts';

/** The contract against real servers: one named by the environment, and images of two generations if Docker is available. */
const IMAGES = ['eventstore/eventstore:24.10', 'kurrentplatform/kurrentdb:25.1'];
const PORT = 2113;
/** Room for an item of 2 MiB; the servers' default is 1 MiB. */
const MAX_APPEND_BYTES = '4194304';
const TIMEOUT_MS = 120_000;
const IMAGE_PULLED_WITHIN_MS = 600_000;

const given = process.env['EPITAPH_TEST_EVENTSTORE'];
const docker = process.env['DOCKER_HOST'] !== undefined || existsSync('/var/run/docker.sock');

if (given === undefined) {
  it.skip('the EventStoreDB event log, on the server named by EPITAPH_TEST_EVENTSTORE: it names none', () => {});
} else {
  describeEventStoreLog(
    'the EventStoreDB event log, on the server named by EPITAPH_TEST_EVENTSTORE,',
    () => given,
    TIMEOUT_MS,
  );
}

for (const image of IMAGES) {
  if (!docker) {
    it.skip(`the EventStoreDB event log, on ${image}: there is no Docker here`, () => {});
    continue;
  }
  describe(image, () => {
    let container: StartedTestContainer;
    beforeAll(async () => {
      const settings = { INSECURE: 'true', MEM_DB: 'true', MAX_APPEND_SIZE: MAX_APPEND_BYTES, NODE_PORT: String(PORT) };
      container = await new GenericContainer(image)
        .withEnvironment(
          Object.fromEntries(
            Object.entries(settings).flatMap(([name, value]) => [
              [`EVENTSTORE_${name}`, value],
              [`KURRENTDB_${name}`, value],
            ]),
          ),
        )
        .withExposedPorts(PORT)
        .withWaitStrategy(Wait.forHttp('/health/live', PORT).forStatusCode(204))
        .start();
    }, IMAGE_PULLED_WITHIN_MS);
    afterAll(() => container.stop());
    describeEventStoreLog(
      `the EventStoreDB event log, on ${image},`,
      () => `esdb://${container.getHost()}:${container.getMappedPort(PORT)}?tls=false`,
      TIMEOUT_MS,
    );
  });
}
