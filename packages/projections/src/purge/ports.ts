import type { CommandContext } from '@epitaph/core/command-context.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { itemStream } from '@epitaph/core/item/stream-name.ts';
import type { EventLog } from '@epitaph/core/log/event-log.ts';
import type { BodySealer, ItemNaming } from '@epitaph/core/vault/body-sealer.ts';
import type { KeyVault } from '@epitaph/core/vault/key-vault.ts';
import type { Catalog, CatalogContainer } from '../catalog/catalog.ts';
import type { ContainerNumber, ItemRow, ReadModelStore } from '../read-model-store.ts';
import type { PurgeBudget } from './budget.ts';

/** Everything that the purge works with. */
export interface PurgePorts {
  readonly log: EventLog;
  readonly vault: KeyVault;
  readonly sealer: BodySealer;
  readonly naming: ItemNaming;
  readonly store: () => ReadModelStore;
  readonly catalog: () => Catalog;
  /** Resolves when readers see everything up to a position. */
  readonly projected: (position: number) => Promise<void>;
  /** The content of lives is erased. Caches of decoded documents must drop the documents of these writes. */
  readonly onErased: (positions: readonly number[]) => void;
  /**
   * Resolves when the command in progress on a container is done. Undefined if there is none. The command may change
   * the container's policy, or delete it, as of an instant that is past already.
   */
  readonly commandUnderWay: (container: ContainerState) => Promise<void> | undefined;
  /** The same for an erasure on request, except for a command that itself waits for this erasure. */
  readonly changeUnderWay: (container: ContainerState) => Promise<void> | undefined;
  /** Expiries of a container were recorded by a decision at that instant. */
  readonly onExpiriesRecorded: (container: ContainerNumber, atMs: number) => void;
  readonly budget: PurgeBudget;
  /** Until when a backup of the keys is kept that could open what is erased now, in milliseconds. Null if there is none. */
  readonly copiesKeptUntilMs: () => number | null;
  readonly newId: () => string;
  /**
   * Makes sure that the catalog has everything that any node had recorded this many milliseconds ago; by default as
   * long ago as cached policies may be used. Only if there are other nodes.
   */
  readonly confirmCatalog?: ((maxAgeMs?: number) => Promise<void>) | undefined;
}

/** The context of a step of the purge that nobody has requested. It has lower priority than what clients wait for. */
export function stepContext({ newId }: Pick<PurgePorts, 'newId'>, nowMs: number): CommandContext {
  return { nowMs, actor: 'system:purge', correlationId: newId(), newId, background: true };
}

/** Whether a container or its database was deleted. */
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
