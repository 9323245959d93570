import type { ContainerState } from '../container/state.ts';

/**
 * For how many seconds after its end a life can be brought back while its container exists: the recovery window, and
 * for a life that ended by a policy's start the policy grace, if that is longer.
 */
export function graceSeconds(
  state: Pick<ContainerState, 'retention' | 'policyGraceSeconds'>,
  byPolicyStart: boolean,
): number {
  return Math.max(state.retention.recoveryWindowSeconds, byPolicyStart ? state.policyGraceSeconds : 0);
}
