import type { Bench } from './support/bench.ts';
export const bench: Bench = { id: 'P11', title: 'x', run: async () => [] };
