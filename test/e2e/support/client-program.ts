import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { EMULATOR_KEY } from '@epitaph/api/http/keys.ts';
import { expect } from 'vitest';

export const runProgram = promisify(execFile);

/** Milliseconds that a program of a client may take. */
export const PROGRAM_TIMEOUT_MS = 240_000;

/** The groups of checks that a program has, as its sources name them: what a pattern captures first. */
export const groupsIn = (sources: string, check: RegExp): string[] => [
  ...new Set(sources.matchAll(check).map(([, group]) => group!)),
];

/**
 * Runs a program that uses the store through a client of another language, `<program> … <endpoint> <key> <group…>`.
 * It prints `ok <group>: …` or `FAILED <group>: …` for each check, and the totals.
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
  // Every group has said something, so that none was left out by its name.
  const seen = new Set(lines.map((line) => /^ok ([\w-]+):/.exec(line)?.[1]));
  expect(groups.filter((group) => !seen.has(group))).toEqual([]);
  expect(lines).toContainEqual(expect.stringMatching(/^\d+ passed, 0 failed$/));
}
