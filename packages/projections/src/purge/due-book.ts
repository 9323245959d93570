import { watermarks } from '@epitaph/core/ttl/watermarks.ts';
import type { Catalog, CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, ReadModelChange, ReadModelStore } from '../read-model-store.ts';

/**
 * When each container next has something to purge. Kept up from the changes that were projected, so that looking
 * at the clock four times a second costs nothing, whatever the number of items and containers.
 */
export class DueBook {
  readonly #due = new Map<ContainerNumber, number>();
  readonly #dirty = new Set<ContainerNumber>();
  /** Containers in which only held-back lives are left, and when to ask the vault again. */
  readonly #heldUntil = new Map<ContainerNumber, number>();

  markAll(catalog: Catalog): void {
    for (const { number } of catalog.allContainers()) this.#dirty.add(number);
    this.#heldUntil.clear();
  }

  observe(changes: readonly ReadModelChange[], catalog: Catalog): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'item-written':
        case 'item-purged':
          this.#dirty.add(change.container);
          break;
        case 'item-ended':
          this.#dirty.add(change.row.container);
          break;
        case 'container':
          this.#dirty.add(change.number);
          break;
        case 'database':
          if (change.state.status === 'deleted') this.markAll(catalog);
          break;
        case 'purge-run':
        case 'purge-run-completed':
          break;
      }
    }
  }

  /** In this container only held-back lives are left: leave it alone until then, unless it changes. */
  holdBack(container: ContainerNumber, untilMs: number): void {
    this.#heldUntil.set(container, untilMs);
  }

  /** When there is next something to do, in milliseconds; infinity for never as things stand. */
  async nextDueMs(store: ReadModelStore, catalog: Catalog, nowMs: number): Promise<number> {
    for (const number of this.#dirty) {
      const container = catalog.containerByNumber(number);
      if (container === undefined) continue;
      this.#due.set(number, await nextDueOf(container, store, catalog, nowMs));
    }
    this.#dirty.clear();
    let next = Number.POSITIVE_INFINITY;
    for (const [number, due] of this.#due) next = Math.min(next, Math.max(due, this.#heldUntil.get(number) ?? 0));
    return next;
  }
}

async function nextDueOf(
  { number, state }: CatalogContainer,
  store: ReadModelStore,
  catalog: Catalog,
  nowMs: number,
): Promise<number> {
  const anyEnded = async (byPolicyStart: boolean) =>
    (await store.endedLives(number, { byPolicyStart, endedAtOrBeforeMs: nowMs, after: undefined, limit: 1 })).length >
    0;
  if (await anyEnded(false)) return nowMs;
  if (catalog.goneAtMs(state) !== null) {
    const left = (await store.allItems(number, 0, 1)).length > 0 || (await anyEnded(true));
    return left ? nowMs : Number.POSITIVE_INFINITY;
  }
  let next = Number.POSITIVE_INFINITY;
  const graceStartMs = await store.oldestEndedByPolicyMs(number);
  if (graceStartMs !== null) next = graceStartMs + state.policyGraceSeconds * 1000;
  const marks = watermarks(state.timeline, nowMs);
  if ((await store.overdueItems(number, marks, 1)).length > 0) return nowMs;
  const policy = state.timeline.findLast((candidate) => candidate.fromMs <= nowMs);
  if (policy !== undefined && policy.defaultTtl !== null) {
    const { ts, due } = await store.nextDeadlines(number, marks);
    if (due !== null) next = Math.min(next, due * 1000);
    if (ts !== null && policy.defaultTtl > 0) next = Math.min(next, (ts + policy.defaultTtl) * 1000);
  }
  const later = state.timeline.find((candidate) => candidate.fromMs > nowMs);
  return later === undefined ? next : Math.min(next, later.fromMs);
}
