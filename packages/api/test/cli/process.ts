import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { run } from '@epitaph/api/cli/main.ts';

/** The program as its users run it, bundled by scripts/toolchain.sh; its sources if no script has started the tests. */
export const MAIN = process.env['PROGRAM'] ?? path.resolve(import.meta.dirname, '../../src/cli/main.ts');

const cleanups: (() => void)[] = [];

/** Ends the processes that a test has started, and removes its folders. */
export function cleanUp(): void {
  for (const clean of cleanups.splice(0).reverse()) clean();
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'epitaph-cli-'));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line to its end, with only the given `EPITAPH_…` variables. */
export async function epitaph(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<Finished> {
  return start(args, environment).finished();
}

/**
 * Does the same within this process, for commands that end by themselves: loading the program takes half of the time of a short command.
 */
export async function command(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<Finished & { readonly code: number }> {
  let stdout = '';
  let stderr = '';
  const code = await run(args, environment, {
    print: (line) => (stdout += `${line}\n`),
    stderr: { write: (text) => (stderr += text) },
  });
  return { code, stdout, stderr };
}

export interface Running {
  readonly child: ChildProcess;
  readonly endpoint: string;
  /** All of standard output so far. */
  stdout(): string;
  finished(): Promise<Finished>;
}

/** Starts `epitaph serve` on a free port, with a limit on open files if given, and waits until it says that it listens. */
export async function serve(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  openFiles?: number,
): Promise<Running> {
  const { child, texts, finished } = start(['serve', '--port', '0', ...args], environment, openFiles);
  const ended = finished();
  for (;;) {
    const endpoint = /listening on (http:\/\/\S+)[^]*\n {2}client/.exec(texts.stdout)?.[1];
    if (endpoint !== undefined) return { child, endpoint, stdout: () => texts.stdout, finished: () => ended };
    const result = await Promise.race([once(child.stdout!, 'data'), ended]);
    if ('code' in result) throw new Error(`the server ended with ${result.code}: ${result.stderr}`);
  }
}

interface Started {
  readonly child: ChildProcess;
  /** Its output so far. */
  readonly texts: { readonly stdout: string; readonly stderr: string };
  finished(): Promise<Finished>;
}

/** Starts a command line and waits for nothing. */
export function start(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  openFiles?: number,
): Started {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('EPITAPH_') && name !== 'NODE_OPTIONS',
  );
  const limit = openFiles === undefined ? '' : `ulimit -n ${openFiles}; `;
  const child = spawn('sh', ['-c', `${limit}exec "$@"`, 'sh', process.execPath, MAIN, ...args], {
    env: { ...Object.fromEntries(inherited), ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  cleanups.push(() => child.kill('SIGKILL'));
  const texts = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (texts.stdout += String(chunk)));
  child.stderr.on('data', (chunk) => (texts.stderr += String(chunk)));
  const finished = async (): Promise<Finished> => {
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, ...texts };
  };
  return { child, texts, finished };
}
