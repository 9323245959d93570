import type { CommandContext } from '@epitaph/core/command-context.ts';
import { appendNext, newEvent } from '@epitaph/core/handle-command.ts';
import type { EventLog, Scavenge } from '@epitaph/core/log/event-log.ts';
import type { NewEvent, RecordedEvent } from '@epitaph/core/log/recorded-event.ts';
import { type EventOf, parseEvent, versionsOf } from '@epitaph/core/upcast.ts';
import { z } from 'zod';

export const SCAVENGES_STREAM = 'purge-scavenges';

/** A node has found that a run is due by the schedule, and is about to start it. */
const claimed = z.object({});
const started = z.object({
  /** The event store's name for the run. */
  scavengeId: z.string(),
  /** Number of lives purged by then. The space of later ones is reclaimed by the next run. */
  purgedBefore: z.int(),
});

const schemas = { ScavengeClaimed: claimed, ScavengeStarted: started };
const versions = versionsOf(schemas);
type ScavengeEvent = EventOf<typeof schemas>;

/** After this time, a node that claimed a run and did not start it counts as dead. */
export const CLAIM_MS = 60_000;

export interface LastScavenge extends Scavenge {
  readonly startedAtMs: number;
  readonly purgedBefore: number;
}

/**
 * The scavenges that operators and the schedule have started, as recorded facts. Only logs that keep truncated events
 * have any.
 */
export class Scavenges {
  readonly #log: EventLog;

  constructor(log: EventLog) {
    this.#log = log;
  }

  /** Undefined if none was ever started. */
  async last(): Promise<LastScavenge | undefined> {
    const recorded = await this.#lastStart();
    if (recorded === undefined || this.#log.scavenging === undefined) return undefined;
    const { scavengeId, purgedBefore } = startOf(recorded);
    const { state } = await this.#log.scavenging.find(scavengeId);
    return { id: scavengeId, state, startedAtMs: recorded.occurredAtMs, purgedBefore };
  }

  /** How many lives had been purged when the last run was started. It has reclaimed their space, or is about to. */
  async purgedBeforeLast(): Promise<number> {
    const recorded = await this.#lastStart();
    return recorded === undefined ? 0 : startOf(recorded).purgedBefore;
  }

  /** Starts a run and records it. A run that is in progress already is not recorded again. */
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
   * Starts a run if the last one began long enough ago. If several nodes find this at the same time, only one of them
   * starts it, because its claim takes the revision in the stream that the claims of the others expect.
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

  /** The last start. It may be before a claim that is the last event. */
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
