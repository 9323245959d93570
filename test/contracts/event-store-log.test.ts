import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';
import { EventStoreDouble } from '../eventstoredb/double.ts';

let double: EventStoreDouble;
beforeAll(async () => {
  double = await EventStoreDouble.start();
});
afterAll(() => double.stop());

// One event store for all tests, as in life: the suite keeps to streams of its own.
describeEventLog(
  'the EventStoreDB event log, over gRPC with a stand-in for the server,',
  async () => {
    const open = () => openEventStoreLog({ connectionString: double.connectionString });
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
  { describe, it, expect, spansStreams: false },
);
