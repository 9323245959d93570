import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { Catalog, CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, ItemRow, ReadModelStore } from '../read-model-store.ts';
import type { PurgeBudget } from './budget.ts';

/** What the purge works with. */
export interface PurgePorts {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly store: () => ReadModelStore;
  readonly catalog: () => Catalog;
  /** Resolves when readers see everything up to a position. */
  readonly projected: (position: number) => Promise<void>;
  /** A life's content is gone: whoever keeps decoded documents must drop it. */
  readonly onErased: (positions: readonly number[]) => void;
  /**
   * Resolves when the command on a container that is under way is done; undefined when there is none. Its policy, or its
   * being there, may end by it as of an instant that is over already.
   */
  readonly commandUnderWay: (container: ContainerState) => Promise<void> | undefined;
  /** The same for an erasure that is demanded, without a command that waits for this very erasure. */
  readonly changeUnderWay: (container: ContainerState) => Promise<void> | undefined;
  /** Expiries of a container were put on record by a decision at that instant. */
  readonly onExpiriesRecorded: (container: ContainerNumber, atMs: number) => void;
  readonly budget: PurgeBudget;
  /** Until when a backup of the keys is kept that could open what is erased now, in milliseconds; null for none. */
  readonly copiesKeptUntilMs: () => number | null;
  readonly newId: () => string;
  /**
   * Makes sure that the catalog has what any node had recorded so many milliseconds ago, by default as long ago as its
   * policies may be used; only where there are other nodes.
   */
  readonly confirmCatalog?: ((maxAgeMs?: number) => Promise<void>) | undefined;
}

/** In whose name a step of the purge is recorded that nobody has demanded; after what clients wait for. */
export function stepContext({ newId }: Pick<PurgePorts, 'newId'>, nowMs: number): CommandContext {
  return { nowMs, actor: 'system:purge', correlationId: newId(), newId, background: true };
}

/** Whether a container was deleted, or its database. */
export function isGone({ catalog }: Pick<PurgePorts, 'catalog'>, { state }: CatalogContainer): boolean {
  return catalog().goneAtMs(state) !== null;
}

/** The stream of a row's life. */
export function streamOf(
  { naming }: Pick<PurgePorts, 'naming'>,
  container: CatalogContainer,
  row: Pick<ItemRow, 'partitionKey' | 'id' | 'life'>,
): Promise<string> | string {
  const prefix = naming.itemStreamPrefix(container.state.rid, row.partitionKey, row.id);
  return typeof prefix === 'string' ? itemStream(prefix, row.life) : prefix.then((name) => itemStream(name, row.life));
}
