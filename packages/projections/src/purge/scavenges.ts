import type { CommandContext } from '@epitaph/core/command-context.ts';
import { newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog, Scavenge } from '@epitaph/core/log/event-log.ts';
import type { RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { parseEvent } from '@epitaph/core/upcast.ts';
import { z } from 'zod';

export const SCAVENGES_STREAM = 'purge-scavenges';
const TYPE = 'ScavengeStarted';
const VERSION = 1;

const started = z.object({
  /** The event store's name for the run. */
  scavengeId: z.string(),
  /** Lives purged by then; the space of later ones waits for the next run. */
  purgedBefore: z.int(),
});

export interface LastScavenge extends Scavenge {
  readonly startedAtMs: number;
  readonly purgedBefore: number;
}

/** The runs that operators have had started, as recorded facts. Only logs that keep what was truncated have any. */
export class Scavenges {
  readonly #log: EventLog;

  constructor(log: EventLog) {
    this.#log = log;
  }

  /** Undefined where nobody has started any. */
  async last(): Promise<LastScavenge | undefined> {
    const recorded = await this.#log.readLast(SCAVENGES_STREAM);
    if (recorded === undefined || this.#log.scavenging === undefined) return undefined;
    const { scavengeId, purgedBefore } = dataOf(recorded);
    const { state } = await this.#log.scavenging.find(scavengeId);
    return { id: scavengeId, state, startedAtMs: recorded.occurredAtMs, purgedBefore };
  }

  /** Starts a run and puts it on record; one that is under way already is not put on record again. */
  async start(context: CommandContext, purgedBefore: number): Promise<void> {
    const { scavenging } = this.#log;
    if (scavenging === undefined) return;
    const { id: scavengeId } = await scavenging.start();
    for (;;) {
      const last = await this.#log.readLast(SCAVENGES_STREAM);
      if (last !== undefined && dataOf(last).scavengeId === scavengeId) return;
      const event = newEvent(context, { type: TYPE, data: { scavengeId, purgedBefore } }, VERSION);
      const expectedRevision = last?.revision ?? 'no-stream';
      const result = await this.#log.append([{ stream: SCAVENGES_STREAM, expectedRevision, events: [event] }]);
      if (result.kind === 'appended') return;
    }
  }
}

function dataOf(event: RecordedEvent): z.infer<typeof started> {
  return parseEvent(event, { [TYPE]: started }, { [TYPE]: VERSION }, {}).data as z.infer<typeof started>;
}
