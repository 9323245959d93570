import { describe, expect, it } from 'vitest';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';
import { openEventStoreLog } from '@epitaph/storage/eventstoredb/open-event-store-log.ts';

/** The contract of the event log, with one server for all its tests. Each test uses streams of its own. */
export function describeEventStoreLog(name: string, connectionString: () => string, timeoutMs?: number): void {
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
    { describe, it, expect, spansStreams: false, ...(timeoutMs === undefined ? {} : { timeoutMs }) },
  );
}
