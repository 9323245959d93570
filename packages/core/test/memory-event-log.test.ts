import { describe, expect, it } from 'vitest';
import { MemoryEventLog } from '@epitaph/core/log/memory/memory-event-log.ts';
import { describeEventLog } from '@epitaph/core/testing/event-log-contract.ts';

describeEventLog(
  'the memory event log',
  () => {
    const log = new MemoryEventLog();
    return Promise.resolve({ log, dispose: () => log.close() });
  },
  { describe, it, expect, spansStreams: true },
);
