import type { ContainerState } from '@epitaph/core/container/state.ts';

/**
 * What the purge may spend on a container. Recording that an item has expired is its delete, and is paid for; what
 * follows is the store's own housekeeping, as it is after a client's delete.
 *
 * A budget never decides what anybody sees: an expired item is hidden whether or not it could be paid for.
 */
export interface PurgeBudget {
  /** How many expiries may be recorded now: 0 while users left too little over, infinity where nothing limits it. */
  affordable(container: ContainerState): number;
  /** An expiry was recorded, of a document of so many bytes. */
  spend(container: ContainerState, bytes: number): void;
}
