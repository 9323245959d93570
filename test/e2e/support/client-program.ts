import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { expect } from 'vitest';

export const runProgram = promisify(execFile);

/** The time that a client program may take. */
export const PROGRAM_TIMEOUT_MS = 240_000;

/** The groups of checks of a program, as named in its sources. The pattern's first group captures the name. */
export const groupsIn = (sources: string, check: RegExp): string[] => [
  ...new Set(sources.matchAll(check).map(([, group]) => group!)),
];

/**
 * Runs a program that uses the store through a client in another language: `<program> … <endpoint> <key> <group…>`. For each check it
 * prints `ok <group>: …` or `FAILED <group>: …`, and at the end the totals.
 */
export async function expectAllWell(
  program: string,
  args: readonly string[],
  endpoint: string,
  groups: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<void> {
  const env = { ...process.env, ...environment };
  const options = { timeout: PROGRAM_TIMEOUT_MS, maxBuffer: 16_000_000, env };
  const { stdout } = await runProgram(program, [...args, endpoint, EMULATOR_KEY, ...groups], options).catch(
    (error: Error & { readonly stdout?: string }) => ({ stdout: error.stdout || error.message }),
  );
  const lines = stdout.split('\n');
  expect(lines.filter((line) => line.startsWith('FAILED'))).toEqual([]);
  // Every group has printed something, so none was left out because of its name.
  const seen = new Set(lines.map((line) => /^ok ([\w-]+):/.exec(line)?.[1]));
  expect(groups.filter((group) => !seen.has(group))).toEqual([]);
  expect(lines).toContainEqual(expect.stringMatching(/^\d+ passed, 0 failed$/));
}
