import { wait } from '../config/wait.ts';

/** How often the schedule is looked at. */
const LOOK_EVERY_MS = 10_000;

export interface ScavengeScheduleOptions {
  /** Starts a run if one is due. */
  readonly startIfDue: () => Promise<unknown>;
  readonly onFault: (error: unknown) => void;
}

/** Has the event store scavenged at intervals. When one is due the log says, so that several nodes may run this. */
export class ScavengeSchedule {
  readonly #options: ScavengeScheduleOptions;
  readonly #stopped = new AbortController();
  #running: Promise<void> | undefined;

  constructor(options: ScavengeScheduleOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Waits for the look under way. */
  async stop(): Promise<void> {
    this.#stopped.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      // A server that is away for now is asked again at the next look.
      await this.#options.startIfDue().catch(this.#options.onFault);
      await wait(LOOK_EVERY_MS, signal);
    }
  }
}
