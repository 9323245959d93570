import { defineConfig } from 'vitest/config';

/** Suites that take minutes: run them by name, `npm test -- --project long`. */
const LONG = ['**/*.long.test.ts'];

export default defineConfig({
  test: {
    reporters: ['default'],
    projects: [
      {
        extends: true,
        test: {
          name: 'fast',
          include: ['packages/*/test/**/*.test.ts', 'test/**/*.test.ts'],
          exclude: ['**/node_modules/**', ...LONG],
          testTimeout: 20_000,
          hookTimeout: 20_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'long',
          include: LONG.map((pattern) => `{packages/*/test,test}/${pattern}`),
          exclude: ['**/node_modules/**'],
          testTimeout: 600_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
