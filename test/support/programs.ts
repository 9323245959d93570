import { spawnSync } from 'node:child_process';

/**
 * Tests that need a program which not every machine has are skipped without it.
 *
 * @returns the reason, for their names; empty if the program exists
 */
export function whyWithout(program: 'curl' | 'openssl' | 'chromium'): string {
  const { error } = spawnSync(program, ['--version']);
  return error === undefined ? '' : ` [skipped: no ${program}: apt-get install ${program}]`;
}
