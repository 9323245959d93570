import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';

const run = (file: string, ...args: readonly string[]) =>
  spawnSync(process.execPath, [path.resolve(import.meta.dirname, '..', file), ...args], { encoding: 'utf8' });

test.each([
  ['simulation/simulate.ts', '--count', 'many'],
  ['simulation/simulate.ts', '--sead', '1'],
  ['crash/kill-test.ts', '--rounds', '1.5'],
])('%s with %s %s runs nothing and prints its usage', (file, ...args) => {
  const { status, stdout, stderr } = run(file, ...args);
  expect([status, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/^npm run (simulate|kill-test) -- \[--/m);
});

test('a program prints its usage when asked', () => {
  expect(run('simulation/simulate.ts', '--help')).toMatchObject({ status: 0, stderr: '' });
});
