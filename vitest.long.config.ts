import { defineConfig } from 'vitest/config';

/** Suites that take minutes: many seeds, many crashes, many items. */
export default defineConfig({
  test: {
    include: ['packages/*/test/**/*.long.test.ts', 'test/**/*.long.test.ts'],
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 1_800_000,
    hookTimeout: 120_000,
  },
});
