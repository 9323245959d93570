import { existsSync } from 'node:fs';
import { GenericContainer, type StartedTestContainer, Wait } from 'testcontainers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';

/** The contract against real servers: one named by the environment, and images of two generations where Docker is. */
const IMAGES = ['eventstore/eventstore:24.10', 'kurrentplatform/kurrentdb:25.1'];
const PORT = 2113;
/** Room for an item of 2 MiB; the servers' own default is 1 MiB. */
const MAX_APPEND_BYTES = '4194304';
const IMAGE_PULLED_WITHIN_MS = 600_000;

const given = process.env['EPITAPH_TEST_EVENTSTORE'];
const docker = process.env['DOCKER_HOST'] !== undefined || existsSync('/var/run/docker.sock');

if (given === undefined) {
  it.skip('the EventStoreDB event log, on the server named by EPITAPH_TEST_EVENTSTORE: it names none', () => {});
} else {
  describeServer('the EventStoreDB event log, on the server named by EPITAPH_TEST_EVENTSTORE,', () => given);
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
    describeServer(
      `the EventStoreDB event log, on ${image},`,
      () => `esdb://${container.getHost()}:${container.getMappedPort(PORT)}?tls=false`,
    );
  });
}

function describeServer(name: string, connectionString: () => string): void {
  const open = () => openEventStoreLog({ connectionString: connectionString() });
  describeEventLog(
    name,
    async () => {
      const opened = [await open()];
      return {
        log: opened[0]!,
        reopen: async () => {
          opened.push(await open());
          return opened.at(-1)!;
        },
        dispose: async () => {
          for (const log of opened) await log.close();
        },
      };
    },
    { describe, it, expect, spansStreams: false, timeoutMs: 120_000 },
  );
}
