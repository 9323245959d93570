import type { Bench } from './support/bench.ts';
export const bench: Bench = { id: 'P7', title: 'x', run: async () => [] };
