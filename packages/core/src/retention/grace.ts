import type { ContainerState } from '../container/state.ts';

/**
 * Seconds after its end for which a life can be brought back, in a container that is there: its recovery window, and the
 * policy grace for one that a policy's start ended.
 */
export function graceSeconds(
  state: Pick<ContainerState, 'retention' | 'policyGraceSeconds'>,
  byPolicyStart: boolean,
): number {
  return Math.max(state.retention.recoveryWindowSeconds, byPolicyStart ? state.policyGraceSeconds : 0);
}
