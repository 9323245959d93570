import { availableParallelism } from 'node:os';
import { configDefaults, defineConfig } from 'vitest/config';

/** All tests but the long ones (`*.long.test.ts`), which run by `npm test -- --config vitest.long.config.ts`. */
export default defineConfig({
  test: {
    include: ['packages/*/test/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, '**/*.long.test.ts'],
    // Processes, as node:sqlite and writer threads are used; threads were no faster on two cores.
    pool: 'forks',
    // On two cores vitest would take one worker, and many tests wait more than they work.
    maxWorkers: Math.max(2, availableParallelism()),
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
