import type { CommandContext } from '@epitaph/core/command-context.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { PurgeRunner } from '@epitaph/projections/purge/runner.ts';
import { Scavenges } from '@epitaph/projections/purge/scavenges.ts';
import { wait } from '../../wait.ts';
import type { ScavengeStatus } from '../api/operations-api.ts';
import type { StoreParts } from '../parts.ts';

/** How often the schedule is checked. */
const LOOK_EVERY_MS = 10_000;

export interface ScavengingOptions {
  /** Seconds after which a run is due again; null for never. */
  readonly everySeconds: number | null;
  readonly onFault: (error: unknown) => void;
}

/**
 * Starts scavenges of the event store, on request and at intervals. The log says when a run is due, so several nodes
 * may do this.
 */
export class Scavenging {
  readonly #parts: StoreParts;
  readonly #purge: Pick<PurgeRunner, 'settled'>;
  readonly #everySeconds: number | null;
  readonly #onFault: (error: unknown) => void;
  readonly #stopped = new AbortController();
  #running: Promise<void> | undefined;

  constructor(parts: StoreParts, purge: Pick<PurgeRunner, 'settled'>, { everySeconds, onFault }: ScavengingOptions) {
    this.#parts = parts;
    this.#purge = purge;
    this.#everySeconds = everySeconds;
    this.#onFault = onFault;
  }

  async start(context: CommandContext): Promise<void> {
    const { log } = this.#parts.ports;
    if (log.scavenging === undefined) {
      throw new Refusal(
        'not-supported',
        'The event log is in the data folder, which needs no scavenge: its space is freed by itself.',
      );
    }
    // A run removes only what was truncated before it began.
    await this.#purge.settled();
    await new Scavenges(log).start(context, await this.#parts.readModel.countPurged());
  }

  async status(purgedTotal: number): Promise<ScavengeStatus | null> {
    const { log } = this.#parts.ports;
    if (log.scavenging === undefined) return null;
    const last = await new Scavenges(log).last();
    const livesWaiting = Math.max(0, purgedTotal - (last?.purgedBefore ?? 0));
    const everySeconds = this.#everySeconds;
    return {
      livesWaiting,
      last: last === undefined ? null : { id: last.id, state: last.state, startedAtMs: last.startedAtMs },
      everySeconds,
      nextAtMs:
        everySeconds === null || livesWaiting === 0
          ? null
          : last === undefined
            ? this.#parts.ports.clock.now()
            : last.startedAtMs + everySeconds * 1000,
    };
  }

  startSchedule(): void {
    this.#running ??= this.#run();
  }

  /** Ends the schedule, and waits for the check under way. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      // If the server can't be reached now, it is asked again at the next check.
      await this.#startIfDue().catch(this.#onFault);
      await wait(LOOK_EVERY_MS, signal);
    }
  }

  /** Starts a run if the schedule says so and there is anything to remove. */
  async #startIfDue(): Promise<void> {
    const { log, clockJump } = this.#parts.ports;
    if (this.#everySeconds === null || log.scavenging === undefined || clockJump() !== undefined) return;
    const context = this.#parts.command({ actor: 'system:schedule', correlationId: crypto.randomUUID() });
    const scavenges = new Scavenges(log);
    const purgedTotal = await this.#parts.readModel.countPurged();
    if (purgedTotal <= (await scavenges.purgedBeforeLast())) return;
    await this.#purge.settled();
    await scavenges.startIfDue(context, this.#everySeconds * 1000, purgedTotal);
  }
}
