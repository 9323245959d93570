import { describePolicyChanges } from './policy-changes.ts';

// The small form; 100,000 items in policy-changes.long.test.ts.
describePolicyChanges(2_000, 6);
