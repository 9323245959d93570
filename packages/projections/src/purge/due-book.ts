import { feedFloorSeconds } from '@epitaph/core/container/change-feed.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { graceSeconds } from '@epitaph/core/retention/grace.ts';
import { secondBounds, type Watermarks, watermarks } from '@epitaph/core/ttl/watermarks.ts';
import { Pace } from '@epitaph/core/turn.ts';
import type { Catalog, CatalogContainer } from '../catalog/catalog.ts';
import { containersToWorkOn } from '../catalog/containers-to-work-on.ts';
import type { ContainerNumber, ReadModelChange, ReadModelStore } from '../read-model-store.ts';

/** When a container next has something to do, in milliseconds. Infinity if it never will, as things are. */
interface Due {
  /** Expiries to record. */
  readonly recordMs: number;
  /** Lives to erase. */
  readonly eraseMs: number;
}

/**
 * When each container next has something to purge. It is kept up to date from projected changes, so that the check of
 * the clock several times a second costs nothing, however many items and containers there are.
 */
export class DueBook {
  readonly #due = new Map<ContainerNumber, Due>();
  readonly #dirty = new Set<ContainerNumber>();
  /** True if every container with work in it must be looked at. */
  #all = false;
  /** Containers in which only kept lives are left to erase, and when the vault is to be asked again. */
  readonly #heldUntil = new Map<ContainerNumber, number>();

  markAll(): void {
    this.#all = true;
    this.#heldUntil.clear();
  }

  /** Must be called if the reason for which lives in a container are kept may be gone, so that the container is looked at again. */
  lookAgain(container: ContainerNumber): void {
    this.#changed(container);
  }

  mark(containers: readonly ContainerNumber[]): void {
    for (const number of containers) this.#dirty.add(number);
  }

