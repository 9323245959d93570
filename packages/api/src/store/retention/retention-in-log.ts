import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import { foldContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { isStanding, type StandingHold } from '@epitaph/core/retention/hold-register.ts';
import type { Retention } from '@epitaph/core/retention/state.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';

/** What a container's own stream says is kept, read when it is first asked for. */
export class RetentionInLog {
  readonly #log: EventLog;
  readonly #rid: string;
  #read: Promise<ContainerState | undefined> | undefined;

  constructor(log: EventLog, rid: string) {
    this.#log = log;
    this.#rid = rid;
  }

  /** False for a hold that stands, and where that can't be read. */
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

  /** What its policy asks for, 0 for a container that is gone or never was; undefined where that can't be read. */
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

  /** Undefined for a container that never was, too. */
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
