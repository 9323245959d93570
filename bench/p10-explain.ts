import type { Bench } from './support/bench.ts';
export const bench: Bench = { id: 'P10', title: 'x', run: async () => [] };