  observe(changes: readonly ReadModelChange[], catalog: Catalog): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'item-written':
        case 'item-purged':
        case 'partition-key-deleted':
          this.#dirty.add(change.container);
          break;
        case 'item-ended':
          this.#changed(change.row.container);
          break;
        case 'container':
          this.#changed(change.number);
          break;
        case 'database':
          if (change.state.status === 'deleted') this.databaseGone(change.state.rid, catalog);
          break;
        case 'user':
        case 'client-encryption-key':
        case 'script':
        case 'purge-run':
        case 'purge-run-completed':
        case 'log-mark':
          break;
      }
    }
  }

  /** The database is deleted, and all its containers with it. */
  databaseGone(rid: string, catalog: Catalog): void {
    for (const { number, state } of catalog.allContainers()) if (state.databaseRid === rid) this.#changed(number);
  }

  /** There may be something to erase that nothing keeps. */
  #changed(container: ContainerNumber): void {
    this.#dirty.add(container);
    this.#heldUntil.delete(container);
  }

  /** In this container only kept lives are left to erase: they are left alone until that time, unless more lives end. */
  holdBack(container: ContainerNumber, untilMs: number): void {
    this.#heldUntil.set(container, untilMs);
  }

  /**
   * When there is next something to do, in milliseconds. Infinity if there never will be, as things are.
   *
   * @param store the version in use, called before each look, because a rebuild closes the former version
   * @param options.paidFor whether expiries can be recorded in a container now; what can't be paid for is not due
   * @param options.isOver true when the answer is not needed any more; then no more containers are looked at
   */
  async nextDueMs(
    store: () => ReadModelStore,
    catalog: () => Catalog,
    nowMs: number,
    { paidFor, isOver }: { readonly paidFor: (container: CatalogContainer) => boolean; readonly isOver: () => boolean },
  ): Promise<number> {
    if (this.#all) await this.#takeAll(store, catalog);
    const pace = new Pace();
    // A copy: a container that is written to all the time is marked again during each look.
    const dirty = [...this.#dirty];
    for (const number of dirty) {
      if (isOver()) return Number.POSITIVE_INFINITY;
      const container = catalog().containerByNumber(number);
      // Removed before the look, so that a change during the look marks it again.
      this.#dirty.delete(number);
      if (container === undefined) continue;
      try {
        const due = await dueOf(container, catalog().goneAtMs(container.state) !== null, store, nowMs);
        if (isNever(due)) this.#due.delete(number);
        else this.#due.set(number, due);
      } catch (error) {
        this.#dirty.add(number);
        throw error;
      }
      await pace.step();
    }
    let next = Number.POSITIVE_INFINITY;
    for (const [number, { recordMs, eraseMs }] of this.#due) {
      next = Math.min(next, Math.max(eraseMs, this.#heldUntil.get(number) ?? 0));
      // Later expiries are paid for later.
      const container = recordMs < next ? catalog().containerByNumber(number) : undefined;
      if (container !== undefined && (recordMs > nowMs || paidFor(container))) next = recordMs;
    }
    return next;
  }

  /** False if, by the last look, there is no ended life that is not erased. */
  mayHaveEnded(container: ContainerNumber): boolean {
    const due = this.#due.get(container);
    return this.#dirty.has(container) || (due !== undefined && due.eraseMs !== Number.POSITIVE_INFINITY);
  }

  async #takeAll(store: () => ReadModelStore, catalog: () => Catalog): Promise<void> {
    // Reset before the containers are asked for, so that a call of `markAll` from now on is not lost.
    this.#all = false;
    try {
      const containers = await containersToWorkOn(catalog, store());
      this.#due.clear();
      for (const { number } of containers) this.#dirty.add(number);
    } catch (error) {
      this.#all = true;
      throw error;
    }
  }

  /** The containers in which something is due by now, paid for or not. They are looked at again after this. */
  takeDue(nowMs: number): ContainerNumber[] {
    const due: ContainerNumber[] = [];
    for (const [number, { recordMs, eraseMs }] of this.#due) {
      if (recordMs > nowMs && Math.max(eraseMs, this.#heldUntil.get(number) ?? 0) > nowMs) continue;
      due.push(number);
      this.#dirty.add(number);
    }
    return due;
  }
}

const isNever = ({ recordMs, eraseMs }: Due): boolean => Math.min(recordMs, eraseMs) === Number.POSITIVE_INFINITY;

async function dueOf(
  container: CatalogContainer,
  gone: boolean,
  store: () => ReadModelStore,
  nowMs: number,
): Promise<Due> {
  const recordMs = async () => {
    if (await anyUnrecorded(container, gone, store)) return nowMs;
    return gone ? Number.POSITIVE_INFINITY : nextExpiry(container, store, nowMs);
  };
  return { recordMs: await recordMs(), eraseMs: await nextErasure(container, gone, store) };
}

/**
 * How long after its end a life of an existing container is erased at the earliest, in milliseconds: not before its
 * change feed has shown the end for as long as promised, nor before its recovery window and the grace after a policy's
 * start are over. Only for planning: whether a key may be destroyed is decided by the vault.
 */
export function erasureDelayMs(state: ContainerState, byPolicyStart: boolean): number {
  return Math.max(feedFloorSeconds(state.definition), graceSeconds(state, byPolicyStart)) * 1000;
}

async function nextErasure(
  { number, state }: CatalogContainer,
  gone: boolean,
  store: () => ReadModelStore,
): Promise<number> {
  let next = Number.POSITIVE_INFINITY;
  for (const byPolicyStart of [false, true]) {
    const [oldest] = await store().endedLives(number, {
      byPolicyStart,
      endedAtOrBeforeMs: Number.MAX_SAFE_INTEGER,
      after: undefined,
      limit: 1,
    });
    if (oldest === undefined) continue;
    next = Math.min(next, oldest.endedAtMs + (gone ? 0 : erasureDelayMs(state, byPolicyStart)));
  }
  if (gone && (await store().allItems(number, 0, 1)).length > 0) return 0;
  return next;
}

/**
 * True while a delete by partition key is not completed. In a deleted container, only while the ends of some lives are
 * not recorded.
 */
async function anyUnrecorded(
  { number, state }: CatalogContainer,
  gone: boolean,
  store: () => ReadModelStore,
): Promise<boolean> {
  if (state.partitionKeyDeletes.length === 0) return false;
  return !gone || (await store().unrecordedEnds(number, 1)).length > 0;
}

const NOTHING_EXPIRED: Watermarks = { defaultMs: Number.NEGATIVE_INFINITY, itemMs: Number.NEGATIVE_INFINITY };

async function nextExpiry(
  { number, state }: CatalogContainer,
  store: () => ReadModelStore,
  nowMs: number,
): Promise<number> {
  // Regardless of watermarks, so that overdue items are included: read models on a server are asked only once.
  const { ts, due } = await store().nextDeadlines(number, NOTHING_EXPIRED);
  const [lastTs, lastDue] = secondBounds(watermarks(state.timeline, nowMs));
  if ((ts !== null && ts <= lastTs) || (due !== null && due <= lastDue)) return nowMs;
  let next = Number.POSITIVE_INFINITY;
  const policy = state.timeline.findLast((candidate) => candidate.fromMs <= nowMs);
  if (policy !== undefined && policy.defaultTtl !== null) {
    if (due !== null) next = Math.min(next, due * 1000);
    if (ts !== null && policy.defaultTtl > 0) next = Math.min(next, (ts + policy.defaultTtl) * 1000);
  }
  const later = state.timeline.find((candidate) => candidate.fromMs > nowMs);
  return later === undefined ? next : Math.min(next, later.fromMs);
}
