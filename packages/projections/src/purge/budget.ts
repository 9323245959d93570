import type { ContainerState } from '@epitaph/core/container/state.ts';

/**
 * What the purge may spend on a container. The record that an item has expired is its delete, and it is paid for in
 * request units. What follows is the store's own housekeeping, as after a client's delete.
 *
 * A budget never changes what clients see: an expired item is hidden whether or not its record could be paid for.
 */
export interface PurgeBudget {
  /** How many expiries may be recorded now: 0 while clients leave too few request units, infinity if nothing limits it. */
  affordable(container: ContainerState): number;
  /** An expiry was recorded, of a document of this many bytes. */
  spend(container: ContainerState, bytes: number): void;
}
