import { describePolicyChanges } from './policy-changes.ts';

describePolicyChanges(100_000, 1.5);
