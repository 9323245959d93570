import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { isStanding, type StandingHold } from '@epitaph/core/retention/hold-register.ts';
import type { Retention } from '@epitaph/core/retention/state.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';

/** What a container's own stream says is kept. The stream is read on first use. */
export class RetentionInLog {
  readonly #log: EventLog;
  readonly #rid: string;
  #read: Promise<ContainerState | undefined> | undefined;

  constructor(log: EventLog, rid: string) {
    this.#log = log;
    this.#rid = rid;
  }

  /** Whether the log says that a hold keeps nothing. False for a standing hold, and when the log can't be read. */
  async lets(holdId: string): Promise<boolean> {
    return (await this.#retention()) !== undefined && (await this.standing(holdId)) === undefined;
  }

  async standing(holdId: string): Promise<StandingHold | undefined> {
    const hold = (await this.#retention())?.holds.find(holdId);
    return hold !== undefined && isStanding(hold) ? hold : undefined;
  }

  async floorSeconds(): Promise<number | undefined> {
    return (await this.#retention())?.floorSeconds;
  }

  /**
   * The seconds that the feed policy asks for. 0 for a container that is deleted or never existed, undefined when that
   * can't be read.
   */
  async feedFloorSeconds(): Promise<number | undefined> {
    try {
      const container = await this.#container();
      if (container === undefined || container.status === 'deleted') return 0;
      const database = await this.#log.readLast(databaseStream(container.databaseRid));
      return database?.type === 'DatabaseDeleted' ? 0 : feedFloorSeconds(container.definition);
    } catch (error) {
      return unlessDamaged(error);
    }
  }

  /** Undefined also for a container that never existed. */
  async #retention(): Promise<Retention | undefined> {
    return (await this.#container().catch(unlessDamaged))?.retention;
  }

  #container(): Promise<ContainerState | undefined> {
    return (this.#read ??= this.#fold());
  }

  async #fold(): Promise<ContainerState | undefined> {
    return foldContainer(await this.#log.readStream(containerStream(this.#rid)));
  }
}
