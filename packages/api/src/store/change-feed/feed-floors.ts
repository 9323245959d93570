import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import type { ContainerDefinition } from '@epitaph/core/container/definition.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { Catalog } from '@epitaph/projections/catalog/catalog.ts';
import { RetentionInLog } from '../retention/retention-in-log.ts';
import type { Retries } from '../retries.ts';

export interface FeedFloorsOptions {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly catalog: () => Catalog;
  /** True where other nodes change containers, too. */
  readonly othersRaise: boolean;
  /** Makes sure that the catalog has all that is on record by now. */
  readonly confirmCatalog: () => Promise<void>;
  /** Told when lives that a floor kept may go now. */
  readonly onLowered: () => void;
  readonly retries: Retries;
}

/**
 * Keeps the vault's change-feed floors equal to what the containers' policies say. A floor is raised before a policy is
 * on record and lowered after its change is; what a crash leaves is set right by the next start, and what a fault
 * leaves is set right in the background.
 */
export class FeedFloors {
  readonly #log: EventLog;
  readonly #vault: KeyVault;
  readonly #catalog: () => Catalog;
  readonly #othersRaise: boolean;
  readonly #confirmCatalog: () => Promise<void>;
  readonly #onLowered: () => void;
  readonly #retries: Retries;

  constructor({ log, vault, catalog, othersRaise, confirmCatalog, onLowered, retries }: FeedFloorsOptions) {
    this.#log = log;
    this.#vault = vault;
    this.#catalog = catalog;
    this.#othersRaise = othersRaise;
    this.#confirmCatalog = confirmCatalog;
    this.#onLowered = onLowered;
    this.#retries = retries;
  }

  /** Makes sure that a container's floor is at least what a definition asks for. */
  async raise(containerRid: string, definition: ContainerDefinition): Promise<void> {
    const wanted = feedFloorSeconds(definition);
    if (wanted <= currentOf(containerRid, await this.#vault.floors())) return;
    // Another node may have raised it further since it was looked at.
    await this.#vault.setFloor(containerRid, 'change-feed', wanted, { mayLower: false });
  }

  /**
   * Sets a container's floor to what its policy says by now. A container that is gone has no feed, and no floor. What
   * another node has raised meanwhile may have been overwritten here, so its policy is looked at again.
   */
  async settle(containerRid: string, { isRecorded }: { readonly isRecorded: boolean }): Promise<void> {
    // What was sent before, and was not recorded because of a fault, comes too late from here on.
    if (isRecorded) this.#retries.close(keyOf(containerRid));
    await this.#settle(containerRid, () => this.#wanted(containerRid));
  }

  async #settle(containerRid: string, wantedNow: () => number | undefined): Promise<void> {
    for (;;) {
      const wanted = wantedNow();
      const wasRight = await this.#set(containerRid, wanted, await this.#vault.floors());
      await this.#confirmCatalog();
      if (wasRight && wantedNow() === wanted) return;
    }
  }

  /**
   * The same after a fault in recording a policy, and for a container that was never made.
   *
   * @param isSafeNow false where the floor was raised for what may be put on record yet
   */
  settleAfterFault(containerRid: string, when: { readonly isSafeNow: boolean }): void {
    const settle = async (): Promise<void> => {
      await this.#confirmCatalog();
      await this.#settle(containerRid, () => this.#wanted(containerRid) ?? 0);
    };
    this.#retries.settle(keyOf(containerRid), settle, when);
  }

  /** The same after a fault in deleting a database. */
  settleAllAfterFault(): void {
    this.#retries.settle('feed floors', () => this.settleAll(), { isSafeNow: true });
  }

  /**
   * The floor that a container's policy asks for now; undefined for a container that never was, whose floor is left as
   * it is.
   */
  #wanted(containerRid: string): number | undefined {
    const container = this.#catalog().containerByRid(containerRid);
    if (container === undefined) return undefined;
    const isThere = this.#catalog().goneAtMs(container.state) === null;
    return isThere ? feedFloorSeconds(container.state.definition) : 0;
  }

  /**
   * Sets the floors of all containers, and lifts those of containers that never came to be. Where there are other
   * nodes, a floor that is too high may be for a policy that one of them is about to record, so it stays until its
   * container changes or goes: it keeps more than it must, which does no harm. It stays, too, where the log says nothing of
   * what the read models have: these may be damaged, and what is erased over that is gone.
   */
  async settleAll(): Promise<void> {
    // Asked for once: there are as many as containers.
    const floors = await this.#vault.floors();
    for (const { state } of this.#catalog().allContainers()) {
      const mayLower = !this.#othersRaise || this.#catalog().goneAtMs(state) !== null;
      if (mayLower) await this.#setAsRecorded(state.rid, this.#wanted(state.rid), floors);
      // Another node may have lowered it, of which this one has not heard.
      else if (feedFloorSeconds(state.definition) > currentOf(state.rid, floors)) {
        await this.#settle(state.rid, () => this.#wanted(state.rid));
      }
    }
    if (this.#othersRaise) return;
    for (const rid of floors.keys()) {
      if (this.#catalog().containerByRid(rid) === undefined) await this.#setAsRecorded(rid, 0, floors);
    }
  }

  async #setAsRecorded(containerRid: string, seconds: number | undefined, floors: Floors): Promise<void> {
    const isLower = seconds !== undefined && seconds < currentOf(containerRid, floors);
    if (isLower && (await new RetentionInLog(this.#log, containerRid).feedFloorSeconds()) !== seconds) return;
    await this.#set(containerRid, seconds, floors);
  }

  /** @returns true where there was nothing to set; otherwise another node may have changed it meanwhile, and it is left alone then */
  async #set(containerRid: string, seconds: number | undefined, floors: Floors): Promise<boolean> {
    const current = currentOf(containerRid, floors);
    if (seconds === undefined || seconds === current) return true;
    // What needs it may yet come on record.
    if (seconds < current && this.#retries.isOpen(keyOf(containerRid))) return true;
    await this.#vault.setFloor(containerRid, 'change-feed', seconds, { from: current });
    if (seconds < current) this.#onLowered();
    return false;
  }
}

const keyOf = (containerRid: string): string => `feed floor of ${containerRid}`;

type Floors = Awaited<ReturnType<KeyVault['floors']>>;

const currentOf = (containerRid: string, floors: Floors): number => floors.get(containerRid)?.['change-feed'] ?? 0;
