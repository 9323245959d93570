import { describePolicyChanges } from './policy-changes.ts';

// The small form. policy-changes.long.test.ts has 100,000 items.
describePolicyChanges(2_000, 6);
