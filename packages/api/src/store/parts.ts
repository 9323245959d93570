import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { Clock, ClockJump } from '@epitaph/core/clock.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { Refusal } from '@epitaph/core/errors.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import { type Watermarks, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { Catalog, CatalogContainer } from '@epitaph/projections/catalog/catalog.ts';
import { ProjectionLag, type Projector } from '@epitaph/projections/projector.ts';
import type { ContainerNumber, ReadModelStore, ReadModelVersions } from '@epitaph/projections/read-model-store.ts';
import { KeyedMutex } from './keyed-mutex.ts';
import type { Caller } from './store-api.ts';

export interface StorePorts {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly readModels: ReadModelVersions;
  readonly clock: Clock & { raise(atMs: number): void };
  /** What holds the clock, or undefined while it can be trusted. */
  readonly clockJump: () => ClockJump | undefined;
  readonly monotonicMs: () => number;
  readonly newId: () => string;
}

/** What every part of the store works with: the ports, the live projector, and the order of commands. */
export class StoreParts {
  readonly ports: StorePorts;
  /** One command at a time for each item: a loser would only decide again. */
  readonly itemOrder = new KeyedMutex();
  /** A container's own commands; items and readers wait for the one under way, so that no one sees it half done. */
  readonly containerOrder = new KeyedMutex();
  readonly projector: Projector;
  readonly #expirySeenAtMs = new Map<ContainerNumber, number>();
  #closing = false;

  constructor(ports: StorePorts, projector: Projector) {
    this.ports = ports;
    this.projector = projector;
  }

  get catalog(): Catalog {
    return this.projector.catalog;
  }

  get readModel(): ReadModelStore {
    return this.ports.readModels.current.store;
  }

  get closing(): boolean {
    return this.#closing;
  }

  refuseNewWork(): void {
    this.#closing = true;
  }

  /**
   * A command's context: the time is read here, once.
   *
   * @throws {Refusal} clock-held while time can't be trusted, busy while the store closes
   */
  command(caller: Caller): CommandContext {
    this.assertOpen();
    const { clock, clockJump, newId } = this.ports;
    if (clockJump() !== undefined) throw new Refusal('clock-held');
    return { nowMs: clock.now(), actor: caller.actor, correlationId: caller.correlationId, newId };
  }

  /**
   * The context of a command that may change a container's policy. If somebody was already told what has expired
   * at this very millisecond, the new policy begins with the next one: expired is for ever, and an interval's
   * end is exclusive.
   */
  policyCommand(caller: Caller, container: ContainerNumber): CommandContext {
    const context = this.command(caller);
    if (this.#expirySeenAtMs.get(container) !== context.nowMs) return context;
    this.ports.clock.raise(context.nowMs + 1);
    return this.command(caller);
  }

  /** Somebody was told, or it was recorded, what of a container had expired at an instant. */
  expirySeen(container: ContainerNumber, atMs: number): void {
    this.#expirySeenAtMs.set(container, atMs);
  }

  assertOpen(): void {
    if (this.#closing) throw new Refusal('busy', 'The store is closing.');
  }

  /** Highest position that is known here; on a shared log another node may have written more. */
  headPosition(): number {
    const head = this.ports.log.head();
    return typeof head === 'number' ? head : this.projector.position;
  }

  /** The container as it is now, after whatever command on it is under way. */
  async current(container: ContainerState): Promise<CatalogContainer> {
    this.assertOpen();
    const busy = this.containerOrder.idle(container.rid) ?? this.containerOrder.idle(container.databaseRid);
    if (busy !== undefined) await busy;
    const found = this.catalog.containerByRid(container.rid);
    if (found === undefined || this.catalog.goneAtMs(found.state) !== null) throw new Refusal('container-not-found');
    return found;
  }

  /** The watermarks by which to answer a reader now. */
  marks(container: CatalogContainer, nowMs: number = this.ports.clock.now()): Watermarks {
    this.expirySeen(container.number, nowMs);
    return watermarks(container.state.timeline, nowMs);
  }

  /**
   * Waits until readers see a position.
   *
   * @throws {Refusal} session-not-available for a position that this log has not, or not projected in time
   */
  async seen(position: number | undefined): Promise<void> {
    if (position === undefined || position <= this.projector.position) return;
    if (position > (await this.ports.log.head())) throw new Refusal('session-not-available');
    await this.projected(position);
  }

  /** Waits until a position that was just written is projected. */
  async projected(position: number): Promise<void> {
    const reached = this.projector.waitFor(position);
    if (reached === undefined) return;
    try {
      await reached;
    } catch (error) {
      if (error instanceof ProjectionLag) throw new Refusal('session-not-available', error.message);
      throw error;
    }
  }
}
