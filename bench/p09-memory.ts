import type { Bench } from './support/bench.ts';
export const bench: Bench = { id: 'P9', title: 'x', run: async () => [] };
