import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';

const LONG = '**/*.long.test.ts';
/** What leaves stores behind that crashed, or sets what belongs to the process: each file in a process of its own. */
const ALONE = [
  'packages/api/test/telemetry/**/*.test.ts',
  'test/{backup,crash,eventstoredb,postgres,scale,simulation}/**/*.test.ts',
];

/** All tests but the long ones (`*.long.test.ts`), which run by `npm test -- --config vitest.long.config.ts`. */
export default defineConfig({
  test: {
    // Processes, as node:sqlite and writer threads are used; threads were no faster on two cores.
    pool: 'forks',
    // More than vitest would take (on two cores one), as many tests wait more than they work.
    maxWorkers: availableParallelism() * 2,
    // As scripts/toolchain.sh: many tests start the store as a program.
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, '.toolchain/compiled') },
    // Several times what the longest take, for machines that are slow or busy: a hook that removes thousands of files, too.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
    projects: [
      { extends: true, test: { name: 'alone', include: ALONE, exclude: [...configDefaults.exclude, LONG] } },
      {
        extends: true,
        test: {
          name: 'together',
          include: ['packages/*/test/**/*.test.ts', 'test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, LONG, ...ALONE],
          // Loading the same modules for each of a hundred files took a second of computing a file.
          isolate: false,
        },
      },
    ],
  },
});
