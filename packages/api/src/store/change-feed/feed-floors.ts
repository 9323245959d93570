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
  /** True if other nodes change containers, too. */
  readonly othersRaise: boolean;
  /** Waits until the catalog has applied all events that are recorded by now. */
  readonly confirmCatalog: () => Promise<void>;
  /** Called when a floor was lowered, so lives that it kept may be purged now. */
  readonly onLowered: () => void;
  readonly retries: Retries;
}

/**
 * Keeps the vault's change-feed floors equal to the retention that the containers' policies ask for. A floor is raised
 * before the policy is recorded, and lowered after the change of the policy is recorded. After a crash the next start
 * corrects the floors; after a fault they are corrected in the background.
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

  /** Raises a container's floor, if needed, to the retention that a definition asks for. */
  async raise(containerRid: string, definition: ContainerDefinition): Promise<void> {
    const wanted = feedFloorSeconds(definition);
    if (wanted <= currentOf(containerRid, await this.#vault.floors())) return;
    // Another node may have raised it further since the floors were read.
    await this.#vault.setFloor(containerRid, 'change-feed', wanted, { mayLower: false });
  }

  /**
   * Sets a container's floor to the retention that its current policy asks for. A deleted container has no feed, and so no
   * floor. This may overwrite a floor that another node has raised meanwhile, so the policy is checked again afterwards.
   */
  async settle(containerRid: string, { isRecorded }: { readonly isRecorded: boolean }): Promise<void> {
    // From now on, an earlier append whose outcome is unknown because of a fault can't be recorded any more.
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
   * Settles a container's floor in the background, after a fault in recording a policy. Also for a container whose creation
   * was not recorded.
   *
   * @param isSafeNow false if the floor was raised for a policy that may still be recorded
   */
  settleAfterFault(containerRid: string, when: { readonly isSafeNow: boolean }): void {
    const settle = async (): Promise<void> => {
      await this.#confirmCatalog();
      await this.#settle(containerRid, () => this.#wanted(containerRid) ?? 0);
    };
    this.#retries.settle(keyOf(containerRid), settle, when);
  }

  /** Settles all floors in the background, after a fault in deleting a database. */
  settleAllAfterFault(): void {
    this.#retries.settle('feed floors', () => this.settleAll(), { isSafeNow: true });
  }

  /**
   * The floor that a container's policy asks for now, in seconds. Undefined for a container that was never created, whose
   * floor is left as it is.
   */
  #wanted(containerRid: string): number | undefined {
    const container = this.#catalog().containerByRid(containerRid);
    if (container === undefined) return undefined;
    const isThere = this.#catalog().goneAtMs(container.state) === null;
    return isThere ? feedFloorSeconds(container.state.definition) : 0;
  }

  /**
   * Sets the floors of all containers, and removes those of containers that were never created. If there are other nodes, a
   * floor that is too high may be for a policy that one of them is about to record. So it stays until its container is
   * changed or deleted: keeping more than necessary does no harm. A floor is also not lowered if the log does not confirm
   * what the read models say: they may be damaged, and an erasure can't be undone.
   */
  async settleAll(): Promise<void> {
    // Read once, since there are as many floors as containers.
    const floors = await this.#vault.floors();
    for (const { state } of this.#catalog().allContainers()) {
      const mayLower = !this.#othersRaise || this.#catalog().goneAtMs(state) !== null;
      if (mayLower) await this.#setAsRecorded(state.rid, this.#wanted(state.rid), floors);
      // Another node may have lowered it, for a change of the policy that this node has not applied yet.
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

  /**
   * Sets a container's floor, unless another node has changed it since `floors` were read.
   *
   * @returns true if there was nothing to set
   */
  async #set(containerRid: string, seconds: number | undefined, floors: Floors): Promise<boolean> {
    const current = currentOf(containerRid, floors);
    if (seconds === undefined || seconds === current) return true;
    // A policy that needs the higher floor may still be recorded.
    if (seconds < current && this.#retries.isOpen(keyOf(containerRid))) return true;
    await this.#vault.setFloor(containerRid, 'change-feed', seconds, { from: current });
    if (seconds < current) this.#onLowered();
    return false;
  }
}

const keyOf = (containerRid: string): string => `feed floor of ${containerRid}`;

type Floors = Awaited<ReturnType<KeyVault['floors']>>;

const currentOf = (containerRid: string, floors: Floors): number => floors.get(containerRid)?.['change-feed'] ?? 0;
