import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { MAIN } from '../../../packages/api/test/cli/process.ts';

export interface Ended {
  readonly code: number | null;
  readonly stderr: string;
}

/** `epitaph serve` in a process of its own. */
export interface ServerProcess {
  readonly endpoint: string;
  /** Everything on standard error so far. */
  stderr(): string;
  signal(name: NodeJS.Signals): void;
  stop(): Promise<Ended>;
}

/** Starts a server on a free port of loopback. @throws Ended if it ends instead of listening */
export async function startServer(args: readonly string[]): Promise<ServerProcess> {
  const child = spawn(process.execPath, [MAIN, 'serve', '--port', '0', ...args], {
    env: Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('EPITAPH_'))),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const texts = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk) => (texts.stdout += String(chunk)));
  child.stderr.on('data', (chunk) => (texts.stderr += String(chunk)));
  const ended = once(child, 'close').then(([code]: unknown[]): Ended => ({
    code: code as number | null,
    stderr: texts.stderr,
  }));
  for (;;) {
    const endpoint = /listening on (https?:\/\/\S+)/.exec(texts.stdout)?.[1];
    if (endpoint !== undefined) {
      return {
        endpoint,
        stderr: () => texts.stderr,
        signal: (name) => child.kill(name),
        stop: () => {
          child.kill('SIGTERM');
          return ended;
        },
      };
    }
    const first = await Promise.race([once(child.stdout, 'data'), ended]);
    if ('code' in first) throw first;
  }
}
