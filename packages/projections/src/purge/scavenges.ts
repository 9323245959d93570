import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog, Scavenge } from '@epitaph/core/log/event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type EventOf, parseEvent, versionsOf } from '@epitaph/core/upcast.ts';
import { z } from 'zod';

export const SCAVENGES_STREAM = 'purge-scavenges';

/** A node has seen that a run is due by the schedule, and is about to start it. */
const claimed = z.object({});
const started = z.object({
  /** The event store's name for the run. */
  scavengeId: z.string(),
  /** Lives purged by then; the space of later ones waits for the next run. */
  purgedBefore: z.int(),
});

const schemas = { ScavengeClaimed: claimed, ScavengeStarted: started };
const versions = versionsOf(schemas);
type ScavengeEvent = EventOf<typeof schemas>;

/** After which a node that claimed a run and did not start it is taken to have died over it. */
export const CLAIM_MS = 60_000;

export interface LastScavenge extends Scavenge {
  readonly startedAtMs: number;
  readonly purgedBefore: number;
}

/** The runs that operators and the schedule have had started, as recorded facts. Only logs that keep what was truncated have any. */
export class Scavenges {
  readonly #log: EventLog;

  constructor(log: EventLog) {
    this.#log = log;
  }

  /** Undefined where nobody has started any. */
  async last(): Promise<LastScavenge | undefined> {
    const recorded = await this.#lastStart();
    if (recorded === undefined || this.#log.scavenging === undefined) return undefined;
    const { scavengeId, purgedBefore } = startOf(recorded);
    const { state } = await this.#log.scavenging.find(scavengeId);
    return { id: scavengeId, state, startedAtMs: recorded.occurredAtMs, purgedBefore };
  }

  /** How many lives had been purged when the last run was started: their space it has taken away, or is about to. */
  async purgedBeforeLast(): Promise<number> {
    const recorded = await this.#lastStart();
    return recorded === undefined ? 0 : startOf(recorded).purgedBefore;
  }

  /** Starts a run and puts it on record; one that is under way already is not put on record again. */
  async start(context: CommandContext, purgedBefore: number): Promise<void> {
    const { scavenging } = this.#log;
    if (scavenging === undefined) return;
    const scavengeId = await scavenging.start();
    await appendNext(this.#log, SCAVENGES_STREAM, async (last) => {
      const known = await this.#startIn(last);
      if (known !== undefined && startOf(known).scavengeId === scavengeId) return undefined;
      return eventOf(context, { type: 'ScavengeStarted', data: { scavengeId, purgedBefore } });
    });
  }

  /**
   * Starts a run when the last one began so long ago. Of several nodes that find so at once, one does: the record of
   * its claim takes the place in the stream that the others want.
   */
  async startIfDue(context: CommandContext, everyMs: number, purgedBefore: number): Promise<boolean> {
    const last = await this.#log.readLast(SCAVENGES_STREAM);
    if (last !== undefined) {
      const waitMs = last.type === 'ScavengeClaimed' ? CLAIM_MS : everyMs;
      if (context.nowMs < last.occurredAtMs + waitMs) return false;
    }
    const events = [eventOf(context, { type: 'ScavengeClaimed', data: {} })];
    const expectedRevision = last?.revision ?? 'no-stream';
    const claim = await this.#log.append([{ stream: SCAVENGES_STREAM, expectedRevision, events }]);
    if (claim.kind === 'conflict') return false;
    await this.start(context, purgedBefore);
    return true;
  }

  async #lastStart(): Promise<RecordedEvent | undefined> {
    return this.#startIn(await this.#log.readLast(SCAVENGES_STREAM));
  }

  /** The last start, which may stand before a claim that is the last event. */
  async #startIn(last: RecordedEvent | undefined): Promise<RecordedEvent | undefined> {
    if (last?.type !== 'ScavengeClaimed') return last;
    return (await this.#log.readStream(SCAVENGES_STREAM)).findLast(({ type }) => type === 'ScavengeStarted');
  }
}

function eventOf(context: CommandContext, event: ScavengeEvent): NewEvent {
  return newEvent(context, event, versions[event.type]);
}

function startOf(event: RecordedEvent): z.infer<typeof started> {
  return parseEvent(event, { ScavengeStarted: started }, versions).data;
}
