import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ROOT } from './markdown.ts';

export interface StartedServer {
  readonly endpoint: string;
  /** The environment in which the page's commands find this server and this Node.js. */
  readonly environment: NodeJS.ProcessEnv;
  stop(): Promise<void>;
}

/** Starts the server as a page says, `npm start -- …`, but on a free port and without npm. */
export async function startAsShown(command: string): Promise<StartedServer> {
  const [, options] = /^npm start -- (.*)$/m.exec(command)!;
  const temporary = await mkdtemp(path.join(tmpdir(), 'epitaph-docs-'));
  const environment: NodeJS.ProcessEnv = {
    ...process.env,
    PATH: `${path.dirname(process.execPath)}${path.delimiter}${process.env['PATH'] ?? ''}`,
    TMPDIR: temporary,
  };
  const child = spawn('sh', ['-c', `exec sh scripts/start.sh ${options} --port 0`], {
    cwd: ROOT,
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const endpoint = await new Promise<string>((ready, failed) => {
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      const found = /listening on (http:\S+)/.exec(output);
      if (found !== null) ready(found[1]!);
    });
    exited.then(() => failed(new Error(`the server ended:\n${output}`)), failed);
  });
  return {
    endpoint,
    environment: { ...environment, EPITAPH_ENDPOINT: endpoint },
    stop: async () => {
      child.kill('SIGTERM');
      await exited;
      await rm(temporary, { recursive: true, force: true });
    },
  };
}
