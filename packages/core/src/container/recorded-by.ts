/**
 * The last instant at which the log may take something that other nodes must know within the policy delay. Undefined if
 * there is no such delay, because there is one node.
 */
export const recordedByMs = (nowMs: number, policyDelayMs = 0): number | undefined =>
  policyDelayMs === 0 ? undefined : nowMs + policyDelayMs / 4;
