import type { Bench } from './support/bench.ts';
export const bench: Bench = { id: 'P8', title: 'x', run: async () => [] };
