import { describe, expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { describeEventLog, type EventLogUnderTest } from '@epitaph/core/testing/event-log-contract.ts';
import { type StorageOptions, TestFolder } from './sqlite-folder.ts';

async function sqliteLog(options: StorageOptions): Promise<EventLogUnderTest> {
  const folder = new TestFolder();
  const { log } = await folder.open(options);
  return {
    log,
    reopen: async () => {
      await folder.close();
      return (await folder.open(options)).log;
    },
    dispose: () => folder.dispose(),
  };
}

describeEventLog(
  'the memory event log',
  async () => {
    const log = new MemoryEventLog();
    return { log, dispose: () => log.close() };
  },
  { describe, it, expect, spansStreams: true },
);

describeEventLog('the SQLite event log, written inline,', () => sqliteLog({ writers: 'inline' }), {
  describe,
  it,
  expect,
  spansStreams: true,
});

describeEventLog('the SQLite event log, written by its thread,', () => sqliteLog({ writers: 'threads' }), {
  describe,
  it,
  expect,
  spansStreams: true,
});
