import { spawnSync } from 'node:child_process';

/**
 * Tests by a program that not every machine has are skipped where it is missing.
 *
 * @returns why, for their names; empty where it is there
 */
export function whyWithout(program: 'curl' | 'openssl' | 'chromium'): string {
  const { error } = spawnSync(program, ['--version']);
  return error === undefined ? '' : ` [skipped: no ${program}: apt-get install ${program}]`;
}
