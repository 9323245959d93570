import { afterAll, describe, expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';
import { SharedStorage, TestFolder } from './sqlite-folder.ts';

const framework = { describe, it, expect, spansStreams: true };

describeEventLog(
  'the memory event log',
  async () => {
    const log = new MemoryEventLog();
    return { log, dispose: () => log.close() };
  },
  framework,
);

describeEventLog(
  'the SQLite event log, written inline,',
  async () => {
    const folder = new TestFolder();
    const { log } = await folder.open({ writers: 'inline' });
    return {
      log,
      reopen: async () => {
        await folder.close();
        return (await folder.open({ writers: 'inline' })).log;
      },
      dispose: () => folder.dispose(),
    };
  },
  framework,
);

const threaded = new SharedStorage({ writers: 'threads' });
afterAll(() => threaded.dispose());

describeEventLog(
  'the SQLite event log, written by its thread,',
  async () => ({
    log: (await threaded.get()).log,
    reopen: async () => (await threaded.reopen()).log,
    dispose: async () => {},
  }),
  framework,
);
