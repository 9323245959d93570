/**
 * Until when something must be on record that other nodes count on within the policy delay; undefined where they wait for
 * nothing.
 */
export const recordedByMs = (nowMs: number, policyDelayMs = 0): number | undefined =>
  policyDelayMs === 0 ? undefined : nowMs + policyDelayMs / 4;
